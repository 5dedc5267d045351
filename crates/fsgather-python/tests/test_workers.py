"""Worker processes of a rank do not join in its place; ranks that launchers start as children do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from conftest import World

REFUSED = "this is a worker process ("


def refused(told: list[list[Any]], workers: int = 1) -> None:
    """Each rank's workers were told whose they are."""
    for rank, (said, gathered) in enumerate(told):
        assert len(said) == workers, said
        for text in said:
            assert text.startswith(REFUSED) and f") of rank {rank}; only the rank itself can gather" in text, text
        assert gathered == list(range(len(told)))


WORK = """
        def work(n):
            try:
                return fsgather.all_gather(n)
            except fsgather.ConfigError as error:
                return str(error)

        def done(said):
            tell(said)
            tell(fsgather.all_gather(rank, timeout=60))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("before", [False, True])
def test_workers_of_a_pool(world: World, method: str, before: bool) -> None:
    told = world.start(
        2,
        WORK
        + f"""
        if __name__ == "__main__":
            import multiprocessing

            if {before}:
                fsgather.barrier()
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                done(pool.map(work, [1, 2], chunksize=1))
        """,
    ).told()
    refused(told, 2)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_concurrent_futures(world: World, method: str) -> None:
    told = world.start(
        2,
        WORK
        + f"""
        if __name__ == "__main__":
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            with ProcessPoolExecutor(1, multiprocessing.get_context({method!r})) as pool:
                done(list(pool.map(work, [1])))
        """,
    ).told()
    refused(told)


def test_a_forked_child(world: World) -> None:
    told = world.start(
        2,
        WORK
        + """
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, work(1).encode())
            os._exit(0)
        os.wait()
        done([os.read(reading, 10_000).decode()])
        """,
    ).told()
    refused(told)


def test_a_program_that_a_rank_starts(world: World) -> None:
    told = world.start(
        2,
        WORK
        + """
        import subprocess

        fsgather.barrier()
        source = "import fsgather; fsgather.all_gather(1)"
        ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
        done([ended.stderr.strip().splitlines()[-1].removeprefix("fsgather.ConfigError: ")])
        """,
    ).told()
    refused(told)


def test_joblib(world: World) -> None:
    told = world.start(
        2,
        """
        import joblib

        def work(n):
            import fsgather

            try:
                return fsgather.all_gather(n)
            except fsgather.ConfigError as error:
                return str(error)

        if __name__ == "__main__":
            tell(joblib.Parallel(n_jobs=2)(joblib.delayed(work)(n) for n in range(2)))
            tell(fsgather.all_gather(rank, timeout=60))
        """,
    ).told()
    refused(told, 2)


def test_a_worker_that_says_who_it_is_may_join(world: World) -> None:
    told = world.start(
        2,
        """
        import multiprocessing

        def work(queue):
            with fsgather.Communicator(rank=rank, world_size=2, job="workers") as communicator:
                queue.put(communicator.all_gather(rank))

        if __name__ == "__main__":
            fsgather.barrier()
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            worker = context.Process(target=work, args=(queue,))
            worker.start()
            tell(queue.get())
            worker.join()
            fsgather.barrier()
        """,
    ).told()
    assert told == [[[0, 1]]] * 2


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("says_it", ["in each child", "before each child"])
def test_ranks_that_a_program_starts_itself(world: World, method: str, says_it: str) -> None:
    if method == "forkserver" and says_it == "before each child":
        pytest.skip("a fork server has the variables of its own start")
    program = world.directory / "launcher.py"
    program.write_text(
        f"""
import multiprocessing, os
import fsgather

def main(rank, queue):
    if {says_it == "in each child"}:
        os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    queue.put((rank, fsgather.all_gather(rank), fsgather.all_gather(rank + 1)))
    fsgather.close()

if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    children = [context.Process(target=main, args=(rank, queue)) for rank in range(2)]
    for rank, child in enumerate(children):
        if {says_it != "in each child"}:
            os.environ.update(RANK=str(rank), WORLD_SIZE="2")
        child.start()
    print(sorted(queue.get(timeout=120) for child in children))
    for child in children:
        child.join()
"""
    )
    kept = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(path for path in sys.path if path)}
    kept.update(FSGATHER_DIR=str(world.directory), FSGATHER_JOB="own", FSGATHER_JOIN_TIMEOUT="60s")
    ended = subprocess.run([sys.executable, str(program)], env=kept, capture_output=True, text=True, timeout=150)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[(0, [0, 1], [1, 2]), (1, [0, 1], [1, 2])]\n"


def test_ranks_that_the_command_starts_from_within_a_rank(world: World) -> None:
    told = world.start(
        1,
        """
        import subprocess

        fsgather.barrier()
        source = "import fsgather; print(fsgather.all_gather(1))"
        inner = [sys.executable, "-m", "fsgather", "run", "-n", "2", "--", sys.executable, "-c", source]
        ended = subprocess.run(inner, capture_output=True, text=True)
        tell([ended.returncode, ended.stdout.count("[1, 1]"), ended.stderr])
        """,
    ).told()
    assert told[0][0][:2] == [0, 2], told
