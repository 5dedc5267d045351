"""Plays a round: starts its jobs, does them harm, and notes what has become of everybody."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional

from drawing import JOIN_TIMEOUT, Job, Round
from harms import Harm
from steps import DIRECTORIES

HERE = Path(__file__).resolve().parent

ENDS_WITHIN = 20.0
"""Seconds within which all have ended after the last harm, on a machine that does nothing else."""


@dataclasses.dataclass
class Programs:
    """What is played with."""

    rank: Path
    fsgather: Path
    python: Optional[Path]


@dataclasses.dataclass
class Seen:
    """What has become of one rank."""

    code: Optional[int] = None
    """Its exit code, or minus the signal that ended it; none if it had to be killed because it did not end."""
    pid: int = 0
    ended: float = 0.0
    harmed: Optional[str] = None
    """The signal that was to end it, if it was there to be ended."""
    out: str = ""
    err: str = ""
    stacks: str = ""
    """Where it stood when it did not end."""

    @property
    def done(self) -> int:
        """How many steps it has taken."""
        return self.out.count("done ")

    @property
    def error(self) -> str:
        """Why it failed, without what only says that it failed before."""
        found = re.search(r"^error: (?:stream of rank \d+: )?(.*)$", self.err, re.MULTILINE)
        text = found.group(1) if found else ""
        return text.split("this communicator has failed before and cannot be used: ")[-1]


@dataclasses.dataclass
class JobSeen:
    """What has become of one job."""

    ranks: list[Seen]
    last_harm: float
    harmed_while_meeting: bool
    """Whether somebody was ended before all knew each other: those who look for it have to wait until time is up."""
    processes_left: list[int]


@dataclasses.dataclass
class RoundSeen:
    """What has become of a round."""

    jobs: list[JobSeen]
    left: list[str]
    left_after_cleaning: list[str]
    left_as_if_later: list[str]
    """What is left of that by a cleaning as it would be some time later."""
    cleaning: str
    slowest: float

    def told(self) -> Any:
        """For people; what ranks said is kept beside it."""
        return dataclasses.asdict(self)


def slowdown() -> float:
    """How much longer things take where several programs share each processor."""
    words = Path("/proc/loadavg").read_text().split()
    return max(1.0, 2 * max(float(words[0]), float(words[3].split("/")[0])) / (os.cpu_count() or 1))


class Playing:
    """One job that runs."""

    def __init__(self, job: Job, programs: Programs, base: Path, logs: Path) -> None:
        self.job = job
        self.logs = logs
        self.ranks = [Seen() for _ in range(job.ranks)]
        self.handles: dict[int, int] = {}
        self.lock = threading.Lock()
        self.queue = list(job.harms)
        self.stopped: set[int] = set()
        self.begun = self.last_harm = time.monotonic()
        self.clock: Optional[float] = None if job.trigger else self.begun
        self.harmed_while_meeting = False
        self.is_over = False
        places = [str(base / f"own-{number}") for number in range(DIRECTORIES)]
        commands = []
        for rank, delay in enumerate(job.delays):
            steps = [step.format(*places) for step in job.script.steps[rank]]
            program = [str(programs.python), str(HERE / "python_rank.py")] if job.in_python else [str(programs.rank)]
            told = {name: os.environ[name] for name in ("HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
            told.update(job.environment(rank, str(base)))
            out, err = (str(self.path(rank, kind)) for kind in ("out", "err"))
            commands.append({"arguments": [*program, *steps], "environment": told, "delay": delay, "out": out, "err": err})
        document = logs / f"{job.number}.json"
        document.write_text(json.dumps(commands, indent=1))
        self.launcher = subprocess.Popen(
            [sys.executable, str(HERE / "launcher.py"), str(document)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()

    def path(self, rank: int, kind: str) -> Path:
        """Where a rank's output goes."""
        return self.logs / f"{self.job.number}.{rank}.{kind}"

    def text(self, rank: int, kind: str) -> str:
        """What a rank has said so far."""
        try:
            return self.path(rank, kind).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def listen(self) -> None:
        """Notes what the launcher says."""
        assert self.launcher.stdout is not None
        for line in self.launcher.stdout:
            what, rank, *rest = line.split()
            with self.lock:
                seen = self.ranks[int(rank)]
                if what == "started":
                    seen.pid = int(rest[0])
                    try:
                        self.handles[int(rank)] = os.pidfd_open(seen.pid)
                    except ProcessLookupError:
                        pass
                else:
                    seen.code, seen.ended = int(rest[0]), float(rest[1])
        self.is_over = True

    def look(self) -> bool:
        """Does what is due; whether all have ended, or have to be given up."""
        if self.is_over:
            return True
        now = time.monotonic()
        if self.clock is None:
            trigger = self.job.trigger
            assert trigger is not None
            # Nothing happens before that rank has come so far, or for so long.
            if self.text(trigger.rank, "out").count("done ") >= trigger.steps or now - self.begun > 10:
                self.clock = now
        while self.clock is not None and self.queue and now - self.clock >= self.queue[0].after:
            self.harm(self.queue.pop(0))
        return not self.queue and not self.stopped and now > self.patience()

    def patience(self) -> float:
        """When all should have ended."""
        ended = any(seen.harmed for seen in self.ranks)
        limit = ENDS_WITHIN
        if not ended:
            limit += self.job.timeout
        elif self.harmed_while_meeting:
            limit += JOIN_TIMEOUT
        return self.last_harm + limit * slowdown()

    def harm(self, harm: Harm) -> None:
        """Sends a signal."""
        with self.lock:
            number = getattr(signal, "SIG" + harm.signal)
            for rank in range(self.job.ranks) if harm.rank is None else [harm.rank]:
                seen = self.ranks[rank]
                if rank not in self.handles or seen.code is not None:
                    # One that was not there yet is not ended either.
                    continue
                if harm.signal in ("KILL", "TERM", "INT"):
                    self.note_end(rank, harm.signal)
                try:
                    signal.pidfd_send_signal(self.handles[rank], number)
                    if harm.signal != "STOP":
                        # A stopped process does not end otherwise.
                        signal.pidfd_send_signal(self.handles[rank], signal.SIGCONT)
                except ProcessLookupError:
                    # It has ended, by this signal or before.
                    pass
                if harm.signal == "STOP":
                    self.stopped.add(rank)
                else:
                    self.stopped.discard(rank)
        self.last_harm = time.monotonic()

    def note_end(self, rank: int, name: str) -> None:
        """Notes that a rank is ended, and whether everybody knew of it."""
        self.ranks[rank].harmed = self.ranks[rank].harmed or name
        # Read again at the end, when it is known who had come so far by then; this is what is safe to say.
        if not all("joined" in self.text(other, "out") for other in range(self.job.ranks)):
            self.harmed_while_meeting = True

    def end(self) -> JobSeen:
        """Ends what is left, and sums up."""
        for rank, seen in enumerate(self.ranks):
            if seen.code is None and rank in self.handles:
                seen.stacks = stacks(seen.pid)
        hung = [rank for rank, seen in enumerate(self.ranks) if seen.code is None]
        assert self.launcher.stdin is not None
        left = []
        if self.is_over:
            left = [pid for pid in session(self.launcher.pid) if pid != self.launcher.pid]
        self.launcher.stdin.close()
        self.listener.join()
        self.launcher.wait()
        assert self.launcher.stdout is not None
        self.launcher.stdout.close()
        for handle in self.handles.values():
            os.close(handle)
        for rank, seen in enumerate(self.ranks):
            seen.out, seen.err = self.text(rank, "out"), self.text(rank, "err")
            if rank in hung:
                seen.code = None
            # Where the signal came when it had ended already, nothing has happened to it.
            # Python's own way to end while it starts: nothing of ours was there yet.
            by_python = seen.code == 1 and seen.err.rstrip().endswith("KeyboardInterrupt") and "joined" not in seen.out
            if seen.harmed and seen.code is not None and seen.code >= 0 and seen.code != 130 and not by_python:
                seen.harmed = None
        return JobSeen(self.ranks, self.last_harm, self.harmed_while_meeting, left)


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
    """Where the threads of a process are, as far as one may know."""
    told = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        try:
            told.append(f"{(task / 'comm').read_text().strip()}: {(task / 'stat').read_text().rpartition(')')[2].split()[0]}")
            told.append((task / "wchan").read_text())
            told.append((task / "stack").read_text())
        except OSError as error:
            told.append(str(error))
    return "\n".join(told)


def below(base: Path) -> list[str]:
    """What lies in the shared directory, except for the directory in which ranks meet and those that calls were given."""
    kept = {base / "all_gather_via_filesys"}
    for number in range(DIRECTORIES):
        own = base / f"own-{number}"
        kept |= {own, own / "all_gather_via_filesys"}
    return sorted(f"{path.relative_to(base)} ({size(path)})" for path in base.rglob("*") if path not in kept)


def size(path: Path) -> str:
    """How long a file is."""
    try:
        return "directory" if path.is_dir() else f"{path.stat().st_size} bytes"
    except FileNotFoundError:
        return "gone"


GRACE = 15.0
"""Seconds until what names nobody has to go, if no more than a moment is asked for."""


def play(drawn: Round, programs: Programs, base: Path, logs: Path) -> RoundSeen:
    """Plays a round to its end."""
    for number in range(DIRECTORIES):
        (base / f"own-{number}").mkdir(exist_ok=True)
    playing = [Playing(job, programs, base, logs) for job in drawn.jobs]
    running = list(playing)
    while running:
        running = [job for job in running if not job.look()]
        time.sleep(0.004)
    jobs = [job.end() for job in playing]
    left = below(base)
    cleaning = clean(programs, base)
    left_after_cleaning = below(base)
    # Clocks of servers are coarse, so `clean` gives what tells nobody's name a few seconds more than it is told.
    until = time.monotonic() + GRACE
    while below(base) and time.monotonic() < until:
        cleaning += clean(programs, base, "--older-than", "1ms")
        time.sleep(0.2)
    slowest = 0.0
    for job in jobs:
        if any(seen.harmed for seen in job.ranks) and not job.harmed_while_meeting:
            ends = [seen.ended - job.last_harm for seen in job.ranks if seen.code is not None]
            slowest = max([slowest, *ends])
    return RoundSeen(jobs, left, left_after_cleaning, below(base), cleaning, slowest)


def clean(programs: Programs, base: Path, *how: str) -> str:
    """Removes what is left over in all directories of a round; what was said."""
    said = ""
    for place in [base, *(base / f"own-{number}" for number in range(DIRECTORIES))]:
        command = [programs.fsgather, "clean", "--execute", *how, place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        said += done.stdout + done.stderr
    return said
