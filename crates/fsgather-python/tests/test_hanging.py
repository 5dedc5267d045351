"""What ranks hear of one that does not come: the function that it is in, and what that waits for."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fsgather
from conftest import World

TIMEOUT = "4s"

JOB = """
import ctypes, threading, time

def nap():
    time.sleep(120)

def count():
    while True:
        pass

def call():
    def nothing():
        pass
    while True:
        nothing()

def locked():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def read():
    end, _ = os.pipe()
    os.read(end, 1)

def keep_interpreter():
    ctypes.PyDLL(None).sleep(120)

def nested():
    [nap() for _ in range(2)]

communicator = fsgather.Communicator()
communicator.barrier()
if rank == 1:
    tell("here")
    DO()
try:
    communicator.barrier()
except fsgather.Timeout as error:
    stacks = [[list(stack.ranks), stack.text, stack.frames, stack.state, stack.answered] for stack in error.stacks]
    tell([str(error), stacks])
"""


def stacks_of(world: World, what: str, **variables: str) -> tuple[str, list[Any]]:
    """What two ranks alike are told of rank 1, which is at something else."""
    world.start(3, JOB.replace("DO()", what + "()"), FSGATHER_TIMEOUT=TIMEOUT, **variables)
    assert world.hear(1) == "here"
    told = [world.hear(rank) for rank in (0, 2)]
    world.kill()
    assert told[0] == told[1]
    text, stacks = told[0]
    return text, stacks


@pytest.mark.parametrize("control", ["tcp", "markers"])
@pytest.mark.parametrize(
    "what, call",
    [
        ("nap", "clock_nanosleep|pselect6|select"),
        ("count", None),
        ("call", None),
        ("locked", "futex"),
        ("read", "read on a pipe"),
        ("keep_interpreter", "clock_nanosleep|nanosleep"),
    ],
)
def test_every_rank_is_told_the_function_and_what_it_waits_for(world: World, what: str, call: Any, control: str) -> None:
    text, stacks = stacks_of(world, what, FSGATHER_CONTROL=control)
    [[ranks, line, frames, state, answered]] = stacks
    assert ranks == [1] and answered, stacks
    names = [function for _, _, function in frames]
    assert names[:2] == ["<module>", what] and (len(names) == 2 or what == "call"), stacks
    program = world.directory / "program.py"
    lines = program.read_text().splitlines()
    start = lines.index(f"def {what}():")
    file, number, _ = frames[1]
    assert file == str(program)
    assert number > start + 1 and all(line.startswith("    ") for line in lines[start + 1 : number]), number
    if len(names) == 2:
        assert line == f"program.py:{number} in {what} ({state})" or "interpreter" in line
    if call is None:
        assert state == "running", state
    else:
        assert re.fullmatch(f"waiting, in ({call})", state), state
    assert text.endswith(f"\n  rank 1: {line}"), text


def test_a_rank_that_is_stopped_is_told_as_such_by_its_neighbours(world: World) -> None:
    world.start(3, JOB.replace("DO()", "nap()"), FSGATHER_TIMEOUT=TIMEOUT)
    assert world.hear(1) == "here"
    world.signal(1, signal.SIGSTOP)
    told = [world.hear(rank) for rank in (0, 2)]
    world.signal(1, signal.SIGCONT)
    world.kill()
    for text, stacks in told:
        assert stacks == [[[1], "does not answer; its process is stopped", [], "stopped", False]], stacks
        assert "does not answer; its process is stopped" in text


@pytest.mark.parametrize("silent", [0, 1])
def test_nothing_is_told_where_that_is_turned_off(world: World, silent: int) -> None:
    job = f"import os\nif os.environ['FSGATHER_RANK'] == '{silent}':\n    os.environ['FSGATHER_STACKS'] = '0'\n" + JOB
    world.start(3, job.replace("DO()", "nap()"), FSGATHER_TIMEOUT=TIMEOUT)
    assert world.hear(1) == "here"
    text, stacks = world.hear(0)
    world.kill()
    assert stacks == [] and "\n" not in text


def test_stacks_go_with_a_pickled_error() -> None:
    import pickle

    error = fsgather.Timeout("text")
    error.stacks = (fsgather.Stack((1, 2), "text", (("a.py", 3, "f"),), None, True),)
    assert pickle.loads(pickle.dumps(error)).stacks == error.stacks


@pytest.mark.parametrize("minor", range(9, 14))
def test_a_thread_that_runs_is_never_seen_where_it_was_not(minor: int) -> None:
    python = shutil.which(f"python3.{minor}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip(f"there is no Python 3.{minor}")
    sampled = Path(__file__).with_name("sampled.py")
    ended = subprocess.run([python, str(sampled), "300"], capture_output=True, text=True, timeout=170)
    assert ended.returncode == 0, ended.stderr
    looks, named = (int(number) for number in re.findall(r"(\d+) looks, (\d+) with", ended.stdout)[0])
    # How many depends on how often the thread rests; what counts is that none was wrong.
    assert named > looks * 0.01, ended.stdout
