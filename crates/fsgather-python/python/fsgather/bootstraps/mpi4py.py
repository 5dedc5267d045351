"""Ranks of MPI: introduced by a broadcast of a communicator of mpi4py."""

from __future__ import annotations

import sys
from typing import Any, Optional

from fsgather._errors import Config

__all__ = ["Mpi", "find"]


class Mpi:
    """Introduces the ranks of a communicator of mpi4py. All of them have to come, as to any call of MPI.

    Raises:
        fsgather.Config: it has no ranks, or this process is none of them.
    """

    def __init__(self, comm: Any) -> None:
        wrong = _wrong(comm)
        if wrong is not None:
            raise Config(f"comm= cannot introduce the ranks: {wrong}")
        self._comm = comm
        self.rank: int = comm.Get_rank()
        self.world_size: int = comm.Get_size()

    def publish(self, record: bytes) -> None:
        """Hands the record to all ranks."""
        self._comm.bcast(record, root=0)

    def fetch(self, seconds: float) -> bytes:
        """Takes it; MPI knows no time-out."""
        record: bytes = self._comm.bcast(None, root=0)
        return record


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
