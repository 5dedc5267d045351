"""Introduces ranks by a store of keys and bytes that all of them can use: :class:`KeyValue`."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import threading
import time
from collections import deque
from typing import Callable, Optional

from fsgather._errors import ConfigError

__all__ = ["KeyValue"]

_LOOK_EVERY = 0.05
_SELDOM = 1.0
_ASK_AGAIN = 3.0

_met: deque[tuple[int, bytes]] = deque(maxlen=64)
"""By which records ranks of this process have met; rank 0 may give one again before it knows that all have."""


class KeyValue:
    """A bootstrap over ``set`` and ``get``, which a subclass has.

    Each rank asks for the record under a nonce of its own, and rank 0 answers each nonce: what an attempt that has failed has left in the store
    is never taken for an answer. A store may tell old news for a while, lose what was set, or show a part of what is being set. Two processes that say that they are one rank are told so, unless the later one is of an attempt that takes the
    place of the earlier one, which has ended.
    """

    __looked = 0.0
    __asked = 0.0

    def __init__(self, rank: int, world_size: int, prefix: str) -> None:
        self.rank = rank
        self.world_size = world_size
        self.tell_failure: Callable[[str], object] = lambda reason: None
        """Called at most once, in a thread, where rank 0 cannot answer any more; says why."""
        self.is_forgetful: threading.Event = threading.Event()
        """Set by a subclass whose store has lost what was set: it is set again then."""
        self.__prefix = f"fsgather/{prefix}"
        self.__own = b""
        self.__mine: set[bytes] = set()
        """What this process has said."""
        self.__earlier: set[bytes] = set()
        """What was there before the store showed any of that, and may be there again."""
        self.__is_seen = False
        self.__is_damaging = False
        self.__record = b""
        self.__answered: dict[int, bytes] = {}
        self.__lock = threading.Lock()
        self.__is_over = threading.Event()

    def set(self, key: str, value: bytes) -> None:
        """Has all ranks see this value under this key, instead of an earlier one."""
        raise NotImplementedError

    def get(self, key: str) -> Optional[bytes]:
        """What is under a key now, or ``None``."""
        raise NotImplementedError

    def delete(self, key: str) -> None:
        """Removes a key that nobody needs any more, where the store can do that; else it stays."""

    def publish(self, record: bytes) -> None:
        """Answers the other ranks, in a thread, until :meth:`close`."""
        self.__claim()
        threading.Thread(target=self.__answer, args=(record,), name="fsgather-bootstrap", daemon=True).start()

    def fetch(self, seconds: float) -> bytes:
        """Asks rank 0 and waits for its answer."""
        self.__claim()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            record = self.__answer_to_own()
            if record is not None and (self.rank, record) not in _met:
                self.__record = record
                return record
            if record is not None or time.monotonic() > self.__asked + _ASK_AGAIN:
                # Rank 0 has still to learn that all have met in the world before this one, or the store has lost its answer.
                time.sleep(_LOOK_EVERY)
                self.__claim()
            self.__look_after_own()
            time.sleep(_LOOK_EVERY)
        damage = "; this store of keys does not give back what was set" if self.__is_damaging and not self.__is_seen else ""
        raise TimeoutError(f"rank 0 has not answered within {seconds:.0f} s{damage}")

    def close(self, have_met: bool = False) -> None:
        """Ends what :meth:`publish` has started. The ranks ``have_met``, so that nobody asks again, or have failed to."""
        self.__is_over.set()
        if have_met and self.rank != 0:
            _met.append((self.rank, self.__record))
        if self.rank != 0 or not have_met:
            return
        with self.__lock:
            try:
                self.delete(self.__asking(0))
                for rank in self.__answered:
                    self.delete(self.__asking(rank))
                    self.delete(self.__answering(rank))
            except Exception:
                # The ranks have met; what stays is small.
                return

    def __claim(self) -> None:
        """Says, under a new nonce, which process this rank is."""
        self.__own = f"{secrets.token_hex(16)} {socket.gethostname()}, pid {os.getpid()}".encode()
        self.__mine.add(self.__own)
        self.__asked = self.__looked = time.monotonic()
        self.set(self.__asking(self.rank), _sealed(self.__own))
        # From then on, what is there instead has come later.
        self.__is_seen = self.__is_seen or self.__read(self.__asking(self.rank)) == self.__own

    def __asking(self, rank: int) -> str:
        return f"{self.__prefix}/ask/{rank}"

    def __answering(self, rank: int) -> str:
        return f"{self.__prefix}/answer/{rank}"

    def __answer_to_own(self) -> Optional[bytes]:
        """What rank 0 has answered to any nonce of this process."""
        nonce, _, record = (self.__read(self.__answering(self.rank)) or b"").partition(b" ")
        return record if any(own.startswith(nonce + b" ") for own in self.__mine) else None

    def __answer(self, record: bytes) -> None:
        pause = _LOOK_EVERY
        try:
            while not self.__is_over.wait(pause):
                with self.__lock:
                    self.__answer_all(record)
                self.__look_after_own()
                if len(self.__answered) == self.world_size - 1:
                    # What has been answered may have been asked by an attempt before this one.
                    pause = min(2 * pause, _SELDOM)
        except Exception as error:
            if not self.__is_over.is_set():
                self.tell_failure(f"rank 0 cannot introduce the ranks: {type(error).__name__}: {error}")

    def __answer_all(self, record: bytes) -> None:
        for rank in range(1, self.world_size):
            asked = self.__read(self.__asking(rank))
            if asked and self.__answered.get(rank) != asked and not self.__is_over.is_set():
                self.set(self.__answering(rank), _sealed(asked.partition(b" ")[0] + b" " + record))
                self.__answered[rank] = asked

    def __look_after_own(self) -> None:
        """Says anew which process this rank is where the store has lost that; raises where another process says later that it is."""
        if not self.is_forgetful.is_set() and time.monotonic() < self.__looked + _SELDOM:
            return
        self.is_forgetful.clear()
        self.__looked = time.monotonic()
        there = self.__read(self.__asking(self.rank))
        if self.__is_over.is_set():
            return
        if not there:
            return self.__claim()
        if there == self.__own:
            self.__is_seen = True
        if there in self.__mine or there in self.__earlier:
            return
        if not self.__is_seen:
            self.__earlier.add(there)
            return self.set(self.__asking(self.rank), _sealed(self.__own))
        who = there.partition(b" ")[2]
        if who == self.__own.partition(b" ")[2]:
            raise RuntimeError(
                f"another thread of this process meets as rank {self.rank} as well; let one communicator be made after the other, or make groups"
            )
        raise RuntimeError(
            f"another process says that it is rank {self.rank} as well: {who.decode(errors='replace')}; give each rank one process, and each run a name of its own"
        )

    def __read(self, key: str) -> Optional[bytes]:
        """What is whole under a key."""
        found = self.get(key)
        if found is None:
            return None
        if not isinstance(found, (bytes, bytearray, memoryview)):
            # A client that decodes would damage the record.
            raise ConfigError(f"get of this store of keys gives {type(found).__name__}, not the bytes that were set")
        seal, _, value = bytes(found).partition(b" ")
        is_whole = seal == _sealed(value).partition(b" ")[0]
        self.__is_damaging = self.__is_damaging or (len(found) > 0 and not is_whole)
        return value if is_whole else None


def _sealed(value: bytes) -> bytes:
    """A value behind a hash of it, which a part of one has not."""
    return hashlib.sha256(value).hexdigest()[:16].encode() + b" " + value
