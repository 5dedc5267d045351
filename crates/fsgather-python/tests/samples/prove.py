"""Kills evaluations at random moments, restarts them with other numbers of ranks, and compares the results with those of one undisturbed process.

usage: prove.py FSGATHER [--evaluations 100] [--seed S] [--samples 600] [--directory DIR]
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
from pathlib import Path

RANK = Path(__file__).parent / "rank.py"
HARMS = ["kill a rank", "kill all", "terminate", "exception", "memory"]
LOST_SECONDS = 2.0
"""A killed rank loses its last second; a machine under load may begin to write later than it should."""
LIMIT = 300
"""Seconds after which an attempt hangs."""


class Evaluation:
    """One evaluation of several attempts."""

    def __init__(self, fsgather: str, place: Path, directory: Path, samples: int) -> None:
        self.fsgather, self.logs, self.directory, self.samples = fsgather, place, directory, samples
        self.attempt = 0
        self.environment = {**os.environ, "FSGATHER_DIR": str(place)}

    def start(self, ranks: int, harm: str) -> subprocess.Popen[str]:
        # Attempts that added nothing leave no file, and so no number.
        self.attempt += 1
        words = [self.fsgather, "run", "-n", str(ranks), "--no-prefix", "--", sys.executable, str(RANK)]
        words += [str(self.directory), str(self.logs), str(self.samples), harm, str(self.attempt)]
        output = subprocess.PIPE
        return subprocess.Popen(words, env=self.environment, stdout=output, stderr=output, text=True, start_new_session=True)

    def disturbed(self, ranks: int, harm: str, after: float) -> float:
        """Runs an attempt that comes to harm, and returns when that was."""
        own = harm if harm in ("exception", "memory") else "-"
        known = set(self.logs.glob("missing-*"))
        run = self.start(ranks, own)
        while run.poll() is None and set(self.logs.glob("missing-*")) == known:
            time.sleep(0.01)
        time.sleep(after)
        moment = time.time()
        if run.poll() is None and own == "-":
            children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
            ranks_of_run = [int(pid) for pid in children if str(RANK) in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")]
            if harm == "kill a rank" and ranks_of_run:
                os.kill(random.choice(ranks_of_run), signal.SIGKILL)
            elif harm == "kill all":
                os.killpg(run.pid, signal.SIGKILL)
            else:
                run.terminate()
        run.communicate(timeout=LIMIT)
        return moment if own == "-" else time.time()

    def lost(self, attempt: int, moment: float) -> list[float]:
        """How long before the harm results were added that the next attempt misses."""
        missing = set((self.logs / f"missing-{attempt + 1}").read_text().split())
        lines = [line.split() for log in self.logs.glob(f"{attempt}-*") for line in log.read_text().splitlines()]
        return [moment - float(added) for added, number in lines if number in missing]


def evaluate(arguments: argparse.Namespace, number: int, seed: int) -> tuple[str, float]:
    random.seed(seed)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        directory = Path(arguments.directory or place) / f"samples-of-{os.getpid()}-{number}"
        evaluation = Evaluation(arguments.fsgather, place, directory, arguments.samples)
        harms = [random.choice(HARMS) for _ in range(2)]
        moments = [evaluation.disturbed(random.randint(1, 6), harm, random.uniform(0, 1.2)) for harm in harms]
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
    parser.add_argument("--samples", type=int, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--directory")
    arguments = parser.parse_args()
    failed, longest = 0, 0.0
    for number in range(arguments.evaluations):
        problem, lost = evaluate(arguments, number, arguments.seed + number)
        longest = max(longest, lost)
        if problem:
            failed += 1
            print(f"seed {arguments.seed + number}: {problem}", flush=True)
    right = arguments.evaluations - failed
    print(f"{right} of {arguments.evaluations} equal to one undisturbed process; at most the last {longest:.2f} s computed again (seed {arguments.seed})")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
