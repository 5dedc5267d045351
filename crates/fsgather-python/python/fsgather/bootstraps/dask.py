"""Ranks on the workers of a Dask cluster: :func:`run` sends a function to them, and each is a rank in it."""

from __future__ import annotations

import threading
import uuid
from typing import Any, Callable, Optional, Sequence

from fsgather.bootstraps.key_value import KeyValue

__all__ = ["Dask", "find", "run"]

_said = threading.local()


def run(client: Any, function: Callable[..., Any], *args: Any, workers: Optional[Sequence[str]] = None, retries: int = 0) -> list[Any]:
    """Calls a function on one worker for each rank, at the same time, and returns what each has returned.

    In it ``fsgather.Communicator()`` and the functions of ``fsgather`` find the other ranks.

    Args:
        client: a ``distributed.Client``.
        function: what each rank does.
        args: what it is called with, the same on all ranks.
        workers: addresses of workers, rank 0's first; by default all. Each needs a thread that is free.
        retries: how often Dask tries again when a rank fails or its worker is lost; the ranks meet anew then.
    """
    chosen = list(workers) if workers is not None else sorted(client.nthreads())
    name = uuid.uuid4().hex
    where = [{"workers": [worker], "allow_other_workers": retries > 0} for worker in chosen]
    futures = [
        client.submit(
            _as_rank, rank, len(chosen), name, function, args, key=f"fsgather-{name}-{rank}", pure=False, retries=retries, **place
        )
        for rank, place in enumerate(where)
    ]
    results: list[Any] = client.gather(futures)
    return results


def _as_rank(rank: int, world_size: int, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    _said.bootstrap = (rank, world_size, name)
    try:
        return function(*args)
    finally:
        del _said.bootstrap


class Dask(KeyValue):
    """Introduces ranks by the metadata that the scheduler keeps."""

    def __init__(self, rank: int, world_size: int, name: str) -> None:
        super().__init__(rank, world_size, name)
        from distributed import get_client

        self._client = get_client()

    def set(self, key: str, value: bytes) -> None:
        self._client.set_metadata([key], value)

    def get(self, key: str) -> Optional[bytes]:
        value: Optional[bytes] = self._client.get_metadata([key], default=None)
        return value


def find() -> Optional[Dask]:
    """Whether this is a rank of :func:`run`."""
    said = getattr(_said, "bootstrap", None)
    return None if said is None else Dask(*said)
