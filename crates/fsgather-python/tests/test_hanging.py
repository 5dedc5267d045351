"""What ranks hear of one that does not come: the function that it is in, and what that waits for."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fsgather
from conftest import LIMIT, World

JOB = """
import ctypes, threading, time

def nap():
    time.sleep(1000)

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
    ctypes.PyDLL(None).sleep(1000)

def nested():
    [nap() for _ in range(2)]

def dig():
    def down(levels):
        while not levels:
            pass
        down(levels - 1)
    sys.setrecursionlimit(20_000)
    down(10_000)

communicator = fsgather.Communicator()
communicator.barrier()
if rank == 1:
    tell("here")
    DO()
try:
    communicator.barrier(timeout=4)
except fsgather.Timeout as error:
    stacks = [[list(stack.ranks), stack.text, stack.frames, stack.state, stack.answered] for stack in error.stacks]
    tell([str(error), stacks])
"""


def stacks_of(world: World, what: str, before: str = "", **variables: str) -> tuple[str, list[Any]]:
    """What two ranks alike are told of rank 1, which is at something else."""
    world.start(3, before + JOB.replace("DO()", what + "()"), **variables)
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


def test_of_ten_thousand_functions_the_innermost_ones_are_told_while_they_run(world: World) -> None:
    _, stacks = stacks_of(world, "dig")
    [[ranks, _, frames, state, answered]] = stacks
    assert ranks == [1] and answered and state == "running", stacks
    assert [function for _, _, function in frames] == ["down"] * 12, stacks


NUMBERED = """
import threading
threading.get_ident = lambda: 4711
threading.main_thread()._ident = 4711
"""


@pytest.mark.parametrize("what", ["nap", "count"])
def test_functions_are_told_where_a_package_numbers_threads_in_its_own_way(world: World, what: str) -> None:
    # As `gevent.monkey.patch_all()` does it.
    _, stacks = stacks_of(world, what, NUMBERED)
    [[ranks, _, frames, _, answered]] = stacks
    assert ranks == [1] and answered, stacks
    assert [function for _, _, function in frames] == ["<module>", what], stacks


def test_a_rank_that_is_stopped_is_told_as_such_by_its_neighbours(world: World) -> None:
    world.start(3, JOB.replace("DO()", "nap()"))
    assert world.hear(1) == "here"
    world.signal(1, signal.SIGSTOP)
    told = [world.hear(rank) for rank in (0, 2)]
    world.signal(1, signal.SIGCONT)
    world.kill()
    for text, stacks in told:
        assert stacks == [[[1], "does not answer; its process is stopped", [], "stopped", False]], stacks
        assert "does not answer; its process is stopped" in text


@pytest.mark.parametrize("control", ["tcp", "markers"])
def test_a_rank_0_that_is_stopped_is_told_as_such_by_all_of_its_host(world: World, control: str) -> None:
    # Who is rank 0 here says nothing in the end.
    job = JOB.replace("if rank == 1:", "if rank == 0:").replace("DO()", "nap()")
    world.start(3, job, FSGATHER_CONTROL=control)
    assert world.hear(0) == "here"
    world.signal(0, signal.SIGSTOP)
    told = [world.hear(rank) for rank in (1, 2)]
    world.signal(0, signal.SIGCONT)
    world.kill()
    for text, stacks in told:
        assert "waiting for rank 0 on " in text, text
        assert stacks == [[[0], "does not answer; its process is stopped", [], "stopped", False]], stacks


@pytest.mark.parametrize("control", ["tcp", "markers"])
@pytest.mark.parametrize("what", ["nap", "count", "locked", "keep_interpreter"])
def test_a_rank_0_that_does_not_come_is_told_as_any_other(world: World, what: str, control: str) -> None:
    job = JOB.replace("if rank == 1:", "if rank == 0:").replace("DO()", what + "()")
    world.start(3, job, FSGATHER_CONTROL=control)
    assert world.hear(0) == "here"
    told = [world.hear(rank) for rank in (1, 2)]
    world.kill()
    assert told[0] == told[1]
    text, [[ranks, line, frames, _, answered]] = told[0]
    assert ranks == [0] and answered, text
    assert [function for _, _, function in frames] == ["<module>", what], frames
    assert text.endswith(f"\n  rank 0: {line}"), text


@pytest.mark.parametrize("silent", [0, 1])
def test_nothing_is_told_where_that_is_turned_off(world: World, silent: int) -> None:
    job = f"import os\nif os.environ['FSGATHER_RANK'] == '{silent}':\n    os.environ['FSGATHER_STACKS'] = '0'\n" + JOB
    world.start(3, job.replace("DO()", "nap()"))
    assert world.hear(1) == "here"
    text, stacks = world.hear(0)
    world.kill()
    assert stacks == [] and "\n" not in text


BRANCHES = """
def save():
    world.all_gather("state")

def evaluate():
    world.barrier()

def branch():
    save() if rank == 1 else evaluate()

communicator = fsgather.Communicator()
world = communicator.group([1, 2]) if GROUP and rank else communicator
communicator.barrier()
if GROUP and rank == 0:
    communicator.barrier()
else:
    try:
        branch()
    except fsgather.Desync as error:
        tell([str(error), list(error.ranks), [[list(stack.ranks), stack.text, stack.frames] for stack in error.stacks]])
"""


@pytest.mark.parametrize("control", ["tcp", "markers"])
@pytest.mark.parametrize("group", [False, True])
def test_ranks_in_another_branch_of_the_program_are_told_with_its_functions(world: World, group: bool, control: str) -> None:
    world.start(3, BRANCHES.replace("GROUP", str(group)), FSGATHER_CONTROL=control)
    members = [1, 2] if group else [0, 1, 2]
    told = [world.hear(rank) for rank in members]
    world.kill()
    assert told[1:] == told[:-1]
    text, ranks, stacks = told[0]
    assert 1 in ranks and set(ranks) <= set(members)
    lines = (world.directory / "program.py").read_text().splitlines()
    place = {name: f"program.py:{lines.index(call) + 1}" for name, call in (("save", '    world.all_gather("state")'), ("evaluate", "    world.barrier()"))}
    functions = {rank: [function for _, _, function in frames] for ranks, _, frames in stacks for rank in ranks}
    assert functions[1] == ["<module>", "branch", "save"], stacks
    other = next(rank for rank in ranks if rank != 1)
    assert functions[other] == ["<module>", "branch", "evaluate"], stacks
    assert f": {place['save']} in save" in text, text
    assert f": {place['evaluate']} in evaluate" in text, text


def test_in_different_calls_no_other_thread_is_told_instead_of_the_one_that_called(world: World) -> None:
    world.start(
        2,
        """
        import threading

        communicator = fsgather.Communicator()
        pair = communicator.group([0, 1])
        communicator.barrier()

        def in_thread():
            try:
                pair.all_gather("state") if rank else pair.barrier()
            except fsgather.Desync as error:
                tell(str(error))

        def in_main():
            communicator.barrier()

        # Only rank 0 is in two calls at once.
        thread = threading.Thread(target=in_thread)
        thread.start() if rank == 0 else in_thread()
        in_main()
        """,
    )
    text = world.hear(1)
    assert "in in_main" not in text and "rank 1: program.py:" in text.splitlines()[-1], text


def test_stacks_go_with_a_pickled_error() -> None:
    import pickle

    error = fsgather.Timeout("text")
    error.stacks = (fsgather.Stack((1, 2), "text", (("a.py", 3, "f"),), None, True),)
    assert pickle.loads(pickle.dumps(error)).stacks == error.stacks


MANY = """
import ctypes, pickle, platform, socket, threading, time, zlib

def nap():
    time.sleep(1000)

def begin():
    global communicator, pair
    communicator = fsgather.Communicator()
    pair = communicator.group([5, 6]) if rank in (5, 6) else None
    communicator.barrier()

def without_main_thread():
    begin()
    threading.Thread(target=nap).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)

def in_a_thread():
    def all_of_it():
        begin()
        nap()
    threading.Thread(target=all_of_it).start()

def by_a_pool():
    from concurrent.futures import ThreadPoolExecutor
    ThreadPoolExecutor(1).submit(begin).result()
    nap()

def forged():
    begin()
    name = "f (running)\\nWARNING: rank 0 is to blame"
    eval(nap.__code__.replace(co_name=name))

def long_name():
    begin()
    eval(nap.__code__.replace(co_name="n" * 5000, co_filename="/x/" + "d" * 5000 + "/job.py"))

def listening():
    begin()
    listener = socket.create_server(("127.0.0.1", 0))
    tell(listener.getsockname()[1])
    listener.accept()

def waits_for_another():
    begin()
    pair.barrier()

def runs_python_elsewhere():
    os.execv(sys.executable, [sys.executable, os.environ["FSGATHER_DIR"] + "/elsewhere.py"])

def compresses():
    begin()
    while True:
        zlib.compress(large, 9)

def pickles():
    begin()
    while True:
        pickle.dumps(many)

def in_another_pid_namespace():
    os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", sys.executable, os.environ["FSGATHER_DIR"] + "/apart.py"])

large = os.urandom(1 << 20) * 64 if rank == 9 else None
many = [[number] for number in range(1 << 20)] if rank == 10 else None
ways = [None, without_main_thread, in_a_thread, forged, long_name, listening, waits_for_another, runs_python_elsewhere, by_a_pool]
ways += [compresses, pickles, in_another_pid_namespace]
if ways[rank]:
    ways[rank]()
else:
    begin()
    try:
        communicator.barrier(timeout=4)
    except fsgather.Timeout as error:
        tell([str(error), [[list(stack.ranks), stack.text, stack.frames] for stack in error.stacks]])
"""

ELSEWHERE = """
import _thread

def nap():
    import time
    time.sleep(1000)

def begin():
    global communicator
    communicator = fsgather.Communicator()
    communicator.barrier()

def all_of_it():
    # Who imports this is the main thread of Python, to 3.12.
    global fsgather
    import threading, fsgather
    first = threading.Thread(target=begin)
    first.start()
    first.join()
    nap()

def wait_for_it():
    never = _thread.allocate_lock()
    never.acquire()
    never.acquire()

_thread.start_new_thread(all_of_it, ())
wait_for_it()
"""


APART = """
import time
import fsgather

def nap():
    time.sleep(1000)

communicator = fsgather.Communicator()
communicator.barrier()
nap()
"""


def test_each_rank_is_told_by_the_thread_that_counts_and_in_one_line(world: World) -> None:
    (world.directory / "elsewhere.py").write_text(ELSEWHERE)
    (world.directory / "apart.py").write_text(APART)
    apart = subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode == 0
    ranks = 12 if apart else 11
    world.start(ranks, MANY)
    port = world.hear(5)
    text, stacks = world.hear(0)
    world.kill()
    told = {rank: (line, frames) for ranks, line, frames in stacks for rank in ranks}
    assert sorted(told) == list(range(1, ranks)), stacks
    # Each rank has a line of its own, and nothing else begins one.
    lines = text.splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == [f"rank {rank}" for rank in range(1, ranks)], text
    napping = r"(?:program|elsewhere).py:\d+ in nap \(waiting, in (clock_nanosleep|pselect6|select)\)"
    # Before 3.11 Python does not say which thread of the kernel it is.
    assert re.fullmatch(r"program.py:\d+ in nap( \(waiting, in \w+\))?; its main thread has ended", told[1][0]), told[1]
    assert re.fullmatch(napping, told[2][0]), told[2]
    assert re.fullmatch(napping, told[8][0]), told[8]
    forged = napping.replace("nap", re.escape("f (running)?WARNING: rank 0 is to blame"))
    assert re.fullmatch(forged, told[3][0]), told[3]
    assert re.fullmatch(r"job.py:\d+ in n+\.\.\.n+ \(waiting, in \w+\)", told[4][0]), told[4]
    assert [function for _, _, function in told[4][1]][:2] == ["<module>", "long_name"]
    listening = rf"socket.py:\d+ in accept, called from program.py:\d+ in listening \(waiting, in accept4 on tcp listening on 127.0.0.1:{port}\)"
    assert re.fullmatch(listening, told[5][0]), told[5]
    waits = r"program.py:\d+ in waits_for_another \(waiting, in \w+.*\)"
    assert re.fullmatch(waits, told[6][0]), told[6]
    # The function and the system call are of one thread, whichever Python takes for its main one.
    elsewhere = r"elsewhere.py:\d+ in wait_for_it \(waiting, in futex\)"
    assert re.fullmatch(f"{napping}|{elsewhere}", told[7][0]), told[7]
    # A function of C is reported as the Python function that called it.
    assert re.fullmatch(r"program.py:\d+ in compresses \(running\)", told[9][0]), told[9]
    assert re.fullmatch(r"program.py:\d+ in pickles \(running\)(, holding the interpreter's lock)?", told[10][0]), told[10]
    if apart:
        assert re.fullmatch(napping.replace("program", "apart"), told[11][0]), told[11]


def test_the_place_of_a_call_that_a_thread_was_told_to_make_is_that_thread() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from fsgather._sites import caller

    with ThreadPoolExecutor(1, "loader") as pool:
        assert pool.submit(caller).result() == "thread loader_0"
        assert pool.submit(lambda: caller()).result().startswith("test_hanging.py:")


OWN_MINOR = sys.version_info.minor
MINORS = [minor if minor == OWN_MINOR else pytest.param(minor, marks=pytest.mark.bed("other Pythons")) for minor in range(9, 15)]


@pytest.mark.parametrize("minor", MINORS)
def test_of_a_thread_that_goes_down_and_up_the_functions_are_told_that_it_does_not_leave(minor: int) -> None:
    python = sys.executable if minor == OWN_MINOR else shutil.which(f"python3.{minor}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip(f"there is no Python 3.{minor}")
    recursing = Path(__file__).with_name("recursing.py")
    ended = subprocess.run([python, str(recursing), "30"], capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stderr
    # A look that finds no five readings that begin alike tells nothing, rather than what may be wrong.
    assert int(ended.stdout) >= 30, ended.stdout


@pytest.mark.parametrize("minor", MINORS)
def test_a_thread_that_runs_is_never_seen_where_it_was_not(minor: int) -> None:
    python = sys.executable if minor == OWN_MINOR else shutil.which(f"python3.{minor}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip(f"there is no Python 3.{minor}")
    sampled = Path(__file__).with_name("sampled.py")
    ended = subprocess.run([python, str(sampled), "300"], capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stderr
    looks, named = (int(number) for number in re.findall(r"(\d+) looks, (\d+) with", ended.stdout)[0])
    # How many depends on how often the thread rests; what counts is that none was wrong.
    assert named > looks * 0.01, ended.stdout
