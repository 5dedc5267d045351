"""Ranks that Ray has started: workers of Ray Train, and actors or tasks that say which rank they are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, Optional

from fsgather import _arguments, _errors, _own
from fsgather.bootstraps._runs import Said
from fsgather.bootstraps.key_value import KeyValue

__all__ = ["BeingRank", "be_rank"]


class Ray(KeyValue):
    """Introduces ranks by a named actor of this job, which the first who needs it makes, and which ends when all have met.

    Args:
        rank: which rank this process is.
        world_size: how many ranks there are.
        name: what ranks that belong together say, and others of this job do not.
    """

    def __init__(self, rank: int, world_size: int, name: str = "world") -> None:
        super().__init__(rank, world_size, name)
        import ray

        self._ray = ray
        self._store: Any = None
        self._is_closed = False
        self._name = f"fsgather-{ray.get_runtime_context().get_job_id()}-{name}"

    def set(self, key: str, value: bytes) -> None:
        self._ask("set", key, value)

    def get(self, key: str) -> Optional[bytes]:
        value: Optional[bytes] = self._ask("get", key)
        return value

    def delete(self, key: str) -> None:
        self._ask("delete", key)

    def close(self, have_met: bool = False) -> None:
        """As :meth:`KeyValue.close`, and gives up the actor: it ends with what its maker holds of it."""
        super().close(have_met)
        # What an exception keeps of this object would keep the actor; what still runs in a thread would make another one.
        self._is_closed, self._store = True, None

    def _actor(self) -> Any:
        store = self._store
        if store is None:
            options = {"name": self._name, "namespace": "fsgather", "get_if_exists": True, "num_cpus": 0}
            store = self._ray.remote(_Store).options(**options).remote()
            if not self._is_closed:
                self._store = store
        return store

    def _ask(self, what: str, *arguments: Any) -> Any:
        for is_last in (False, True):
            if self._is_closed:
                raise RuntimeError("this meeting is over")
            try:
                return self._ray.get(getattr(self._actor(), what).remote(*arguments))
            except self._ray.exceptions.RayActorError:
                # Its maker has ended, and it has with it.
                self._store = None
                self.is_forgetful.set()
                if is_last:
                    raise
        return None


class _Store:
    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def get(self, key: str) -> Optional[bytes]:
        return self._values.get(key)

    def delete(self, key: str) -> None:
        self._values.pop(key, None)


class _Task(NamedTuple):
    """What runs: an actor, which is one for all its methods and threads, or else a task."""

    actor: Optional[str]
    task: Optional[str]

    @classmethod
    def here(cls) -> _Task:
        """What runs in this thread."""
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return cls(None, None)
        context = ray.get_runtime_context()
        return cls(context.get_actor_id(), context.get_task_id())

    def is_same(self, other: _Task) -> bool:
        """Whether what one has said counts for the other. A thread that a task has started is of that task."""
        if self.actor or other.actor:
            return self.actor == other.actor
        return self.task == other.task or threading.current_thread() is not threading.main_thread()


class BeingRank:
    """What :func:`be_rank` returns: at the end of a ``with`` block the run ends here, and others hear of an exception that ends it."""

    def __init__(self, said: Said) -> None:
        self._said = said
        self._task = _Task.here()
        self._coroutine = _coroutine()
        self._beside: Optional[str] = None
        """Which run another coroutine of the same event loop has taken part in meanwhile."""
        self._before: Optional[BeingRank] = None
        self._is_block = False

    def __enter__(self) -> None:
        self._is_block = True

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]) -> None:
        _here.set(self._before)
        self._end(error)

    def _end(self, error: Optional[BaseException]) -> None:
        _active.discard(self)
        _own.end_run(("ray", self), error)


_here: ContextVar[Optional[BeingRank]] = ContextVar("fsgather_ray", default=None)
"""What was said last in this thread, or coroutine, and has not ended."""

_active: set[BeingRank] = set()
"""All that was said in this process and has not ended."""

_last: Optional[BeingRank] = None
"""What was said last in this process."""


def be_rank(rank: int, world_size: int, name: str = "world") -> BeingRank:
    """Says which rank this actor or task is, for the communicators that it makes from now on; see :class:`Ray`.

    Best said in each method that gathers, as ``with be_rank(...):``. Then the communicator of the functions of ``fsgather`` ends with the
    block, and an exception that leaves it is told to all other ranks at once, if they have met: those of a rank that fails before its first call
    wait for ``FSGATHER_JOIN_TIMEOUT``.

    Without ``with`` it holds until it is said again, which begins another run: ranks that are still in the one before are told.
    """
    global _last
    world_size = _arguments.whole("world_size", world_size, low=1)
    rank = _arguments.rank("rank", rank, world_size)
    now = BeingRank(Said.here(rank, world_size, name))
    before = _here.get()
    for other in list(_active):
        is_replaced = other is before and not other._is_block
        if is_replaced or not now._task.is_same(other._task):
            with contextlib.suppress(_errors.Error):
                other._end(RuntimeError("its rank has begun another run"))
    for other in _active:
        if other._coroutine is not None and now._coroutine is not None and other._coroutine is not now._coroutine:
            if other._coroutine.get_loop() is now._coroutine.get_loop():
                other._beside, now._beside = now._said.name, other._said.name
    now._before = before if before in _active else None
    _active.add(now)
    _here.set(now)
    _last = now
    return now


def _coroutine() -> Optional[asyncio.Task[Any]]:
    """The coroutine that runs in this thread, if one does."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _check_loop(here: BeingRank) -> None:
    """Refuses to wait in an event loop that another run needs, too: ranks that come to two runs in different orders would wait for each other
    until a time-out.

    Raises:
        fsgather.ConfigError: names both runs.
    """
    if here._beside is not None and _coroutine() is here._coroutine:
        raise _errors.ConfigError(
            f"coroutines of this actor take part in the runs {here._said.name!r} and {here._beside!r} at once: a call of one keeps the other "
            "from going on, as it waits in their event loop; make the calls in threads, await asyncio.to_thread(fsgather.all_gather, ...)"
        )


def run_here() -> Optional[BeingRank]:
    """The run that this thread takes part in, by itself or as the helper of the only one.

    Raises:
        fsgather.ConfigError: a call here would keep another run from going on.
    """
    here = _here.get()
    if here not in _active:
        if len(_active) != 1:
            return None
        (here,) = _active
    if here is None or not _Task.here().is_same(here._task):
        return None
    _check_loop(here)
    return here


def find() -> Optional[Ray]:
    """Whether this actor or task has said its rank, or is a worker of Ray Train.

    Raises:
        fsgather.ConfigError: it has said it, but not for here: gathering alone would be no result.
    """
    run = run_here()
    if run is not None:
        said = run._said
        said.check()
        return Ray(said.rank, said.world_size, said.name)
    if _last is not None and _last._said.pid == os.getpid() and _Task.here().is_same(_last._task):
        said = _last._said
        raise _errors.ConfigError(
            f"this actor or task was rank {said.rank} of {said.world_size} in {said.name!r}, and is not here; gather in the block of "
            "`with be_rank(...):`, and in its own thread where there are several"
        )
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        size = context.get_world_size()
        return None if size is None else Ray(context.get_world_rank(), size, f"train-{context.get_experiment_name()}")
    except (RuntimeError, AttributeError):
        # Not in a worker.
        return None
