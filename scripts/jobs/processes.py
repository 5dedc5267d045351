"""The processes of a job, from their start to their outcomes, and the directory in which they meet."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Optional

RENDEZVOUS = "all_gather_via_filesys"
"""Name of the directory that ranks make in the one that they share."""


@dataclasses.dataclass
class Outcome:
    """What became of one process."""

    code: Optional[int] = None
    """Its exit code, or minus the signal that ended it; none if it had to be killed because it did not end."""
    pid: int = 0
    ended: float = 0.0
    took: float = 0.0
    """Seconds since the job began."""
    harmed: Optional[str] = None
    """The signal that should end it, if it was there to be ended."""
    out: str = ""
    err: str = ""
    stacks: str = ""
    """Where its threads were when it did not end."""

    @property
    def done(self) -> int:
        """Number of finished steps."""
        return self.out.count("done ")

    @property
    def error(self) -> str:
        """The error that a rank or the command has printed."""
        found = re.search(r"^error: (.*(?:\n  .*)*)", self.err, re.M) or re.search(r"^fsgather[^:\n]*: (.*(?:\n  .*)*)", self.err, re.M)
        return found[1] if found else ""

    @property
    def cause(self) -> str:
        """The first line of the error, without the words that name an earlier failure as the reason."""
        text = re.sub(r"^stream of rank \d+: ", "", self.error.partition("\n")[0])
        return text.split("this communicator has failed before and cannot be used: ")[-1]


@dataclasses.dataclass
class Command:
    """One process to start."""

    arguments: Sequence[object]
    environment: Mapping[str, str]
    delay: float = 0.0
    """Seconds since the start of the process before it."""


class Processes:
    """Processes of one job that run, with a launcher as their parent."""

    def __init__(self, commands: Sequence[Command], logs: Path, name: str) -> None:
        self.logs, self.name = logs, name
        self.outcomes = [Outcome() for _ in commands]
        self.handles: dict[int, int] = {}
        self.lock = threading.Lock()
        self.is_over = False
        self.begun = time.monotonic()
        document = logs / f"{name}.json"
        document.write_text(json.dumps([self._described(rank, command) for rank, command in enumerate(commands)], indent=1))
        self.launcher = subprocess.Popen(
            [sys.executable, "-IS", str(Path(__file__).with_name("launcher.py")), str(document)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.listener = threading.Thread(target=self._listen)
        self.listener.start()

    def _described(self, rank: int, command: Command) -> dict[str, object]:
        out, err = (str(self.path(rank, kind)) for kind in ("out", "err"))
        return {
            "arguments": [str(word) for word in command.arguments],
            "environment": dict(command.environment),
            "delay": command.delay,
            "out": out,
            "err": err,
        }

    def path(self, rank: int, kind: str) -> Path:
        """Where the output of a process goes."""
        return self.logs / f"{self.name}.{rank}.{kind}"

    def text(self, rank: int, kind: str) -> str:
        """What a process has printed so far."""
        try:
            return self.path(rank, kind).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _listen(self) -> None:
        """Notes the reports of the launcher."""
        assert self.launcher.stdout is not None
        for line in self.launcher.stdout:
            what, rank, *rest = line.split()
            with self.lock:
                outcome = self.outcomes[int(rank)]
                if what == "started":
                    outcome.pid = int(rest[0])
                    with contextlib.suppress(ProcessLookupError):
                        self.handles[int(rank)] = os.pidfd_open(outcome.pid)
                else:
                    outcome.code, outcome.ended = int(rest[0]), float(rest[1])
        self.is_over = True

    def send(self, rank: int, number: int) -> None:
        """Sends a signal to a process, unless it has ended."""
        with contextlib.suppress(KeyError, ProcessLookupError):
            signal.pidfd_send_signal(self.handles[rank], number)

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Waits until all have ended, or a condition holds, or time is up."""
        limit = time.monotonic() + seconds
        while not self.is_over and not until() and time.monotonic() < limit:
            time.sleep(0.004)

    def end(self) -> list[int]:
        """Ends processes that are left and completes the outcomes; returns processes of the session that outlive the job."""
        hung = []
        for rank, outcome in enumerate(self.outcomes):
            if outcome.code is None:
                hung.append(rank)
                outcome.stacks = stacks(outcome.pid)
        left = [pid for pid in session(self.launcher.pid) if pid != self.launcher.pid] if self.is_over else []
        assert self.launcher.stdin is not None and self.launcher.stdout is not None
        self.launcher.stdin.close()
        self.listener.join()
        self.launcher.wait()
        self.launcher.stdout.close()
        for handle in self.handles.values():
            os.close(handle)
        for rank, outcome in enumerate(self.outcomes):
            outcome.out, outcome.err = self.text(rank, "out"), self.text(rank, "err")
            outcome.took = (outcome.ended or time.monotonic()) - self.begun
            if rank in hung:
                outcome.code = None
        return left


def session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def stacks(pid: int) -> str:
    """Where the threads of a process are, as far as the kernel shows it."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            lines.append(f"{(task / 'comm').read_text().strip()}: {(task / 'stat').read_text().rpartition(')')[2].split()[0]}")
            lines.append((task / "wchan").read_text())
            lines.append((task / "stack").read_text())
        except OSError as error:
            lines.append(str(error))
    return "\n".join(lines)


def clean(command: Path, directory: Path, *options: str) -> str:
    """Removes leftovers of jobs in a directory; returns what the command prints."""
    words = [command, "clean", "--execute", *options, directory]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr
