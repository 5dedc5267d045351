"""Ranks on the workers of a real Dask cluster on this machine: each run is a world of its own."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import distributed
import fsgather
import pytest
from conftest import LIMIT, LONGER
from fsgather.bootstraps import dask

# One worker of pytest starts the cluster for all of them.
pytestmark = pytest.mark.xdist_group("dask")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A cluster of three processes, which Slurm seems to have started as jobs of one task."""
    told = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
    told.update(FSGATHER_TIMEOUT=LONGER, FSGATHER_JOIN_TIMEOUT=LONGER)
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        with distributed.LocalCluster(n_workers=3, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster:
            with distributed.Client(cluster) as connected:
                yield connected
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def gathered(word: str) -> tuple[int, int, list[Any]]:
    """What this rank is by the functions of the package, and what they gather."""
    world = fsgather.default_communicator()
    return world.rank, world.world_size, fsgather.all_gather((word, world.rank))


def expected(word: str, ranks: int) -> list[tuple[int, int, list[Any]]]:
    return [(rank, ranks, [(word, other) for other in range(ranks)]) for rank in range(ranks)]


def test_each_run_has_its_own_ranks_whatever_was_before_and_whatever_slurm_has_said(client: Any) -> None:
    workers = sorted(client.nthreads())
    assert dask.run(client, gathered, "first") == expected("first", 3)
    assert dask.run(client, gathered, "reversed", workers=workers[::-1]) == expected("reversed", 3)
    assert dask.run(client, gathered, "fewer", workers=workers[1:]) == expected("fewer", 2)
    assert dask.run(client, gathered, "again") == expected("again", 3)


def test_a_client_that_cannot_send_and_a_number_of_tries_that_is_none_are_told(client: Any) -> None:
    for wrong in (-1, True, "3", 0.5, None):
        with pytest.raises(fsgather.ConfigError, match="retries="):
            dask.run(client, gathered, "never", retries=wrong)  # type: ignore[arg-type]
    with pytest.raises(fsgather.ConfigError, match="no client of Dask"):
        dask.run(None, gathered, "never")
    closed = distributed.Client(client.scheduler.address)
    closed.close()
    with pytest.raises(fsgather.ConfigError, match="this Dask client is closed, and not connected to a cluster"):
        dask.run(closed, gathered, "never")

    async def asked() -> None:
        async with distributed.Client(client.scheduler.address, asynchronous=True) as other:
            with pytest.raises(fsgather.ConfigError, match="this Dask client is asynchronous"):
                dask.run(other, gathered, "never")

    asyncio.run(asked())


def _alone() -> tuple[int, list[str]]:
    """The world size of a task that ``dask.run`` has not sent, and what is said of that."""
    import logging

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("fsgather")
    logger.addHandler(handler)
    # As where no launcher has started the worker.
    slurm = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("SLURM_")}
    try:
        for _ in range(2):
            with fsgather.Communicator() as world:
                size = world.world_size
    finally:
        os.environ.update(slurm)
        logger.removeHandler(handler)
    return size, told


def test_a_task_that_run_has_not_sent_says_that_it_is_alone(client: Any) -> None:
    said = "this is a task of Dask that fsgather.bootstraps.dask.run has not sent, so it is a world of one"
    world_size, warnings = client.submit(_alone, pure=False).result(LIMIT)
    assert (world_size, warnings[0]) == (1, said)


def test_two_runs_at_once_do_not_mix(client: Any) -> None:
    workers = sorted(client.nthreads())[:2]
    with ThreadPoolExecutor(2) as both:
        runs = [both.submit(dask.run, client, gathered, word, workers=workers) for word in ("one", "other")]
        assert [run.result(LIMIT) for run in runs] == [expected("one", 2), expected("other", 2)]


def _fails_once(notes: str) -> list[int]:
    world = fsgather.default_communicator()
    fsgather.barrier()
    if world.rank == 1 and not os.path.exists(notes):
        open(notes, "w", encoding="utf-8").close()
        raise ValueError("bad luck")
    return fsgather.all_gather(world.rank)


def test_a_rank_that_raises_is_named_by_the_others_and_all_meet_again(client: Any, tmp_path: Any) -> None:
    with pytest.raises((ValueError, fsgather.PeerFailedError), match="bad luck"):
        dask.run(client, _fails_once, str(tmp_path / "without"))
    assert dask.run(client, _fails_once, str(tmp_path / "with"), retries=2) == [[0, 1, 2]] * 3


def _gets_over_it() -> str:
    world = fsgather.default_communicator()
    try:
        if world.rank == 0:
            raise RuntimeError("not today")
        fsgather.barrier()
    except RuntimeError as error:
        world.fail(error)
        return "left"
    except fsgather.PeerFailedError as error:
        return "told" if "not today" in str(error) else str(error)
    return "nothing"


def test_who_gets_over_a_failure_returns_what_it_returns(client: Any) -> None:
    assert dask.run(client, _gets_over_it) == ["left", "told", "told"]


def _helped() -> list[int]:
    rank = fsgather.default_communicator().rank
    with ThreadPoolExecutor(1) as helper:
        return helper.submit(fsgather.all_gather, rank).result()


def test_a_thread_that_a_rank_starts_helps_it(client: Any) -> None:
    assert dask.run(client, _helped) == [[0, 1, 2]] * 3


def test_nothing_stays_with_the_scheduler(client: Any) -> None:
    dask.run(client, gathered, "x")
    left = client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.task_metadata])
    assert not [key for key in left if key.startswith("fsgather")]


@pytest.mark.parametrize(
    ("workers", "told"),
    [("tcp://127.0.0.1:1", "is one text; give a list"), ([], "workers= is empty"), (["tcp://127.0.0.1:1"], "there is no worker 'tcp:")],
)
def test_workers_that_are_none_are_told(client: Any, workers: Any, told: str) -> None:
    with pytest.raises(fsgather.ConfigError, match=told):
        dask.run(client, gathered, "x", workers=workers)


def test_ranks_may_be_threads_of_one_process() -> None:
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        with distributed.Client(cluster) as client:
            assert dask.run(client, gathered, "threads") == expected("threads", 2)
            assert dask.run(client, gathered, "again") == expected("again", 2)


def _waits_for(notes: str) -> list[Any]:
    gathered = fsgather.all_gather(fsgather.default_communicator().rank)
    open(f"{notes}/here-{gathered}-{os.getpid()}", "w", encoding="utf-8").close()
    while not os.path.exists(f"{notes}/go"):
        time.sleep(0.01)
    with ThreadPoolExecutor(1) as helper:
        return [gathered, helper.submit(fsgather.all_gather, "helped").result()]


def _gathers_beside() -> list[str]:
    return fsgather.all_gather("beside")


def test_a_task_beside_a_run_is_alone_and_the_threads_of_the_run_are_not(client: Any, tmp_path: Any) -> None:
    workers = sorted(client.nthreads())[:2]
    with ThreadPoolExecutor(1) as aside:
        run = aside.submit(dask.run, client, _waits_for, str(tmp_path), workers=workers)
        while len(list(tmp_path.glob("here-*"))) < 2 and not run.done():
            time.sleep(0.01)
        try:
            beside = [client.submit(_gathers_beside, workers=[worker], pure=False) for worker in workers]
            assert [task.result(LIMIT) for task in beside] == [["beside"]] * 2
        finally:
            (tmp_path / "go").touch()
        assert run.result(LIMIT) == [[[0, 1], ["helped", "helped"]]] * 2


def until_let_go(directory: str) -> list[Any]:
    """Meets, says so, and goes on when it is told."""
    world = fsgather.default_communicator()
    fsgather.barrier()
    open(os.path.join(directory, f"met-{world.rank}"), "w").close()
    while not os.path.exists(os.path.join(directory, "go")):
        time.sleep(0.01)
    return fsgather.all_gather(world.rank)


def kept_by_scheduler(dask_scheduler: Any) -> list[str]:
    """By what ranks meet."""
    return [str(key) for key in dask_scheduler.task_metadata if str(key).startswith("fsgather/")]


def test_a_client_that_is_closed_while_its_ranks_run_leaves_nothing_with_the_scheduler(client: Any, tmp_path: Any) -> None:
    leaving = distributed.Client(client.scheduler.address)
    with ThreadPoolExecutor() as beside:
        run = beside.submit(dask.run, leaving, until_let_go, str(tmp_path))
        while len(list(tmp_path.glob("met-*"))) < 3 and not run.done():
            time.sleep(0.01)
        leaving.close()
        assert run.exception(timeout=LIMIT) is not None
    (tmp_path / "go").touch()
    while client.run_on_scheduler(kept_by_scheduler):
        time.sleep(0.05)
