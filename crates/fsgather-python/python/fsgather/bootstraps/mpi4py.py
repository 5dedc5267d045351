"""Ranks of MPI: introduced by messages on a communicator of mpi4py."""

from __future__ import annotations

import sys
import threading
from typing import Any, Optional

from fsgather._errors import Config
from fsgather.bootstraps.key_value import KeyValue

__all__ = ["Mpi", "find"]


class Mpi(KeyValue):
    """Introduces the ranks of a communicator of mpi4py, by messages with the largest tag that MPI allows.

    Each rank asks rank 0, which answers it; no call of MPI waits. So a rank that comes after others have given up meets them the next time
    that they try, and what is left of a meeting that has failed is no part of another one.

    Raises:
        fsgather.Config: it has no ranks, or this process is none of them.
    """

    def __init__(self, comm: Any) -> None:
        wrong = _wrong(comm)
        if wrong is not None:
            raise Config(f"comm= cannot introduce the ranks: {wrong}")
        super().__init__(comm.Get_rank(), comm.Get_size(), "mpi")
        self._post = _post_of(comm)
        self._is_over = False

    def set(self, key: str, value: bytes) -> None:
        """Hands a value to whom it concerns: rank 0, or the rank that rank 0 answers."""
        to = int(key.rpartition("/")[2]) if self.rank == 0 else 0
        with self._post.lock:
            self._check()
            self._post.send(to, key, value)

    def get(self, key: str) -> Optional[bytes]:
        """What has come last."""
        with self._post.lock:
            self._check()
            return self._post.look(key)

    def delete(self, key: str) -> None:
        """Forgets what has come."""
        with self._post.lock:
            self._post.values.pop(key, None)

    def close(self, have_met: bool = False) -> None:
        """As :meth:`KeyValue.close`; after it no call of MPI is made."""
        super().close(have_met)
        with self._post.lock:
            self._is_over = True

    def _check(self) -> None:
        if self._is_over:
            raise RuntimeError("this meeting is over")


class _Post:
    """What ranks of one communicator of MPI have sent to this one, and what is on its way from here. Whoever uses it has its lock."""

    def __init__(self, comm: Any) -> None:
        self.lock = threading.Lock()
        self.comm = comm
        self.values: dict[str, bytes] = {}
        self._mpi: Any = sys.modules["mpi4py.MPI"]
        self._tag = int(comm.Get_attr(self._mpi.TAG_UB))
        self._on_their_way: list[Any] = []

    def send(self, to: int, key: str, value: bytes) -> None:
        """Sends a value, and waits for nobody."""
        self.values[key] = value
        self._on_their_way = [request for request in self._on_their_way if not request.Test()]
        if to != self.comm.Get_rank():
            self._on_their_way.append(self.comm.isend((key, value), dest=to, tag=self._tag))

    def look(self, key: str) -> Optional[bytes]:
        """Takes what has come, and looks whether something is under a key."""
        anybody = self._mpi.ANY_SOURCE
        while self.comm.iprobe(source=anybody, tag=self._tag):
            came, value = self.comm.recv(source=anybody, tag=self._tag)
            self.values[came] = value
        return self.values.get(key)


_lock = threading.Lock()
_posts: list[_Post] = []


def _post_of(comm: Any) -> _Post:
    """That of a communicator: what has come for one meeting may have been sent in another."""
    with _lock:
        # Those that were freed are equal to none.
        found = next((post for post in _posts if post.comm == comm), None)
        if found is None:
            null = sys.modules["mpi4py.MPI"].COMM_NULL
            _posts[:] = [*(post for post in _posts if post.comm != null), _Post(comm)]
            found = _posts[-1]
        return found


def _wrong(comm: Any) -> Optional[str]:
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(comm, mpi.Comm):
        return f"it is of type {type(comm).__name__}, no communicator of mpi4py, such as MPI.COMM_WORLD"
    if not mpi.Is_initialized() or mpi.Is_finalized():
        return "MPI is not initialised, or not any more"
    if comm == mpi.COMM_NULL:
        return "it is MPI.COMM_NULL: it was freed, or this process is none of its ranks"
    if comm.Is_inter():
        return "it connects two groups of ranks; give one communicator of all, such as its Merge()"
    return None


def find() -> Optional[Mpi]:
    """Whether MPI is initialised in this process, and has started more than one."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.Get_size() < 2:
        return None
    return Mpi(mpi.COMM_WORLD)
