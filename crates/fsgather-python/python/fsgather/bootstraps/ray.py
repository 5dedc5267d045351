"""Ranks that Ray has started: workers of Ray Train, and actors or tasks that say which rank they are."""

from __future__ import annotations

import sys
import threading
from typing import Any, Optional

from fsgather.bootstraps.key_value import KeyValue

__all__ = ["Ray", "be_rank", "find"]

_said = threading.local()


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


def be_rank(rank: int, world_size: int, name: str = "world") -> None:
    """Says which rank this actor or task is, for the communicators that it makes on this thread; see :class:`Ray`."""
    _said.bootstrap = (rank, world_size, name)


def find() -> Optional[Ray]:
    """Whether this actor or task has said its rank, or is a worker of Ray Train."""
    said = getattr(_said, "bootstrap", None)
    if said is not None:
        return Ray(*said)
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
