"""Engines that have started this process and can introduce it to the other ranks: Ray, Dask, Spark, JAX, MPI, and yours.

A *bootstrap* knows which rank this process is and carries one record from rank 0 to all others; after that the ranks talk to each
other directly. The first of these counts:

1. the one that is named: ``FSGATHER_RENDEZVOUS=ray:``, or ``Communicator(rendezvous="ray:")``; ``mpi:`` is ``mpi4py:``;
2. ``spark``, ``ray`` and ``dask`` say which rank the task is that runs here, whatever a launcher has said of the process;
3. unless variables of a launcher say a rank, ``jax`` and ``mpi4py``, and then those that installed packages announce in the entry-point
   group ``fsgather.bootstraps``, by name.

========== ======================================================================== ================================
name       finds ranks in                                                           rank is
========== ======================================================================== ================================
``spark``  a task of a barrier stage                                                its partition
``ray``    a worker of Ray Train, or an actor that has called :func:`ray.be_rank`   the world rank; what it has said
``dask``   a function that :func:`dask.run` has sent to workers                     the place of the worker
``jax``    a process in which ``jax.distributed`` is initialised                    the process index
``mpi4py`` a process in which MPI is initialised, with more than one rank           that in ``COMM_WORLD``
========== ======================================================================== ================================

An engine of your own is 30 lines: ``docs/guide/engines.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

__all__ = ["Bootstrap"]

_ORDER = ("spark", "ray", "dask", "jax", "mpi4py")
"""The engines that are known here, in the order in which they are asked."""


class Bootstrap(Protocol):
    """Knows which rank this process is, and carries one record from rank 0 to all others."""

    @property
    def rank(self) -> int:
        """Which rank this process is."""

    @property
    def world_size(self) -> int:
        """How many ranks there are."""

    def publish(self, record: bytes) -> object:
        """Leaves the record where the others find it. Called once, on rank 0. It holds a secret."""

    def fetch(self, seconds: float) -> bytes:
        """The record that rank 0 of this attempt has published, within so many seconds; else raises. Called once, on each other rank."""


if TYPE_CHECKING:
    from fsgather.bootstraps import dask as dask
    from fsgather.bootstraps import ray as ray
else:

    def __getattr__(name: str) -> Any:
        """Imports what an engine needs where it is named, as in ``fsgather.bootstraps.ray.be_rank(...)``."""
        if name in _ORDER:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
