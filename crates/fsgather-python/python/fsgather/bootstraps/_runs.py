"""Which run of an engine this thread takes part in, where the engine's processes go through several of them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Hashable, NamedTuple, Optional

from fsgather import _workers

if TYPE_CHECKING:
    from fsgather.bootstraps import Bootstrap

__all__ = ["ALONE", "SPEAKERS", "Said", "introduced", "is_task_of_dask", "replaces", "taken_part_in", "unintroduced"]

SPEAKERS = {"spark": "pyspark", "ray": "ray", "dask": "fsgather.bootstraps.dask"}
"""Engines that say which rank a *task* is, in the order in which they are asked, and the module without which there is no such task.

What they say counts before what variables say of the process: one that Slurm has started to be a worker of Dask is a rank of Slurm's, too.
"""

ALONE = "alone"
"""The run of all tasks of a process that are in no run."""

_WORKER_OF_RAY = 1
"""What Ray calls a process that runs tasks."""


class Said(NamedTuple):
    """What a program or engine has said of a run."""

    rank: int
    world_size: int
    name: str
    pid: int
    """The process in which it was said; a forked child inherits the words and is not the rank."""

    @classmethod
    def here(cls, rank: int, world_size: int, name: str) -> Said:
        """Said in this process."""
        return cls(rank, world_size, name, os.getpid())

    def check(self) -> None:
        """Refuses a process that was forked by the rank.

        Raises:
            fsgather.ConfigError: names the rank.
        """
        if self.pid != os.getpid():
            raise _workers.refusal(self.rank)


def introduced() -> Optional[Bootstrap]:
    """The bootstrap of the run that this thread takes part in."""
    for name, needs in SPEAKERS.items():
        if needs in sys.modules:
            bootstrap: Optional[Bootstrap] = import_module(f"fsgather.bootstraps.{name}").find()
            if bootstrap is not None:
                return bootstrap
    return None


def taken_part_in() -> Optional[Hashable]:
    """What tells the run that this thread takes part in from all others of this process; nothing where it takes part in none.

    Cheap, since every call of a function of :mod:`fsgather` asks.
    """
    for name, needs in SPEAKERS.items():
        if needs in sys.modules:
            module = sys.modules.get(f"fsgather.bootstraps.{name}") or import_module(f"fsgather.bootstraps.{name}")
            run: Optional[Hashable] = module.run_here()
            if run is not None:
                return name, run
    return None


def unintroduced() -> Optional[str]:
    """What to say where this is a task of an engine that has not said which rank it is: gathering alone is no result."""
    if is_task_of_dask():
        return "this is a task of Dask that fsgather.bootstraps.dask.run has not sent, so it is a world of one"
    ray = _module("ray")
    # Asked for its task, a driver of Ray complains.
    if ray is not None and ray.is_initialized() and getattr(ray.get_runtime_context().worker, "mode", None) == _WORKER_OF_RAY:
        return "this actor or task of Ray has not said its rank (fsgather.bootstraps.ray.be_rank), so it is a world of one"
    context = getattr(_module("pyspark"), "TaskContext", None)
    if context is not None and context.get() is not None:
        return "this is a task of Spark outside of a barrier stage (rdd.barrier().mapPartitions), so it is a world of one"
    return None


def is_task_of_dask() -> bool:
    """Whether this thread has run a task of Dask, sent by whatever."""
    return hasattr(getattr(_module("distributed.worker"), "thread_state", None), "key")


def _module(name: str) -> Any:
    """A module that the engine has imported."""
    return sys.modules.get(name)


def replaces(run: Hashable, other: Optional[Hashable]) -> bool:
    """Whether a process that has begun this run is no longer in the other one. Dask and Ray end theirs themselves; Spark does not tell."""
    return isinstance(run, tuple) and isinstance(other, tuple) and run != other and run[0] == other[0] == "spark"
