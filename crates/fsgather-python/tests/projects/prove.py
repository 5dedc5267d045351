"""Runs jobs of real projects on three ranks, without the switch and with it, judges what comes of them, and writes the table of ``docs/works-with.md``.

Needs a Python with the projects, and fsgather in ``PYTHONPATH`` with the metadata of an installed package: ``scripts/prove projects``
provides both. Names of projects as arguments choose some of them.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Optional

import table

HERE = Path(__file__).resolve().parent
RANKS = 3
OTHERS = (0, 1)
"""Those that come to no harm."""
PATIENCE = 40
"""Time-out of the process group in seconds: fsgather warns after 30."""
LIMIT = 240
"""No rank takes more seconds without a word, however busy the machine is."""
NOTICE = "object collectives of this job go through fsgather"


class Project(NamedTuple):
    """What the head of its file says."""

    name: str
    package: str
    patch: str
    what: str
    objects: bool
    """Whether something of it goes our way."""
    names: bool
    """Whether a rank that is lost is missed in an object collective, and so named."""
    has_own: bool
    """Whether it has a case of its own, that it cannot do without the switch."""
    can_resume: bool
    """Whether fewer ranks can complete an evaluation of which a rank was killed."""

    @classmethod
    def read(cls, name: str) -> Project:
        """Without running it."""
        tree = ast.parse((HERE / f"of_{name}.py").read_text())
        given = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
        }
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        heads = (given[head] for head in ("PACKAGE", "PATCH", "WHAT", "OBJECTS", "NAMES"))
        return cls(name, *heads, "own" in functions, "resume" in functions)

    def version(self) -> Optional[str]:
        """The installed one."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None


ALL = sorted(path.stem.removeprefix("of_") for path in HERE.glob("of_*.py"))


class Job(NamedTuple):
    """What the ranks have left."""

    said: str
    measured: list[dict[str, Any]]
    told: dict[int, dict[str, Any]]
    """What each of the others was told of harm; nothing of those that heard nothing."""


def run(project: Project, case: str, patched: bool, place: Path) -> Job:
    """Runs one case, without a launcher that would end all ranks with the first."""
    # An evaluation is resumed without the victim, where it was killed.
    count = len(OTHERS) if case == "resume" else RANKS
    place.mkdir(exist_ok=case == "resume")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FSGATHER_")}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    kept.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), NODE_RANK="0")
    kept.update(PROJECT_OUTPUT=str(place), PROJECT_PATIENCE=str(PATIENCE), OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    # Whoever asks a network gets no answer.
    kept.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=str(place / "hf"), ACCELERATE_USE_CPU="1", CUDA_VISIBLE_DEVICES="")
    if patched:
        kept.update(FSGATHER_PATCH=project.patch, FSGATHER_DIR=str(place))
    files = [open(place / f"said-{rank}", "w+") for rank in range(count)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / "rank.py"), project.name, case],
            env={**kept, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=place,
            stdout=files[rank],
            stderr=subprocess.STDOUT,
        )
        for rank in range(count)
    ]
    try:
        awaited = range(RANKS) if case in ("well", "own") else OTHERS
        ended = wait_for([ranks[rank] for rank in awaited], place / "harmed", {"well": LIMIT, "own": 2 * PATIENCE}.get(case, LIMIT))
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        for file in files:
            file.close()
    said = "".join((place / f"said-{rank}").read_text(errors="replace") for rank in range(count))
    if case == "well":
        codes = [process.returncode for process in ranks]
        assert ended and codes == [0] * RANKS, f"{project.name} ended with {codes}:\n{said[-3000:]}"
    elif case != "own":
        assert (place / "harmed").exists(), f"{project.name} did not come so far:\n{said[-3000:]}"
    return Job(said, [read(place / f"measured-{rank}") for rank in range(RANKS)], {rank: told for rank in OTHERS if (told := read(place / f"told-{rank}"))})


def read(path: Path) -> Any:
    """What a rank has written there, if it has."""
    return json.loads(path.read_text()) if path.exists() else None


def wait_for(ranks: list[subprocess.Popen[bytes]], harmed: Path, limit: float) -> bool:
    """Whether they end: within ``limit``, and not much later than the time-out once one of them has come to harm."""
    deadline = time.monotonic() + limit
    was_harmed = False
    while any(process.poll() is None for process in ranks):
        if not was_harmed and harmed.exists():
            was_harmed, deadline = True, time.monotonic() + 2 * PATIENCE
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def judged(project: Project, place: Path) -> dict[str, Any]:
    """Runs all cases; what is found. Raises ``AssertionError`` where a promise does not hold."""
    plain, switched = run(project, "well", False, place / "well"), run(project, "well", True, place / "well-switched")
    for rank in range(RANKS):
        before, after = plain.measured[rank]["result"], switched.measured[rank]["result"]
        assert before == after, f"{project.name}: rank {rank} found {str(before)[:500]} without, and {str(after)[:500]} with the switch"
    assert NOTICE not in plain.said and switched.said.count(NOTICE) == int(project.objects), switched.said[-3000:]
    both = (plain, switched)
    found: dict[str, Any] = {
        "version": project.version(),
        "what": project.what,
        "patch": project.patch,
        "seconds": [max(rank["seconds"] for rank in job.measured) for job in both],
        "mib": [max(rank["mib"] for rank in job.measured) for job in both],
    }
    for harm in ("killed", "silent"):
        # Most of the time they wait.
        with ThreadPoolExecutor() as at_once:
            jobs = list(at_once.map(lambda patched: run(project, harm, patched, place / f"{harm}-{patched}"), (False, True)))
        found[harm] = [table.in_short(list(job.told.values()), len(OTHERS), 2 * PATIENCE) for job in jobs]
        for patched, job in enumerate(jobs):
            for rank, told in job.told.items():
                print(f"     {harm}, {'with' if patched else 'without'}: rank {rank} after {told['seconds']:.1f} s: {told['kind']}: {told['text'][:300]!r}")
        if project.names:
            for told in (jobs[1].told.get(rank, {"text": "nothing"}) for rank in OTHERS):
                assert re.search(r"\brank 2 on \S+ \(pid \d+", told["text"]), f"{project.name}: {harm}: {told}"
        warned = [line for line in jobs[1].said.splitlines() if "still waiting" in line]
        if harm == "silent":
            found["warning"] = warned[0] if warned else ""
    if project.can_resume:
        for patched in (False, True):
            resumed = run(project, "resume", patched, place / f"killed-{patched}")
            texts = [resumed.told.get(rank, {"text": "nothing"})["text"] for rank in OTHERS]
            assert texts == [repr("right")] * len(OTHERS), f"{project.name}: resumed: {texts}\n{resumed.said[-3000:]}"
    if project.has_own:
        found["own"] = []
        for patched in (False, True):
            told = run(project, "own", patched, place / f"own-{patched}").told
            found["own"].append(sorted({each["text"] if not each["kind"] else table.in_short([each], 1, PATIENCE) for each in told.values()}))
        assert found["own"][1] == [repr("right")], found["own"]
    return found


def main() -> int:
    """Runs the projects, says how it went."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--table", action="store_true")
    arguments.add_argument("--kept", type=Path, required=True, help="where what was found stays")
    arguments.add_argument("names", nargs="*", choices=[*ALL, []])
    given = arguments.parse_args()
    kept = read(given.kept) or {}
    outcomes = []
    for project in map(Project.read, given.names or ALL):
        if project.version() is None:
            print(f"SKIPPED {project.name}: {project.package} is not installed", flush=True)
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fsgather-projects-") as directory:
            try:
                kept[project.name] = judged(project, Path(directory))
            except AssertionError as error:
                print(f"FAILED {project.name}: {error}", flush=True)
                outcomes.append(False)
                continue
        print(f"ok {project.name} {json.dumps(kept[project.name])} ({time.monotonic() - began:.0f} s)", flush=True)
        outcomes.append(True)
        given.kept.write_text(json.dumps(kept, indent=1))
    if given.table:
        table.write(kept)
    print(f"summary: {outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if outcomes and all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
