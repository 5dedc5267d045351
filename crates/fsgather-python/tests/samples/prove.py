"""Kills evaluations at random moments, restarts them with other numbers of ranks, and compares the results with those of one undisturbed process.

usage: prove.py FSGATHER [--evaluations 100] [--seed S] [--samples 1200] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from memory_group import MemoryGroup
from rank import WORK_SECONDS

RANK = Path(__file__).parent / "rank.py"
HARMS = ["kill a rank", "kill all", "terminate", "exception", "address space", "memory group"]
OWN_HARMS = HARMS[3:]
"""Those that a rank does to itself."""
LOST_SECONDS = 2.0
"""A killed rank loses its last second; a machine under load may begin to write later than it should."""
LIMIT = 300
"""Seconds after which an attempt hangs."""


class Evaluation:
    """One evaluation of several attempts."""

    def __init__(self, fsgather: str, place: Path, directory: Path, samples: int, group: MemoryGroup | None) -> None:
        self.fsgather, self.logs, self.directory, self.samples, self.group = fsgather, place, directory, samples, group
        self.attempt = 0
        self.harms: Counter[str] = Counter()
        """The harms that ended an attempt before it was complete."""
        self.environment = {**os.environ, "FSGATHER_DIR": str(place)}

    def start(self, ranks: int, harm: str) -> subprocess.Popen[str]:
        # Attempts that added nothing leave no file, and so no number.
        self.attempt += 1
        words = [self.fsgather, "run", "-n", str(ranks), "--no-prefix", "--", sys.executable, str(RANK)]
        words += [str(self.directory), str(self.logs), str(self.samples), harm, str(self.attempt)]
        if harm == "memory group" and self.group:
            words = self.group.command(words)
        output = subprocess.PIPE
        return subprocess.Popen(words, env=self.environment, stdout=output, stderr=output, text=True, start_new_session=True)

    def disturbed(self, harm: str) -> float:
        """Runs an attempt that comes to harm at a random moment, and returns when that was."""
        ranks = random.randint(1, 6)
        after = random.uniform(0, self.samples * WORK_SECONDS / ranks)
        own = harm if harm in OWN_HARMS else "-"
        killed = self.group.killed() if self.group else 0
        known = set(self.logs.glob("missing-*"))
        run = self.start(ranks, own)
        while run.poll() is None and set(self.logs.glob("missing-*")) == known:
            time.sleep(0.01)
        if own == "-":
            time.sleep(after)
            moment = time.time()
            self.end(run, harm)
        elif own == "memory group" and self.group:
            while run.poll() is None and self.group.killed() == killed:
                time.sleep(0.01)
            moment = time.time()
        output = run.communicate(timeout=LIMIT)
        if own in ("exception", "address space"):
            moment = time.time()
        elif own == "memory group" and self.group and self.group.killed() == killed and run.returncode != 0:
            raise AssertionError(f"the kernel killed no process of the group: {output}")
        self.harms[harm] += run.returncode != 0
        return moment

    def end(self, run: subprocess.Popen[str], harm: str) -> None:
        """Ends an attempt, unless it has ended by itself."""
        if run.poll() is not None:
            return
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        ranks = [int(pid) for pid in children if str(RANK) in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")]
        if harm == "kill a rank" and ranks:
            os.kill(random.choice(ranks), signal.SIGKILL)
        elif harm == "kill all":
            os.killpg(run.pid, signal.SIGKILL)
        else:
            run.terminate()

    def lost(self, attempt: int, moment: float) -> list[float]:
        """How long before the harm results were added that the next attempt misses."""
        missing = set((self.logs / f"missing-{attempt + 1}").read_text().split())
        lines = [line.split() for log in self.logs.glob(f"{attempt}-*") for line in log.read_text().splitlines()]
        return [moment - float(added) for added, number in lines if number in missing]


def evaluate(arguments: argparse.Namespace, number: int, group: MemoryGroup | None, happened: Counter[str]) -> tuple[str, float]:
    random.seed(arguments.seed + number)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        directory = Path(arguments.directory or place) / f"samples-of-{os.getpid()}-{number}"
        evaluation = Evaluation(arguments.fsgather, place, directory, arguments.samples, group)
        harms = [random.choice(HARMS if group else HARMS[:-1]) for _ in range(2)]
        moments = [evaluation.disturbed(harm) for harm in harms]
        happened.update(evaluation.harms)
        last = evaluation.start(random.randint(1, 6), "-")
        out, error = last.communicate(timeout=LIMIT)
        if last.returncode != 0:
            return f"{harms}: the last attempt ended with {last.returncode}: {error}", 0
        lines = [json.loads(line) for line in (place / "results.jsonl").read_text().splitlines()]
        if [line["id"] for line in lines] != list(range(arguments.samples)) or "0 differ" not in out:
            return f"{harms}: other results: {out}", 0
        lost = [seconds for attempt, moment in enumerate(moments, 1) for seconds in evaluation.lost(attempt, moment)]
        longest = max([0.0, *lost])
        if longest > LOST_SECONDS:
            return f"{harms}: a result of {longest:.1f} s before the harm was lost", longest
        if arguments.directory:
            for file in directory.iterdir():
                file.unlink()
            directory.rmdir()
        return "", longest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fsgather")
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--directory")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        group = MemoryGroup()
    except OSError as error:
        group = None
        print(f"ignored: no process runs out of memory in a control group: {error}", flush=True)
    failed, longest, happened = 0, 0.0, Counter[str]()
    try:
        for number in range(arguments.evaluations):
            problem, lost = evaluate(arguments, number, group, happened)
            longest = max(longest, lost)
            if problem:
                failed += 1
                print(f"seed {arguments.seed + number}: {problem}", flush=True)
    finally:
        if group:
            group.remove()
    right = arguments.evaluations - failed
    print("attempts that were ended:", ", ".join(f"{harm} {count}" for harm, count in sorted(happened.items())))
    print(f"{right} of {arguments.evaluations} equal to one undisturbed process; at most the last {longest:.2f} s computed again (seed {arguments.seed})")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
