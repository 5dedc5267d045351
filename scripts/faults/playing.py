"""Runs a scenario with a fault in one of its processes, and what comes after it in the same directory."""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from jobs.processes import RENDEZVOUS, Command, Processes, clean

RANKS = 3
# How long calls and the meeting wait; the documented answer comes at most 10 s later.
TIMEOUT = 8
# A world that is not done by then hangs.
LIMIT = 90

CALLS = "all_gather_bytes:300000 gather_bytes:1:300000 start_all_gather:200000 wait:0 gather:0:100000 all_gather:500 broadcast:1:70000".split()
WORLD = ["join", *CALLS, "close"]
NEXT = ["join", "all_gather_bytes:100000", "close"]

# The variables of a scenario of ranks; whether a world was killed in the directory before; and the tools that are tried on what it has left.
WORLDS = {
    "files": ({"FSGATHER_TRANSPORT": "filesys"}, False),
    "memory": ({"FSGATHER_TRANSPORT": "memory"}, False),
    "markers": ({"FSGATHER_TRANSPORT": "filesys", "FSGATHER_CONTROL": "markers"}, False),
    "sweep": ({"FSGATHER_TRANSPORT": "filesys"}, True),
}
TOOLS = {"clean": ["clean", "--execute"], "inspect": ["inspect"]}
VICTIMS = {**dict.fromkeys(WORLDS, (0, 2)), "sweep": (0,), **dict.fromkeys(TOOLS, (0,))}


@dataclass
class Played:
    """What is known of a run."""

    hit: str = ""
    counts: dict = field(default_factory=dict)
    ended: list = field(default_factory=list)
    took: float = 0.0
    next: list = field(default_factory=list)
    # Paths below the rendezvous directory: after the run; after cleaning by what is proved; and once all of it looks old.
    left: list = field(default_factory=list)
    # What an earlier world's ranks have left of their calls.
    last_calls: list = field(default_factory=list)
    left_after_clean: list = field(default_factory=list)
    changed: bool = False


class Stage:
    """The programs, and how they are run."""

    def __init__(self, programs, injector, directory):
        self.directory = directory
        self.rank = programs / "examples" / "rank"
        self.tool = programs / "fsgather"
        self.injector = injector
        self.prefixes = f"/tmp/fsgather-{os.geteuid()}"

    def play(self, case):
        """Runs a case; one without a fault counts calls."""
        with tempfile.TemporaryDirectory(prefix="fsgather-faults-") as place:
            work = Path(place)
            directory = Path(tempfile.mkdtemp(prefix="fsgather-faults-", dir=self.directory or work))
            played = Played()
            variables, has_remains = WORLDS.get(case.scenario, (None, True))
            if has_remains:
                self._leave_remains(work, directory)
            log = work / "injected"
            before = listing(directory)
            played.last_calls = [name for name in before if name.startswith("calls-")]
            injector = [self.injector, log, case.call, case.nth, case.injected, f"{directory}:{self.prefixes}", "--"]
            began = time.monotonic()
            if case.scenario in TOOLS:
                verb, *options = TOOLS[case.scenario]
                commands = [[*injector, self.tool, verb, *options, directory]]
            else:
                commands = [[*(injector if rank == case.victim else []), self.rank, *WORLD] for rank in range(RANKS)]
            played.ended = self._run(work, directory, commands, variables)
            played.took = time.monotonic() - began
            for line in log.read_text().splitlines() if log.exists() else []:
                word, *rest = line.split(" ", 1)
                if word == "count":
                    call, count = rest[0].split()
                    played.counts[call] = int(count)
                elif word == "hit":
                    played.hit = rest[0] or "-"
            # What tells the server's time may stay where it cannot be removed.
            played.changed = [name for name in listing(directory) if not name.startswith("probe-")] != before
            played.left = listing(directory)
            # Each in its turn comes first.
            if case.nth % 2:
                self._clean(work, directory, played)
            self._next(work, directory, variables or {}, played)
            self._clean(work, directory, played)
            if self.directory:
                shutil.rmtree(directory)
            return played

    def _run(self, work, directory, commands, variables=None):
        """Runs processes to their end: ranks with these variables, or tools."""
        running = self._start(work, directory, commands, variables)
        running.wait(LIMIT)
        running.end()
        return running.outcomes

    def _start(self, work, directory, commands, variables):
        described = [Command(command, environment(directory, rank, variables)) for rank, command in enumerate(commands)]
        return Processes(described, work, "process")

    def _leave_remains(self, work, directory):
        """What a world leaves that is killed while its payloads are read."""
        steps = ["join", "all_gather_bytes:300000", "start_all_gather:300000", "at:end"]
        running = self._start(work, directory, [[self.rank, *steps]] * RANKS, WORLDS["files"][0])
        running.wait(LIMIT, until=lambda: all("at end\n" in running.text(rank, "out") for rank in range(RANKS)))
        running.end()

    def _next(self, work, directory, variables, played):
        """The next gather of the same job."""
        played.next = self._run(work, directory, [[self.rank, *NEXT]] * RANKS, variables)

    def _clean(self, work, directory, played):
        """Cleans as a user does who comes two days later: the mark of a directory that has gone stays for a day."""
        old = time.time() - 2 * 24 * 3600
        for path in directory.rglob("*"):
            try:
                os.utime(path, (old, old), follow_symlinks=False)
            except FileNotFoundError:
                pass
        if listing(directory):
            clean(self.tool, directory)
        played.left_after_clean += listing(directory)


def listing(directory):
    """What is below the rendezvous directory."""
    root = directory / RENDEZVOUS
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def environment(directory, rank, variables):
    """The variables of a process; tools have none."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FSGATHER_")}
    if variables is None:
        return own
    return own | {
        "FSGATHER_WORLD_SIZE": str(RANKS), "FSGATHER_LOCAL_WORLD_SIZE": str(RANKS), "FSGATHER_RANK": str(rank),
        "FSGATHER_LOCAL_RANK": str(rank), "FSGATHER_DIR": str(directory), "FSGATHER_JOB": "faults",
        "FSGATHER_TIMEOUT": f"{TIMEOUT}s", "FSGATHER_JOIN_TIMEOUT": f"{TIMEOUT}s", **variables,
    }
