"""Other processes beside the ranks, the end of processes, and what importing costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from conftest import LIMIT, World


def test_prints_of_a_program_without_standard_streams_go_nowhere(world: World) -> None:
    told = world.start(
        2,
        """
        kept = os.dup(1)
        for stream in range(3):
            os.close(stream)
        fsgather.barrier()
        streams = [os.readlink(f"/proc/self/fd/{stream}") for stream in range(3)]
        written = [os.write(stream, b"printed") for stream in range(1, 3)]
        parts = fsgather.all_gather(bytes(300_000))
        os.dup2(kept, 1)
        tell([streams, written, [len(part) for part in parts]])
        """,
        FSGATHER_SHARED_MEMORY="0",
    ).told()
    assert told == [[[["/dev/null"] * 3, [7, 7], [300_000] * 2]]] * 2


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_disturb_nothing(world: World, method: str) -> None:
    told = world.start(
        2,
        f"""
        import multiprocessing

        def work(n):
            try:
                return communicator.all_gather(n) if "communicator" in globals() else n
            except fsgather.Error as error:
                return type(error).__name__

        if __name__ == "__main__":
            communicator = fsgather.Communicator()
            communicator.barrier()
            context = multiprocessing.get_context({method!r})
            with context.Pool(2) as pool:
                tell(pool.map(work, [1, 2]))
            assert communicator.all_gather(rank) == [0, 1]
            communicator.close()
        """,
    ).told()
    expected = ["ConfigError", "ConfigError"] if method == "fork" else [1, 2]
    assert told == [[expected]] * 2
    assert world.left() in ([], ["all_gather_via_filesys"])


ALONE = """
import fsgather

for number in range(2):
    print(fsgather.all_gather(number))
    fsgather.close()
"""


def run_alone(**variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a process that no launcher has started."""
    launchers = ("FSGATHER_", "SLURM_", "OMPI_", "PMI", "RANK", "WORLD_SIZE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    return subprocess.run([sys.executable, "-c", ALONE], env={**environment, **variables}, capture_output=True, text=True, timeout=LIMIT)


def test_process_without_a_launcher_warns_once() -> None:
    ended = run_alone()
    assert ended.stdout == "[0]\n[1]\n"
    (warning,) = ended.stderr.splitlines()
    assert warning.startswith("fsgather: this process works alone, in a world of one: ")
    assert run_alone(FSGATHER_WORLD_SIZE="1").stderr == ""


def test_partly_passed_launcher_variables_are_an_error() -> None:
    ended = run_alone(SLURM_JOB_ID="7", SLURM_PROCID="1")
    assert ended.stdout == ""
    assert "ConfigError: this process is one of several, but which one of how many is not known: SLURM_PROCID=1 " in ended.stderr


def test_a_forked_child_that_ends_by_itself_leaves_the_world_alone(world: World) -> None:
    told = world.start(
        2,
        """
        communicator = fsgather.Communicator()
        communicator.barrier()
        child = os.fork()
        if child == 0:
            sys.exit(0)  # runs what is registered for the end, as the parent will
        assert os.waitpid(child, 0)[1] == 0
        assert communicator.all_gather(bytes([rank]) * 100_000)[1][0] == 1
        tell("done")
        """,
    ).told()
    assert told == [["done"]] * 2
    assert world.left() in ([], ["all_gather_via_filesys"])


def test_ranks_that_end_without_closing_leave_nothing_behind(world: World) -> None:
    told = world.start(
        3,
        """
        gathered = fsgather.compat.all_gather_via_filesys(bytes([rank]) * 100_000)
        tell([part[0] for part in gathered])
        """,
    ).told()
    assert told == [[[0, 1, 2]]] * 3
    assert world.left() in ([], ["all_gather_via_filesys"])


def test_what_the_library_says_goes_to_logging(world: World) -> None:
    told = world.start(
        2,
        """
        import logging

        records = []

        class Keeping(logging.Handler):
            def emit(self, record):
                records.append([record.name.split(".")[0], record.levelname])

        logger = logging.getLogger("fsgather")
        logger.addHandler(Keeping())
        logger.setLevel(logging.DEBUG)
        fsgather.barrier()
        tell(records)
        """,
        FSGATHER_LOG="debug",
    ).told()
    for records in told:
        assert ["fsgather", "DEBUG"] in records[0]


def test_the_variable_shows_what_is_said_where_no_logging_is_set_up(world: World) -> None:
    quiet, loud = "fsgather.barrier()", {"FSGATHER_LOG": "debug"}
    ended = world.start(1, quiet + "; fsgather.Communicator(rank=0, world_size=1).barrier()", **loud).ends()
    assert ended[0].code == 0
    assert "fsgather: DEBUG: setting FSGATHER_TRANSPORT: auto (default)" in ended[0].err
    call = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z fsgather: DEBUG: barrier #1 \S+:\d+  1 rank  \d+\.\d\d s \(waited "
    assert re.search(call, ended[0].err, re.MULTILINE), ended[0].err


def test_a_wrong_filter_is_named(world: World) -> None:
    ended = world.start(1, "fsgather.barrier()", FSGATHER_LOG="fsgather=loud").ends()
    assert ended[0].code == 1
    assert "FSGATHER_LOG" in ended[0].err and "fsgather=debug" in ended[0].err


def test_threads_go_on_while_one_waits(world: World) -> None:
    told = world.start(
        2,
        """
        import threading, time

        communicator = fsgather.Communicator()
        communicator.barrier()
        if rank == 1:
            waiting = threading.Thread(target=communicator.barrier)
            waiting.start()
            for turn in range(100):
                time.sleep(0.001)
            tell(waiting.is_alive())
            open(os.environ["FSGATHER_DIR"] + "/go.py", "w").close()
            waiting.join()
        else:
            wait_for_go()
            communicator.barrier()
        """,
    ).told()
    assert told[1] == [True]


def test_importing_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, fsgather; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ranks_of_a_part_of_a_job_are_called_by_their_numbers_in_it(world: World) -> None:
    told = world.start(
        2,
        """
        import time

        record = os.environ["FSGATHER_DIR"] + "/record"

        def publish(found):
            with open(record + ".draft", "wb") as file:
                file.write(found)
            os.rename(record + ".draft", record)

        def fetch(seconds):
            while not os.path.exists(record):
                time.sleep(0.01)
            return open(record, "rb").read()

        part = fsgather.Communicator._meet(rank, 2, publish, fetch, numbers=[3, 7])
        assert part.rank == rank and part.all_gather(rank) == [0, 1]
        failed = os.environ["FSGATHER_DIR"] + "/failed"
        while rank == 1 and not os.path.exists(failed):
            time.sleep(0.01)
        try:
            part.barrier(timeout=3)
        except fsgather.TimeoutError as error:
            open(failed, "w").close()
            tell([str(error), list(error.missing), [number for stack in error.stacks for number in stack.ranks]])
        """,
    ).told()
    assert told[0] == told[1], told
    ((text, missing, stacks),) = told[0]
    assert "waiting for rank 7 on " in text and "\n  rank 7: " in text, text
    assert missing == stacks == [7], (missing, stacks)
