"""Runs what projects test themselves with, as far as their packages carry it, without the switch and with it, and counts.

A suite passes here if with the switch the same tests pass as without. Names of suites as arguments choose some.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
LIMIT = 600


class Suite(NamedTuple):
    """How to run it."""

    needs: str
    patch: str
    command: tuple[str, ...]


def ranks(script: str, *arguments: str) -> tuple[str, ...]:
    """A script on two of them, in a module or by its path."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return (*launcher, *(() if script.endswith(".py") else ("-m",)), script, *arguments)


SUITES = {
    "torch-objects": Suite("torch", "torch+internal", (sys.executable, str(HERE / "torch_spawned.py"), "-v", "-k", "object")),
    "accelerate-ops": Suite("accelerate", "torch", ranks("accelerate.test_utils.scripts.test_ops")),
    "accelerate-sync": Suite("accelerate", "torch", ranks("accelerate.test_utils.scripts.test_sync")),
    "accelerate-script": Suite("accelerate", "torch", ranks("accelerate.test_utils.scripts.test_script")),
}


def outcomes(suite: Suite, place: Path, patched: bool) -> dict[str, str]:
    """How each test ended; a program that is one test is called ``all``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FSGATHER_")}
    kept.update(OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="1", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TMPDIR=str(place))
    if patched:
        kept.update(FSGATHER_PATCH=suite.patch, FSGATHER_DIR=str(place))
    said = place / ("said-with" if patched else "said-without")
    with open(said, "w+") as file, subprocess.Popen(
        suite.command, env=kept, cwd=place, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            # The launcher ends its children when it is asked politely.
            process.terminate()
            process.wait()
    text = said.read_text(errors="replace")
    found = {match[1]: match[2] for match in re.finditer(r"^(test_\w+) .*?\.\.\. (?:.*\n)*?.*?(ok|FAIL|ERROR|skipped)\b", text, re.M)}
    return found or {"all": "ok" if process.returncode == 0 else f"ended with {process.returncode}: {text[-600:]}"}


def main() -> int:
    """Runs the suites, says how it went."""
    failed = 0
    for name in sys.argv[1:] or SUITES:
        suite = SUITES[name]
        if importlib.util.find_spec(suite.needs) is None:
            print(f"SKIPPED {name}: {suite.needs} is not installed")
            continue
        with tempfile.TemporaryDirectory(prefix="fsgather-theirs-") as directory:
            without, switched = (outcomes(suite, Path(directory), patched) for patched in (False, True))
        counts = [f"{sum(end == 'ok' for end in ends.values())} of {len(ends)} passed" for ends in (without, switched)]
        print(f"{name}: without: {counts[0]}, with: {counts[1]}", flush=True)
        for test in sorted(without.keys() | switched.keys()):
            before, after = without.get(test, "did not run"), switched.get(test, "did not run")
            if before != after:
                print(f"  {test}: without: {before}; with: {after}")
                failed += before == "ok"
            elif before != "ok":
                print(f"  {test}: {before}, without and with")
    print(f"summary: {failed} tests fail with the switch alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
