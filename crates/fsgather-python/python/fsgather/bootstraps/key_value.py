"""Introduces ranks by a store of keys and bytes that all of them can use: :class:`KeyValue`."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from typing import Callable, Optional

__all__ = ["KeyValue"]

_LOOK_EVERY = 0.05
_SELDOM = 1.0


class KeyValue:
    """A bootstrap over ``set`` and ``get``, which a subclass has.

    Each rank asks for the record under a nonce of its own, and rank 0 answers each nonce: what an attempt that has failed has left in the store
    is never taken for an answer. Two processes that say that they are one rank are told so, unless the later one is of an attempt that takes the
    place of the earlier one, which has ended.
    """

    __looked = 0.0

    def __init__(self, rank: int, world_size: int, prefix: str) -> None:
        self.rank = rank
        self.world_size = world_size
        self.tell_failure: Callable[[str], object] = lambda reason: None
        """Called at most once, in a thread, where rank 0 cannot answer any more; says why."""
        self.is_forgetful = threading.Event()
        """Set by a subclass whose store has lost what was set: it is set again then."""
        self.__prefix = f"fsgather/{prefix}"
        self.__own = ""
        self.__answered: dict[int, str] = {}
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
            record = _bytes(self.get(self.__answering(self.rank, self.__own)))
            if record:
                return record
            self.__look_after_own()
            time.sleep(_LOOK_EVERY)
        raise TimeoutError(f"rank 0 has not answered within {seconds:.0f} s")

    def close(self, have_met: bool = False) -> None:
        """Ends what :meth:`publish` has started. The ranks ``have_met``, so that nobody asks again, or have failed to."""
        self.__is_over.set()
        if self.rank != 0 or not have_met:
            return
        with self.__lock:
            try:
                self.delete(self.__asking(0))
                for rank, asked in self.__answered.items():
                    self.delete(self.__asking(rank))
                    self.delete(self.__answering(rank, asked))
            except Exception:
                # The ranks have met; what stays is small.
                return

    def __claim(self) -> None:
        """Says, under a new nonce, which process this rank is."""
        self.__own = f"{secrets.token_hex(16)} {socket.gethostname()}, pid {os.getpid()}"
        self.__looked = time.monotonic()
        self.set(self.__asking(self.rank), self.__own.encode())

    def __asking(self, rank: int) -> str:
        return f"{self.__prefix}/ask/{rank}"

    def __answering(self, rank: int, asked: str) -> str:
        return f"{self.__prefix}/answer/{rank}/{asked.partition(' ')[0]}"

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
            asked = _text(self.get(self.__asking(rank)))
            if asked and self.__answered.get(rank) != asked and not self.__is_over.is_set():
                self.set(self.__answering(rank, asked), record)
                self.__answered[rank] = asked

    def __look_after_own(self) -> None:
        """Says anew which process this rank is where the store has lost that; raises where another process says later that it is."""
        if not self.is_forgetful.is_set() and time.monotonic() < self.__looked + _SELDOM:
            return
        self.is_forgetful.clear()
        self.__looked = time.monotonic()
        there = _text(self.get(self.__asking(self.rank)))
        if self.__is_over.is_set() or there == self.__own:
            return
        if not there:
            return self.__claim()
        raise RuntimeError(
            f"another process says that it is rank {self.rank} as well: {there.partition(' ')[2]}; give each rank one process, and each "
            "job a name of its own"
        )


def _text(found: object) -> Optional[str]:
    value = _bytes(found)
    return None if value is None else value.decode(errors="replace")


def _bytes(found: object) -> Optional[bytes]:
    """What a store has given; clients that decode it would damage the record."""
    if found is None:
        return None
    if isinstance(found, (bytes, bytearray, memoryview)):
        return bytes(found)
    raise TypeError(f"get of this store of keys gives {type(found).__name__}, not the bytes that were set")
