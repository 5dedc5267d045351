"""Ranks for tests: real processes that run a piece of Python each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest

PRELUDE = """
import json, os, sys
import fsgather

rank = int(os.environ["FSGATHER_RANK"])
world_size = int(os.environ["FSGATHER_WORLD_SIZE"])


def tell(value):
    print(json.dumps(value), flush=True)

"""


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

    def start(self, count: int, source: str, python: str = sys.executable, **variables: str) -> World:
        """Starts all ranks with the same program."""
        program = self.directory / "program.py"
        program.write_text(PRELUDE + textwrap.dedent(source))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FSGATHER_", "MDETR_"))}
        environment.update(FSGATHER_DIR=str(self.directory), FSGATHER_WORLD_SIZE=str(count), FSGATHER_JOIN_TIMEOUT="60s")
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

    def ends(self, timeout: float = 60) -> list[Ended]:
        """What came of all ranks."""
        ended = []
        for process in self.ranks:
            out, err = process.communicate(timeout=timeout)
            ended.append(Ended(process.returncode, out, err))
        return ended

    def told(self, timeout: float = 60) -> list[list[Any]]:
        """What each rank has told, if all have ended well."""
        ended = self.ends(timeout)
        for rank, end in enumerate(ended):
            assert end.code == 0, f"rank {rank} ended with {end.code}:\n{end.out}\n{end.err}"
        return [end.told for end in ended]

    def left(self) -> list[str]:
        """What is left in the directory, besides the program."""
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.suffix != ".py")

    def kill(self) -> None:
        for process in self.ranks:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world whose ranks do not outlive the test."""
    world = World(tmp_path)
    yield world
    world.kill()
