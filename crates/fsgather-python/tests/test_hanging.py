"""Tests what errors report about a rank that does not come: its function, and what that waits for."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fsgather
from conftest import LIMIT, World

JOB = """
import ctypes, re, threading, time

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

def match():
    re.match("(a+)+b", "a" * 60)

def sleep_with_lock():
    ctypes.PyDLL(None).sleep(1000)

def lock_held_by_thread():
    threading.Thread(target=match, daemon=True).start()
    nap()

def fork():
    if os.fork() == 0:
        os._exit(0)
    nap()

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
if rank == LATE:
    tell("here")
    DO()
try:
    communicator.barrier(timeout=TIMEOUT)
except fsgather.TimeoutError as error:
    stacks = [[list(stack.ranks), stack.text, stack.frames, stack.state, stack.answered] for stack in error.stacks]
    tell([str(error), stacks])
"""


def stacks_of(world: World, what: str, before: str = "", late: int = 1, **variables: str) -> tuple[str, list[Any]]:
    """Returns what two ranks report alike about a late rank, which does something else."""
    others = [rank for rank in range(3) if rank != late]
    # A rank has half of the time-out to answer, which is too short on a busy machine.
    for timeout in (4, 12, 60):
        job = JOB.replace("DO()", what + "()").replace("LATE", str(late)).replace("TIMEOUT", str(timeout))
        world.start(3, before + job, **variables)
        assert world.hear(late) == "here"
        told = [world.hear(rank) for rank in others]
        world.kill()
        world.ends()
        world.ranks.clear()
        assert told[0] == told[1]
        text, stacks = told[0]
        if all(answered for *_, answered in stacks):
            break
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
    ],
)
def test_error_names_function_and_system_call(world: World, what: str, call: Any, control: str) -> None:
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
        assert line == f"program.py:{number} in {what} ({state})"
    if call is None:
        assert state == "running", state
    else:
        assert re.fullmatch(f"waiting, in ({call})", state), state
    assert text.endswith(f"\n  rank 1: {line}"), text


def test_error_names_innermost_functions_of_a_deep_stack(world: World) -> None:
    _, stacks = stacks_of(world, "dig")
    [[ranks, _, frames, state, answered]] = stacks
    assert ranks == [1] and answered and state == "running", stacks
    assert [function for _, _, function in frames] == ["down"] * 12, stacks


@pytest.mark.parametrize(
    "what, doing",
    [
        ("match", r"running, \d+ % of a CPU"),
        ("sleep_with_lock", r"waiting, in (clock_)?nanosleep, 0 % of a CPU"),
        ("lock_held_by_thread", r"running, \d+ % of a CPU"),
    ],
)
def test_error_names_a_held_interpreter_lock(world: World, what: str, doing: str) -> None:
    _, stacks = stacks_of(world, what)
    [[ranks, line, frames, _, answered]] = stacks
    assert ranks == [1] and answered and frames == [], stacks
    assert re.fullmatch(rf"a thread has held the interpreter's lock for \d+ s \({doing}\)", line), line


def test_error_names_the_function_of_a_rank_that_has_forked(world: World) -> None:
    _, stacks = stacks_of(world, "fork")
    [[ranks, _, frames, _, answered]] = stacks
    assert ranks == [1] and answered, stacks
    assert [function for _, _, function in frames] == ["<module>", "fork", "nap"], stacks


GEVENT = """
import gevent.monkey
gevent.monkey.patch_all()
"""


@pytest.mark.parametrize("what", ["nap", "count", "spawned"])
def test_error_names_function_under_gevent(world: World, what: str) -> None:
    pytest.importorskip("gevent")
    spawned = "def spawned():\n    gevent.spawn(count).join()\n"
    _, stacks = stacks_of(world, what, GEVENT + spawned)
    [[ranks, line, frames, _, answered]] = stacks
    assert ranks == [1] and answered, stacks
    names = [function for _, _, function in frames]
    # A greenlet that waits leaves the thread to gevent's loop.
    expected = {"nap": "run", "count": "count", "spawned": "count"}[what]
    assert expected in names, stacks


LOADER = """
import ctypes, multiprocessing, signal, time

def work(requests, results):
    # It ends with its parent, which is killed.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    while True:
        requests.get()
        time.sleep(1000)

def load():
    # As a DataLoader waits for its workers.
    context = multiprocessing.get_context("fork")
    requests, results = context.Queue(), context.Queue()
    context.Process(target=work, args=(requests, results), daemon=True).start()
    requests.put(0)
    results.get()
"""


def test_error_names_the_caller_of_a_library_that_waits(world: World) -> None:
    _, stacks = stacks_of(world, "load", LOADER)
    [[ranks, line, _, _, answered]] = stacks
    assert ranks == [1] and answered, stacks
    called = r"connection.py:\d+ in _recv, called from program.py:\d+ in load \(waiting, in read on a pipe\)"
    assert re.fullmatch(called, line), line


def test_idle_package_has_no_thread_and_ends_at_once() -> None:
    # A lister thread exists only while a question is open.
    program = "import os, fsgather, _thread; fsgather.Communicator.solo(); print(len(os.listdir('/proc/self/task')), _thread._count())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT)
    assert ended.stdout.split() == ["1", "0"], ended


def test_neighbours_report_a_stopped_rank(world: World) -> None:
    world.start(3, JOB.replace("DO()", "nap()").replace("LATE", "1").replace("TIMEOUT", "4"))
    assert world.hear(1) == "here"
    world.signal(1, signal.SIGSTOP)
    told = [world.hear(rank) for rank in (0, 2)]
    world.signal(1, signal.SIGCONT)
    world.kill()
    for text, stacks in told:
        assert stacks == [[[1], "does not answer; its process is stopped", [], "stopped", False]], stacks
        assert "does not answer; its process is stopped" in text


@pytest.mark.parametrize("control", ["tcp", "markers"])
def test_neighbours_report_a_stopped_rank_0(world: World, control: str) -> None:
    job = JOB.replace("DO()", "nap()").replace("LATE", "0").replace("TIMEOUT", "4")
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
@pytest.mark.parametrize("what", ["nap", "count", "locked", "match"])
def test_error_names_function_of_rank_0(world: World, what: str, control: str) -> None:
    text, [[ranks, line, frames, _, answered]] = stacks_of(world, what, late=0, FSGATHER_CONTROL=control)
    assert ranks == [0] and answered, text
    if what == "match":
        assert line.startswith("a thread has held the interpreter's lock for "), line
    else:
        assert [function for _, _, function in frames] == ["<module>", what], frames
    assert text.endswith(f"\n  rank 0: {line}"), text


@pytest.mark.parametrize("silent", [0, 1])
def test_nothing_is_reported_if_turned_off(world: World, silent: int) -> None:
    job = f"import os\nif os.environ['FSGATHER_RANK'] == '{silent}':\n    os.environ['FSGATHER_STACKS'] = '0'\n" + JOB
    world.start(3, job.replace("DO()", "nap()").replace("LATE", "1").replace("TIMEOUT", "4"))
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
    except fsgather.DesyncError as error:
        tell([str(error), list(error.ranks), [[list(stack.ranks), stack.text, stack.frames] for stack in error.stacks]])
"""


@pytest.mark.parametrize("control", ["tcp", "markers"])
@pytest.mark.parametrize("group", [False, True])
def test_desync_names_functions_of_both_branches(world: World, group: bool, control: str) -> None:
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
    assert f"all_gather, from {place['save']} in save" in text, text
    assert f"barrier, from {place['evaluate']} in evaluate" in text, text


def test_desync_names_no_other_thread_than_the_caller(world: World) -> None:
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
            except fsgather.DesyncError as error:
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
    assert "in in_main" not in text and "rank 1: all_gather, from program.py:" in text.splitlines()[-1], text


def test_pickled_errors_keep_stacks() -> None:
    import pickle

    error = fsgather.TimeoutError("text")
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
    except fsgather.TimeoutError as error:
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


def test_error_reports_the_relevant_thread_in_one_line(world: World) -> None:
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
    # A long pickle may hold the interpreter's lock.
    pickles = r"program.py:\d+ in pickles \(running\)|a thread has held the interpreter's lock for \d+ s \(running, \d+ % of a CPU\)"
    assert re.fullmatch(pickles, told[10][0]), told[10]
    if apart:
        assert re.fullmatch(napping.replace("program", "apart"), told[11][0]), told[11]


def test_call_made_by_a_pool_is_placed_at_its_thread() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from fsgather._sites import caller

    with ThreadPoolExecutor(1, "loader") as pool:
        assert pool.submit(caller).result() == "thread loader_0"
        assert pool.submit(lambda: caller()).result().startswith("test_hanging.py:")
