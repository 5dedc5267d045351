"""Ranks of MPI: introduced by messages on a communicator of mpi4py."""

from __future__ import annotations

import sys
import threading
from typing import Any, Optional

from fsgather._errors import ConfigError
from fsgather.bootstraps.key_value import KeyValue

__all__: list[str] = []


class Mpi(KeyValue):
    """Introduces the ranks of a communicator of mpi4py, by messages on a duplicate of it, which no receive of the program can take.

    Each rank asks rank 0, which answers it; no call of MPI waits. The duplicate is asked for once, as a collective call that does not wait
    either. So a rank that comes after others have given up meets them the next time that they try, and what is left of a meeting that has failed
    is no part of another one.

    Raises:
        fsgather.ConfigError: it has no ranks, or this process is none of them.
    """

    def __init__(self, comm: Any) -> None:
        wrong = _wrong(comm)
        if wrong is not None:
            raise ConfigError(f"comm= cannot introduce the ranks: {wrong}")
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
        self.values: dict[str, bytes] = {}
        self._mpi: Any = sys.modules["mpi4py.MPI"]
        self._rank = comm.Get_rank()
        # Programs may receive whatever comes on their own.
        self._copy, self._request = comm.Idup()
        self._is_there = False
        """Whether all ranks have asked for the duplicate."""
        self._unsent: dict[str, int] = {}
        self._on_their_way: list[Any] = []

    def send(self, to: int, key: str, value: bytes) -> None:
        """Sends a value, as soon as that can be done, and waits for nobody."""
        self.values[key] = value
        if to != self._rank:
            self._unsent[key] = to
        self._get_on()

    def look(self, key: str) -> Optional[bytes]:
        """Takes what has come, and looks whether something is under a key."""
        anybody = self._mpi.ANY_SOURCE
        while self._get_on() and self._copy.iprobe(source=anybody, tag=0):
            came, value = self._copy.recv(source=anybody, tag=0)
            self.values[came] = value
        return self.values.get(key)

    def _get_on(self) -> bool:
        """Sends what could not be sent before; whether messages can be exchanged."""
        self._is_there = self._is_there or bool(self._request.Test())
        if not self._is_there:
            return False
        self._on_their_way = [request for request in self._on_their_way if not request.Test()]
        unsent, self._unsent = self._unsent, {}
        for key, to in unsent.items():
            # Only the last word counts.
            if key in self.values:
                self._on_their_way.append(self._copy.isend((key, self.values[key]), dest=to, tag=0))
        return True

    def free(self) -> None:
        """Gives the duplicate back, where all ranks have it."""
        if self._is_there:
            self._copy.Free()


_lock = threading.Lock()
_key: Optional[int] = None
"""Under which a communicator of MPI keeps what belongs to it; another one that MPI gives the same handle later has nothing there."""


def _post_of(comm: Any) -> _Post:
    """That of a communicator: what has come for one meeting may have been sent in another."""
    global _key
    with _lock:
        if _key is None:
            _key = sys.modules["mpi4py.MPI"].Comm.Create_keyval(delete_fn=_free)
        found: Optional[_Post] = comm.Get_attr(_key)
        if found is None:
            found = _Post(comm)
            comm.Set_attr(_key, found)
        return found


def _free(comm: Any, _key: int, post: _Post) -> None:
    """Called where the program frees the communicator, on all ranks; that of the world goes with MPI itself."""
    if comm != sys.modules["mpi4py.MPI"].COMM_WORLD:
        post.free()


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
