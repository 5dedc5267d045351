"""What ranks hear at the first warning, 30 s after it came, of ranks that do not come for each reason that there is."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from conftest import FileServer, World

JOB = """
import ctypes, pickle, threading, time, zlib
from pathlib import Path

def wait():
    communicator.barrier()

def begin():
    global communicator, pair
    communicator = fsgather.Communicator()
    pair = communicator.group([7, 8]) if rank in (7, 8) else None
    communicator.barrier()

def count():
    while True:
        pass

def nap():
    time.sleep(1000)

def stopped():
    nap()

def locked():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def keep_interpreter():
    ctypes.PyDLL(None).sleep(1000)

def read():
    Path(os.environ["HANGING_FILE"]).read_bytes()

def save():
    pair.all_gather("state")

def branch():
    save() if rank == 7 else nap()

def load():
    data = Path(os.environ["FSGATHER_DIR"] + "/model.pt.py")
    data.write_bytes(zlib.compress(pickle.dumps([[number] for number in range(1 << 18)])))
    begin()
    while True:
        pickle.loads(zlib.decompress(data.read_bytes()))

def in_another_pid_namespace():
    os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", sys.executable, os.environ["FSGATHER_DIR"] + "/apart.py"])

ways = [wait, count, nap, stopped, locked, keep_interpreter, read, branch, branch, load, wait, in_another_pid_namespace]
begins_itself = (load, in_another_pid_namespace)
if ways[rank] not in begins_itself:
    begin()
    if rank == 3:
        tell("here")
ways[rank]()
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


@pytest.fixture
def hanging_file(file_server: FileServer) -> Path:
    """A file on a mount whose reads hang."""
    (file_server.back / "x.h5").write_bytes(b"data" * 1000)
    file_server.rule("read x.h5 hang")
    return file_server.mount / "x.h5"


def first_warning(world: World, rank: int) -> str:
    """The first warning about the call that all wait for, as a rank writes it, with a line for those who do the same."""
    stderr = world.ranks[rank].stderr
    assert stderr is not None
    lines: list[str] = []
    for line in stderr:
        if lines and not line.startswith("  rank"):
            break
        if lines or "barrier #2 " in line and "is still waiting for" in line:
            lines.append(line.rstrip("\n"))
        if sorted(told_in(lines)) == late(world):
            break
    return "\n".join(lines)


def told_in(lines: list[str]) -> dict[int, str]:
    """What is told of each rank."""
    told: dict[int, str] = {}
    for line in lines:
        of = re.fullmatch(r"  ranks? ([\d -]+): (.*)", line)
        for part in of[1].split() if of else ():
            first, _, last = part.partition("-")
            told.update({rank: of[2] for rank in range(int(first), int(last or first) + 1)})
    return told


def late(world: World) -> list[int]:
    """The ranks that do not come, each for a reason of its own."""
    return [rank for rank in range(1, len(world.ranks)) if rank != 10]


@pytest.mark.bed("root, FUSE, and a quiet machine")
@pytest.mark.parametrize("control", ["tcp", "markers"])
def test_those_who_wait_hear_at_the_first_warning_what_each_of_the_others_does(world: World, hanging_file: Path, control: str) -> None:
    (world.directory / "apart.py").write_text(APART)
    world.start(12, JOB, FSGATHER_CONTROL=control, FSGATHER_LOG="info", HANGING_FILE=str(hanging_file))
    assert world.hear(3) == "here"
    world.signal(3, signal.SIGSTOP)
    heard = [first_warning(world, rank) for rank in (0, 10)]
    world.signal(3, signal.SIGCONT)
    world.kill()
    napping = r"program.py:\d+ in nap \(waiting, in (clock_nanosleep|pselect6|select)\)"
    lock = r"(, holding the interpreter's lock)?"
    expected = {
        1: r"program.py:\d+ in count \(running\)" + lock,
        2: napping,
        3: "does not answer; its process is stopped",
        4: r"program.py:\d+ in locked \(waiting, in futex\)",
        5: r"program.py:\d+ in keep_interpreter \(waiting, in (clock_nanosleep|nanosleep)\)" + lock,
        7: r"program.py:\d+ in save \(waiting, in \w+.*\)",
        8: napping,
        9: r"program.py:\d+ in load \(running\)" + lock,
        11: napping.replace("program", "apart"),
    }
    read = rf"waiting(, deaf to signals)?, in p?read(64)? on {re.escape(str(hanging_file))}"
    expected[6] = rf"pathlib\S*.py:\d+ in read_bytes, called from program.py:\d+ in read \({read}\)"
    for text in heard:
        told = told_in(text.splitlines())
        assert sorted(told) == late(world), text
        for rank, line in told.items():
            assert re.fullmatch(expected[rank], line), (rank, line, text)
    # The same words for all.
    assert heard[0].splitlines()[1:] == heard[1].splitlines()[1:]
