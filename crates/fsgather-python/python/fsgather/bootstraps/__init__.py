"""Engines that have started this process and can introduce it to the other ranks: Ray, Dask, Spark, JAX, MPI, and yours.

A *bootstrap* knows which rank this process is and carries one record from rank 0 to all others; after that the ranks talk to each
other directly. :func:`find` looks for one in this order:

1. the one that is named: ``FSGATHER_RENDEZVOUS=ray:``, or ``Communicator(rendezvous="ray:")``; ``mpi:`` is ``mpi4py:``;
2. unless variables of a launcher say a rank, those below, in the order of :data:`ORDER`;
3. those that installed packages announce in the entry-point group ``fsgather.bootstraps``, by name.

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
import os
import re
from typing import Any, Callable, Optional, Protocol

from fsgather._errors import Config

__all__ = ["ORDER", "Bootstrap", "Find", "choose", "find", "names"]

ORDER = ("spark", "ray", "dask", "jax", "mpi4py")
"""The engines that are known here, in the order in which they are asked."""

_ALIASES = {"mpi": "mpi4py"}

_GROUP = "fsgather.bootstraps"
_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):")


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


Find = Callable[[], Optional[Bootstrap]]
"""What an entry point names: looks whether this process is a rank of its engine, without importing the engine."""


def names() -> list[str]:
    """All bootstraps that are there, in the order in which they are asked."""
    return [*ORDER, *sorted(set(_announced()) - set(ORDER))]


def find(name: Optional[str] = None) -> Optional[Bootstrap]:
    """The bootstrap with this name; without one the first that finds this process to be a rank.

    Raises:
        fsgather.Config: there is none with this name, or it does not find this process to be a rank.
    """
    if name is None:
        found = (_finder(other)() for other in names())
        return next((bootstrap for bootstrap in found if bootstrap is not None), None)
    name = _ALIASES.get(name, name)
    if name not in names():
        raise Config(f"there is no bootstrap {name!r} (FSGATHER_RENDEZVOUS, rendezvous=); there are {', '.join(names())}")
    bootstrap = _finder(name)()
    if bootstrap is None:
        raise Config(f"{name}: was to introduce the ranks (FSGATHER_RENDEZVOUS, rendezvous=), but this process is none of its ranks")
    return bootstrap


def choose(rendezvous: Optional[str], may_look: bool) -> Optional[Bootstrap]:
    """The bootstrap that a rendezvous names; where nobody names one, and one ``may_look``, the one that finds this process to be a rank."""
    text = rendezvous or os.environ.get("FSGATHER_RENDEZVOUS", "")
    named = _NAMED.fullmatch(text)
    if named is not None:
        return find(named.group(1))
    return find() if may_look and not text else None


def _finder(name: str) -> Find:
    if name in ORDER:
        finder: Find = importlib.import_module(f"{__name__}.{name}").find
        return finder
    loaded: Any = _announced()[name].load()
    return loaded


def _announced() -> dict[str, Any]:
    # Reading what is installed takes a while, which most processes need not.
    from importlib import metadata

    points: Any = metadata.entry_points()
    # Python 3.9 has a dictionary.
    chosen = points.select(group=_GROUP) if hasattr(points, "select") else points.get(_GROUP, ())
    return {point.name: point for point in chosen}
