"""Ranks for tests: real processes that run a piece of Python each, none of which outlives its limit."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

LIMIT = 300
"""Seconds after which a test hangs: its ranks are killed, and if it continues even so, the whole run ends."""

LONGER = "10m"
"""A time-out that no test reaches. An error that a test sees came for another reason, in time, or LIMIT would have ended the test."""

BED = Path(__file__).parents[3] / "scripts/beds/fuse-double.sh"

PRELUDE = """
import json, os, sys
import fsgather

rank = int(os.environ["FSGATHER_RANK"])
world_size = int(os.environ["FSGATHER_WORLD_SIZE"])


def tell(value):
    print(json.dumps(value), flush=True)


def wait_for_go(step="go"):
    import time

    while not os.path.exists(os.environ["FSGATHER_DIR"] + f"/{step}.py"):
        time.sleep(0.01)

"""


def pytest_configure(config: pytest.Config) -> None:
    """Has ranks begin with signals at their default, and keeps a way to say why the tests end."""
    # Whoever runs these in the background has them ignore some, and what is ignored is inherited, unlike what is handled.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        config.stash[STDERR] = os.dup(2)


STDERR = pytest.StashKey[int]()


@pytest.fixture(autouse=True)
def limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends everything, with all stacks, when a test is stuck outside of its ranks, wherever that is."""
    faulthandler.dump_traceback_later(LIMIT + 30, exit=True, file=request.config.stash[STDERR])
    yield
    faulthandler.cancel_dump_traceback_later()


class Ended:
    """What came of one rank."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def told(self) -> list[Any]:
        """What it has told, in order."""
        return [json.loads(line) for line in self.out.splitlines()]


class World:
    """Ranks that are running, and the directory that they share."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ranks: list[subprocess.Popen[str]] = []
        # Whoever waits for a rank hears of its end.
        self.limit = threading.Timer(LIMIT, self.kill)
        self.limit.daemon = True
        self.limit.start()

    def start(self, count: int, source: str, python: str = sys.executable, **variables: str) -> World:
        """Starts all ranks with the same program."""
        program = self.directory / "program.py"
        program.write_text(PRELUDE + textwrap.dedent(source))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FSGATHER_", "MDETR_"))}
        environment.update(FSGATHER_DIR=str(self.directory), FSGATHER_WORLD_SIZE=str(count))
        environment.update(FSGATHER_TIMEOUT=LONGER, FSGATHER_JOIN_TIMEOUT=LONGER)
        environment.update(variables)
        for rank in range(count):
            self.ranks.append(
                subprocess.Popen(
                    [python, str(program)],
                    env={**environment, "FSGATHER_RANK": str(rank)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return self

    def hear(self, rank: int) -> Any:
        """The next thing that a rank tells; waits for it."""
        stdout = self.ranks[rank].stdout
        assert stdout is not None
        line = stdout.readline()
        assert line, f"rank {rank} ended: {self.ranks[rank].communicate()[1]}"
        return json.loads(line)

    def signal(self, rank: int, number: signal.Signals) -> None:
        self.ranks[rank].send_signal(number)

    def until_it_waits(self, rank: int) -> None:
        """Until the main thread of a rank sleeps whenever one looks, however little time it gets."""
        stat = Path(f"/proc/{self.ranks[rank].pid}/stat")
        asleep = 0
        while asleep < 20:
            state = stat.read_text().rpartition(")")[2].split()[0]
            assert state not in "ZX", f"rank {rank} ended: {self.ranks[rank].communicate()[1]}"
            asleep = asleep + 1 if state == "S" else 0
            time.sleep(0.01)

    def go(self, step: str = "go") -> None:
        """Lets ranks continue that wait for this step."""
        (self.directory / f"{step}.py").touch()

    def ends(self) -> list[Ended]:
        """What came of all ranks."""
        ended = []
        for process in self.ranks:
            out, err = process.communicate()
            ended.append(Ended(process.returncode, out, err))
        return ended

    def told(self) -> list[list[Any]]:
        """What each rank has told, if all have ended well."""
        ended = self.ends()
        for rank, end in enumerate(ended):
            assert end.code == 0, f"rank {rank} ended with {end.code}:\n{end.out}\n{end.err}"
        return [end.told for end in ended]

    def left(self) -> list[str]:
        """What is left in the directory, besides the program."""
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.suffix != ".py")

    def kill(self) -> None:
        for process in self.ranks:
            process.kill()

    def end(self) -> None:
        """Leaves no process behind."""
        self.limit.cancel()
        self.kill()
        for process in self.ranks:
            process.communicate()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world whose ranks do not outlive the test."""
    world = World(tmp_path)
    yield world
    world.end()


class FileServer:
    """A directory behind a file server of its own, whose answers can be kept back."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.back = state / "back"
        """The directory as the server has it."""
        self.mount = state / "host1"
        """The same through the server."""

    def bed(self, *arguments: str) -> None:
        environment = {**os.environ, "BED_STATE": str(self.state)}
        done = subprocess.run([str(BED), *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, f"this test needs root and FUSE: {BED.name} {' '.join(arguments)} ended with {done.returncode}: {done.stdout}"

    def rule(self, rule: str) -> None:
        """What it keeps back from now on, as `scripts/beds/cachefs.c` says; ``""``: nothing."""
        self.bed("rules", "1", rule)


@pytest.fixture
def file_server(tmp_path: Path) -> Iterator[FileServer]:
    """A file server, which needs root and FUSE."""
    server = FileServer(tmp_path / "bed")
    server.bed("up")
    yield server
    server.rule("")
    server.bed("down")
