"""Plays a round: starts its jobs, does them harm, and notes what has become of everybody."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import Optional

from drawing import JOIN_TIMEOUT, Job, Round
from harms import Harm
from jobs.processes import RENDEZVOUS, Command, Outcome, Processes, clean
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
class JobSeen:
    """What has become of one job."""

    ranks: list[Outcome]
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


def slowdown() -> float:
    """How much longer things take where several programs share each processor."""
    words = Path("/proc/loadavg").read_text().split()
    return max(1.0, 2 * max(float(words[0]), float(words[3].split("/")[0])) / (os.cpu_count() or 1))


class Playing(Processes):
    """One job that runs."""

    def __init__(self, job: Job, programs: Programs, base: Path, logs: Path) -> None:
        self.job = job
        self.queue = list(job.harms)
        self.stopped: set[int] = set()
        self.harmed_while_meeting = False
        places = [str(base / f"own-{number}") for number in range(DIRECTORIES)]
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
        program = [programs.python, HERE / "python_rank.py"] if job.in_python else [programs.rank]
        commands = []
        for rank, delay in enumerate(job.delays):
            steps = [step.format(*places) for step in job.script.steps[rank]]
            commands.append(Command([*program, *steps], {**kept, **job.environment(rank, str(base))}, delay))
        super().__init__(commands, logs, str(job.number))
        self.last_harm = self.begun
        self.clock: Optional[float] = None if job.trigger else self.begun

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
        limit = ENDS_WITHIN
        if not any(outcome.harmed for outcome in self.outcomes):
            limit += self.job.timeout
        elif self.harmed_while_meeting:
            limit += JOIN_TIMEOUT
        return self.last_harm + limit * slowdown()

    def harm(self, harm: Harm) -> None:
        """Sends a signal."""
        with self.lock:
            number = getattr(signal, "SIG" + harm.signal)
            for rank in range(self.job.ranks) if harm.rank is None else [harm.rank]:
                if rank not in self.handles or self.outcomes[rank].code is not None:
                    # One that was not there yet is not ended either.
                    continue
                if harm.signal in ("KILL", "TERM", "INT"):
                    self.note_end(rank, harm.signal)
                self.send(rank, number)
                if harm.signal != "STOP":
                    # A stopped process does not end otherwise.
                    self.send(rank, signal.SIGCONT)
                if harm.signal == "STOP":
                    self.stopped.add(rank)
                else:
                    self.stopped.discard(rank)
        self.last_harm = time.monotonic()

    def note_end(self, rank: int, name: str) -> None:
        """Notes that a rank is ended, and whether everybody knew of it."""
        self.outcomes[rank].harmed = self.outcomes[rank].harmed or name
        # Read again at the end, when it is known who had come so far by then; this is what is safe to say.
        if not all("joined" in self.text(other, "out") for other in range(self.job.ranks)):
            self.harmed_while_meeting = True

    def sum_up(self) -> JobSeen:
        """Ends what is left."""
        left = self.end()
        for outcome in self.outcomes:
            # Python ends in its own way while it starts: nothing of ours was there yet.
            by_python = outcome.code == 1 and outcome.err.rstrip().endswith("KeyboardInterrupt") and "joined" not in outcome.out
            # If the process had ended before the signal, nothing has happened to it.
            if outcome.harmed and outcome.code is not None and outcome.code >= 0 and outcome.code != 130 and not by_python:
                outcome.harmed = None
        return JobSeen(self.outcomes, self.harmed_while_meeting, left)


def below(base: Path) -> list[str]:
    """Paths in the shared directory, except for the directory in which ranks meet and those that calls were given."""
    kept = {base / RENDEZVOUS}
    for number in range(DIRECTORIES):
        own = base / f"own-{number}"
        kept |= {own, own / RENDEZVOUS}
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
    jobs = [job.sum_up() for job in playing]
    left = below(base)
    places = [base, *(base / f"own-{number}" for number in range(DIRECTORIES))]
    cleaning = "".join(clean(programs.fsgather, place) for place in places)
    left_after_cleaning = below(base)
    # Clocks of servers are coarse, so `clean` gives what tells nobody's name a few seconds more than it is told.
    until = time.monotonic() + GRACE
    while below(base) and time.monotonic() < until:
        cleaning += "".join(clean(programs.fsgather, place, "--older-than", "1ms") for place in places)
        time.sleep(0.2)
    return RoundSeen(jobs, left, left_after_cleaning, below(base), cleaning)
