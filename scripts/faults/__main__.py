"""A fault at each system call of real ranks: see scripts/proofs/faults.sh, which builds what this needs."""

import argparse
import collections
import os
import re
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults import Case, every, sample
from judgement import judge
from playing import TOOLS, VICTIMS, WORLDS, Stage


def options():
    parser = argparse.ArgumentParser(prog="scripts/prove faults")
    parser.add_argument("--seconds", type=float, default=180, help="how long cases are drawn (default 180)")
    parser.add_argument("--all", action="store_true", help="every case, however long it takes")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="what is drawn")
    parser.add_argument("--scenario", nargs="+", choices=[*WORLDS, *TOOLS], default=[*WORLDS, *TOOLS])
    parser.add_argument("--only", default="", help="a regular expression that cases have to match")
    parser.add_argument("--stalls", action="store_true", help="also pauses longer than all time-outs, half a minute each; --all has them")
    parser.add_argument("--directory", type=Path, help="where ranks share theirs, to try a file system (default below TMPDIR)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many worlds at once")
    parser.add_argument("--case", nargs="+", help="these cases, with all that was said")
    parser.add_argument("--counts", action="store_true", help="how often a good run makes each call, and no more")
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--injector", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only-parse", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


class Report:
    """Counts outcomes, and says what is wrong at once."""

    def __init__(self, loud):
        self.loud = loud
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.broken = 0

    def add(self, case, played):
        outcome, wrong = judge(case, played)
        with self.lock:
            self.counts[case.scenario, case.kind, outcome] += 1
            self.broken += bool(wrong)
            if wrong or self.loud:
                print(f"{'WRONG' if wrong else outcome} scripts/prove faults --case {case}  # {played.took:.1f} s, {played.hit}", flush=True)
                for line in wrong:
                    print(f"    {line}", flush=True)
            if self.loud:
                for title, processes in (("process", played.ended), ("next", played.next)):
                    for who, ended in enumerate(processes):
                        print(f"  {title} {who}: {ended.code} {ended.error}\n{indent(ended.out)}{indent(ended.err)}")
                print(f"  left: {played.left}, after clean: {played.left_after_clean}")

    def finish(self):
        outcomes = ["right", "some right", "error", "not reached"]
        print(f"{'':18}{''.join(f'{outcome:>13}' for outcome in outcomes)}")
        for scenario, kind in sorted({(scenario, kind) for scenario, kind, _ in self.counts}):
            print(f"{scenario:10}{kind:8}{''.join(f'{self.counts[scenario, kind, outcome]:13}' for outcome in outcomes)}")
        print(f"{sum(self.counts.values())} runs, {self.broken} wrong")


def indent(text):
    return "".join(f"      {line}\n" for line in text.splitlines())


def main():
    chosen = options()
    if chosen.only_parse:
        return 0
    stage = Stage(chosen.programs, chosen.injector, chosen.directory)
    report = Report(bool(chosen.case))
    if chosen.case:
        cases = [Case.parse(text) for text in chosen.case]
    else:
        counts = {}
        for scenario in chosen.scenario:
            for victim in VICTIMS[scenario]:
                played = stage.play(Case(scenario, victim, "-", 0, "none"))
                if any(ended.code != 0 for ended in played.ended + played.next) or played.left_after_clean:
                    sys.exit(f"{scenario} fails without a fault: {played}")
                counts[scenario, victim] = played.counts
                said = " ".join(f"{call}:{count}" for call, count in sorted(played.counts.items()))
                print(f"{scenario}, process {victim}: {sum(played.counts.values())} calls: {said}", flush=True)
        if chosen.counts:
            return 0
        everything = [case for case in every(counts, TOOLS) if re.search(chosen.only, str(case))]
        if not (chosen.all or chosen.stalls):
            everything = [case for case in everything if case.kind != "stall"]
        cases = sample(everything, chosen.seed)
        print(f"{len(cases)} cases" if chosen.all else f"{len(cases)} cases, drawn for {chosen.seconds:.0f} s with --seed {chosen.seed}", flush=True)
    until = None if chosen.all or chosen.case else time.monotonic() + chosen.seconds
    waiting = iter(cases)

    stopped = threading.Event()

    def work():
        while not stopped.is_set() and (until is None or time.monotonic() < until):
            with report.lock:
                case = next(waiting, None)
            if case is None:
                return
            report.add(case, stage.play(case))

    with ThreadPoolExecutor(chosen.jobs) as pool:
        working = [pool.submit(work) for _ in range(chosen.jobs)]
        # Also where it runs in the background, and would not hear of an interrupt.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for done in working:
                done.result()
        except KeyboardInterrupt:
            print("interrupted: what is under way is still judged", flush=True)
            # `timeout` says it twice.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            stopped.set()
            for done in working:
                done.result()
    report.finish()
    return 1 if report.broken else 0


sys.exit(main())
