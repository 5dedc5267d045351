"""Random jobs with random harm, each of whose outcomes has to be right.

    scripts/prove soak --minutes 5      # builds what it needs; python3 scripts/soak builds nothing
    scripts/prove soak --only 1234567   # that round again

A round is one to three jobs at the same time in one directory. What they do, and what is done to them, follows from a number, the seed of
the round. A judge looks at what all ranks have said and how they ended (`judgement.py` lists what is right). Whatever it does not know to be
right fails the soak, and is kept with its seed, scripts and outputs. Exit code: 0 if everything was right, 1 if not, 2 if it could not begin.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from drawing import Round, draw
from judgement import judge
from playing import Programs, RoundSeen, play

TOP = Path(__file__).resolve().parents[2]


class Tally:
    """What has been seen so far, by all workers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next = 0
        self.kinds: collections.Counter[str] = collections.Counter()
        self.wrong: list[int] = []
        self.broken: set[int] = set()

    def take(self) -> int:
        """The number of the next round."""
        with self.lock:
            self.next += 1
            return self.next - 1


def one(seed: int, programs: Programs, base: Path, keep: Path, tally: Tally) -> list[str]:
    """Plays a round and judges it; what is wrong."""
    drawn = draw(seed, programs.python is not None)
    logs = Path(tempfile.mkdtemp(prefix="round-", dir=base.parent))
    seen = play(drawn, programs, base, logs)
    problems = judge(drawn, seen)
    with tally.lock:
        for job in drawn.jobs:
            tally.kinds[f"{job.mode}, {job.control}, {job.harm_kind}"] += 1
        if problems:
            tally.wrong.append(seed)
            tally.broken.update(map(rule_of, problems))
    if problems:
        save(drawn, seen, problems, logs, keep / str(seed))
        print(f"WRONG round {seed}, kept in {keep / str(seed)}", *problems, sep="\n    ", flush=True)
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir()
    shutil.rmtree(logs)
    return problems


def rule_of(problem: str) -> int:
    """Which rule was broken; each problem begins with its number, behind the job that it is about."""
    found = re.match(r"(?:job \d+: )?(\d+): ", problem)
    return int(found[1]) if found else 1


def save(drawn: Round, seen: RoundSeen, problems: list[str], logs: Path, place: Path) -> None:
    """Keeps everything that is known of a round."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(logs, place)
    text = json.dumps({"problems": problems, "round": asdict(drawn), "seen": asdict(seen)}, indent=1)
    (place / "round.json").write_text(text)


def arguments() -> argparse.Namespace:
    """What is asked for."""
    assert __doc__
    parser = argparse.ArgumentParser("scripts/soak", description=__doc__.splitlines()[0])
    built = TOP / "target/debug"
    parser.add_argument("--minutes", type=float, default=5, help="how long (default: 5)")
    parser.add_argument("--seed", type=int, help="the seed of the first round (default: from the clock)")
    parser.add_argument("--only", type=int, metavar="SEED", help="play this round alone, and keep it")
    parser.add_argument("--jobs", type=int, default=2, help="how many rounds at the same time (default: 2)")
    parser.add_argument("--rank", type=Path, default=built / "examples/rank", help="the example program of the tests")
    parser.add_argument("--fsgather", type=Path, default=built / "fsgather", help="the command")
    parser.add_argument("--python", type=Path, help="an interpreter with the Python package; without it no ranks are in Python")
    parser.add_argument(
        "--fail-on",
        type=int,
        nargs="+",
        metavar="RULE",
        help="exit with 1 only where one of these rules of judgement.py was broken (default: any)",
    )
    parser.add_argument("--only-parse", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--keep", type=Path, default=Path("soak-failures"), help="where wrong rounds are kept")
    return parser.parse_args()


def main() -> int:
    """Plays rounds until time is up."""
    asked = arguments()
    if asked.only_parse:
        return 0
    for program in (asked.rank, asked.fsgather, asked.python):
        if program is not None and not program.exists():
            print(f"there is no {program}: cargo build -p fsgather-cli -p fsgather-tests --bins --examples", file=sys.stderr)
            return 2
    if asked.python is None:
        print("ranks in Python: ignored: --python names no interpreter with the package", flush=True)
    programs = Programs(asked.rank.resolve(), asked.fsgather.resolve(), asked.python)
    tally = Tally()
    first = asked.seed if asked.seed is not None else int(time.time()) * 1000
    begun = time.monotonic()

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="soak-") as place:
            base = Path(place) / "shared"
            base.mkdir()
            if asked.only is not None:
                print(json.dumps(asdict(draw(asked.only, programs.python is not None)), indent=1))
                print("wrong" if one(asked.only, programs, base, asked.keep, tally) else "right")
                return
            while time.monotonic() - begun < asked.minutes * 60:
                number = tally.take()
                one(first + number, programs, base, asked.keep, tally)
                if (number + 1) % 100 == 0:
                    spent = time.monotonic() - begun
                    print(f"{number + 1} rounds, {len(tally.wrong)} wrong, {spent:.0f} s", flush=True)

    workers = 1 if asked.only is not None else asked.jobs
    with ThreadPoolExecutor(workers) as pool:
        # An error in a worker fails the soak.
        for worker in [pool.submit(work) for _ in range(workers)]:
            worker.result()
    if asked.only is None:
        for kind, count in sorted(tally.kinds.items()):
            print(f"{count:6} jobs: {kind}")
        print(f"soak: seed {first}, {tally.next} rounds, {len(tally.wrong)} wrong {tally.wrong[:20]}")
    counts = tally.broken if asked.fail_on is None else tally.broken.intersection(asked.fail_on)
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
