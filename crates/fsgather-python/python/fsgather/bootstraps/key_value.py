"""Introduces ranks by a store of keys and bytes that all of them can use: :class:`KeyValue`."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Optional

__all__ = ["KeyValue"]

_LOOK_EVERY = 0.05
_SELDOM = 1.0


class KeyValue:
    """A bootstrap over ``set`` and ``get``, which a subclass has.

    Each rank asks for the record under a nonce of its own, and rank 0 answers each nonce: what an attempt that has failed has left in the store
    is never taken for an answer.
    """

    def __init__(self, rank: int, world_size: int, prefix: str) -> None:
        self.rank = rank
        self.world_size = world_size
        self._prefix = f"fsgather/{prefix}"
        self._is_over = threading.Event()

    def set(self, key: str, value: bytes) -> None:
        """Has all ranks see this value under this key, instead of an earlier one."""
        raise NotImplementedError

    def get(self, key: str) -> Optional[bytes]:
        """What is under a key now, or ``None``."""
        raise NotImplementedError

    def publish(self, record: bytes) -> None:
        """Answers the other ranks, in a thread, until :meth:`close`."""
        threading.Thread(target=self._answer, args=(record,), name="fsgather-bootstrap", daemon=True).start()

    def fetch(self, seconds: float) -> bytes:
        """Asks rank 0 and waits for its answer."""
        nonce = secrets.token_hex(16)
        self.set(f"{self._prefix}/ask/{self.rank}", nonce.encode())
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            record = _bytes(self.get(f"{self._prefix}/answer/{self.rank}/{nonce}"))
            if record:
                return record
            time.sleep(_LOOK_EVERY)
        raise TimeoutError(f"rank 0 has not answered within {seconds:.0f} s")

    def close(self) -> None:
        """Ends what :meth:`publish` has started. The ranks have met, or have failed to."""
        self._is_over.set()

    def _answer(self, record: bytes) -> None:
        answered: dict[int, bytes] = {}
        pause = _LOOK_EVERY
        while not self._is_over.wait(pause):
            for rank in range(1, self.world_size):
                nonce = _bytes(self.get(f"{self._prefix}/ask/{rank}"))
                if nonce and answered.get(rank) != nonce and not self._is_over.is_set():
                    self.set(f"{self._prefix}/answer/{rank}/{nonce.decode()}", record)
                    answered[rank] = nonce
            if len(answered) == self.world_size - 1:
                # What has been answered may have been asked by an attempt before this one.
                pause = min(2 * pause, _SELDOM)


def _bytes(found: object) -> Optional[bytes]:
    """What a store has given; clients that decode it would damage the record."""
    if found is None:
        return None
    if isinstance(found, (bytes, bytearray, memoryview)):
        return bytes(found)
    raise TypeError(f"get of this store of keys gives {type(found).__name__}, not the bytes that were set")
