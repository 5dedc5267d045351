"""Ranks on the workers of a Dask cluster: :func:`run` sends a function to them, and each is a rank in it."""

from __future__ import annotations

import contextlib
import reprlib
import threading
import uuid
from typing import Any, Callable, Hashable, Optional, Sequence

from fsgather import _arguments, _own
from fsgather._errors import ConfigError
from fsgather.bootstraps._runs import ALONE, Said, is_task_of_dask
from fsgather.bootstraps.key_value import KeyValue

__all__ = ["run"]

_here = threading.local()


def run(client: Any, function: Callable[..., Any], *args: Any, workers: Optional[Sequence[str]] = None, retries: int = 0) -> list[Any]:
    """Calls a function on one worker for each rank, at the same time, and returns what each has returned.

    In it ``fsgather.Communicator()`` and the functions of ``fsgather`` find the other ranks of this run, and of no other. The communicator
    that those functions make ends with the run.

    Args:
        client: a ``distributed.Client``.
        function: what each rank does.
        args: what it is called with, the same on all ranks.
        workers: addresses of workers, rank 0's first; by default all. Each needs a thread that is free.
        retries: how often Dask tries again when a rank fails or its worker is lost; the ranks meet anew then.

    Raises:
        fsgather.ConfigError: there is no worker with such an address, or none at all; the client is none, or not connected, or asynchronous;
            ``retries`` is no number of times.
    """
    retries = _arguments.whole("retries", retries)
    chosen = _chosen(_there(client), workers)
    name = uuid.uuid4().hex
    where = [{"workers": [worker], "allow_other_workers": retries > 0} for worker in chosen]
    futures = [
        client.submit(
            _as_rank, rank, len(chosen), name, function, args, key=f"fsgather-{name}-{rank}", pure=False, retries=retries, **place
        )
        for rank, place in enumerate(where)
    ]
    try:
        results: list[Any] = client.gather(futures)
        return results
    finally:
        # By what the ranks have met; nobody needs it any more. A scheduler that takes no functions keeps it.
        with contextlib.suppress(Exception):
            client.run_on_scheduler(_forget, name)


def _there(client: Any) -> Sequence[str]:
    """The addresses of the workers of a cluster."""
    if not callable(getattr(client, "nthreads", None)):
        raise ConfigError(f"client={reprlib.repr(client)} is no client of Dask; give a distributed.Client")
    status = getattr(client, "status", "running")
    if status != "running":
        raise ConfigError(f"this Dask client is {status}, and not connected to a cluster; give one that is, such as distributed.Client(address)")
    if getattr(client, "asynchronous", False):
        raise ConfigError("this Dask client is asynchronous, and run waits for its ranks; give one of its own thread, distributed.Client(address)")
    return sorted(client.nthreads())


def _chosen(there: Sequence[str], workers: Optional[Sequence[str]]) -> Sequence[str]:
    if workers is None:
        if not there:
            raise ConfigError("no worker has come to this Dask cluster; client.wait_for_workers(...) waits for them")
        return there
    if isinstance(workers, (str, bytes)):
        raise ConfigError(f"workers={workers!r} is one text; give a list of addresses, rank 0's first")
    chosen = list(workers)
    unknown = [worker for worker in chosen if worker not in there]
    if unknown or not chosen:
        what = f"there is no worker {unknown[0]!r}" if unknown else "workers= is empty"
        known = ", ".join(there[:8]) + (f" and {len(there) - 8} more" if len(there) > 8 else "")
        raise ConfigError(f"{what}; this cluster has {known or 'none'}")
    return chosen


def _as_rank(rank: int, world_size: int, name: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    _here.said = said = Said.here(rank, world_size, name)
    try:
        result = function(*args)
    except BaseException as error:
        _own.end_run(("dask", said), error)
        raise
    else:
        _own.end_run(("dask", said), None)
        return result
    finally:
        del _here.said


def _forget(name: str, dask_scheduler: Any) -> None:
    metadata = getattr(dask_scheduler, "task_metadata", {})
    for key in [key for key in metadata if str(key).startswith(f"fsgather/{name}/")]:
        del metadata[key]


def _forget_these(known: dict[str, bytes], dask_scheduler: Any) -> None:
    metadata = getattr(dask_scheduler, "task_metadata", {})
    for key, value in known.items():
        # What a rank has said since, for the next meeting, stays.
        if metadata.get(key) == value:
            del metadata[key]


class Dask(KeyValue):
    """Introduces ranks by the metadata that the scheduler keeps, where they leave nothing once they have met: a client that has gone by the end of
    the run removes nothing."""

    def __init__(self, rank: int, world_size: int, name: str) -> None:
        super().__init__(rank, world_size, name)
        from distributed import get_client

        self._client = get_client()
        self._known: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self._client.set_metadata([key], value)
        self._known[key] = value

    def get(self, key: str) -> Optional[bytes]:
        value: Optional[bytes] = self._client.get_metadata([key], default=None)
        if value is not None:
            self._known[key] = value
        return value

    def close(self, have_met: bool = False) -> None:
        """As :meth:`KeyValue.close`, and has the scheduler forget by what the ranks have met."""
        super().close(have_met)
        if have_met and self.rank == 0:
            # Nobody waits for that.
            threading.Thread(target=self._forget, name="fsgather-bootstrap", daemon=True).start()

    def _forget(self) -> None:
        with contextlib.suppress(Exception):
            self._client.run_on_scheduler(_forget_these, dict(self._known))


def run_here() -> Optional[Hashable]:
    """The run in which this thread is a rank; a task that :func:`run` has not sent is alone, and helps in no run beside it."""
    said: Optional[Said] = getattr(_here, "said", None)
    if said is not None:
        return said
    return ALONE if is_task_of_dask() else None


def find() -> Optional[Dask]:
    """Whether this is a rank of :func:`run`."""
    said = run_here()
    if not isinstance(said, Said):
        return None
    said.check()
    return Dask(said.rank, said.world_size, said.name)
