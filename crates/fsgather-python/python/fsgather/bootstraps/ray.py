"""Ranks that Ray has started: workers of Ray Train, and actors or tasks that say which rank they are."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any, NamedTuple, Optional

from fsgather import _arguments, _own
from fsgather.bootstraps._runs import Said
from fsgather.bootstraps.key_value import KeyValue

__all__ = ["BeingRank", "Ray", "be_rank", "find", "run_here"]

_said: Optional[tuple[Said, _Task]] = None
"""What was said in this process, and by which actor or task. Ray has a process be one actor, or do one task at a time."""


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
        self._name = f"fsgather-{ray.get_runtime_context().get_job_id()}-{name}"

    def set(self, key: str, value: bytes) -> None:
        self._ask("set", key, value)

    def get(self, key: str) -> Optional[bytes]:
        value: Optional[bytes] = self._ask("get", key)
        return value

    def delete(self, key: str) -> None:
        self._ask("delete", key)

    def _ask(self, what: str, *arguments: Any) -> Any:
        for is_last in (False, True):
            if self._store is None:
                options = {"name": self._name, "namespace": "fsgather", "get_if_exists": True, "num_cpus": 0}
                self._store = self._ray.remote(_Store).options(**options).remote()
            try:
                return self._ray.get(getattr(self._store, what).remote(*arguments))
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
    """Who has said a rank: an actor, which is one for all its methods and threads, or else a task."""

    actor: Optional[str]
    task: Optional[str]
    attempt: int

    @classmethod
    def here(cls) -> _Task:
        """What runs in this thread."""
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return cls(None, None, 0)
        context = ray.get_runtime_context()
        core = getattr(ray._private.worker.global_worker, "core_worker", None)
        # Not said by all versions.
        attempt = getattr(core, "get_current_task_attempt_number", int)()
        return cls(context.get_actor_id(), context.get_task_id(), attempt)

    def is_same(self, said: _Task) -> bool:
        """Whether what one has said counts for the other. What a thread of a task says and hears is the task's."""
        if self.actor or said.actor:
            return self.actor == said.actor
        return self.task == said.task or threading.current_thread() is not threading.main_thread()

    def is_tried_again(self, said: _Task) -> bool:
        """Whether this is what has said it before, tried again since it had failed."""
        return self.task == said.task and self.attempt > said.attempt


class BeingRank:
    """What :func:`be_rank` returns: at the end of a ``with`` block the run ends here, and others hear of an exception that ends it."""

    def __init__(self, said: Said) -> None:
        self._said = said

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]) -> None:
        global _said
        if _said is not None and _said[0] == self._said:
            _said = None
        _own.end_run(("ray", self._said), error)


def be_rank(rank: int, world_size: int, name: str = "world") -> BeingRank:
    """Says which rank this actor or task is, for the communicators that it makes from now on; see :class:`Ray`.

    Best said in each method that gathers, as ``with be_rank(...):``. Then the communicator of the functions of ``fsgather`` ends with the
    block, and an exception that leaves it is told to all other ranks at once.

    Without ``with`` the communicator stays for later methods that say the same. It is made anew where another rank, size or name is said,
    where it has failed, and where Ray tries a method again.
    """
    global _said
    rank = _arguments.whole("rank", rank)
    world_size = _arguments.whole("world_size", world_size, low=rank + 1)
    now, task = Said.here(rank, world_size, name), _Task.here()
    before, _said = _said, (now, task)
    if before is not None and before[0] == now:
        if task.is_tried_again(before[1]):
            _own.end_run(("ray", now), RuntimeError("its task has failed, and is tried again"))
        else:
            _own.end_failed(("ray", now))
    return BeingRank(now)


def run_here() -> Optional[Said]:
    """What this actor or task has said; what another task had said in this process does not count."""
    if _said is None or not _Task.here().is_same(_said[1]):
        return None
    return _said[0]


def find() -> Optional[Ray]:
    """Whether this actor or task has said its rank, or is a worker of Ray Train."""
    said = run_here()
    if said is not None:
        said.check()
        return Ray(said.rank, said.world_size, said.name)
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
