"""Whether jobs with tensors on GPUs get through fsgather what they get without, and its own functions what they promise; see ``scripts/prove gpu``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Callable

import gpu_own
import prove
import torch

RANKS = 2

JOBS: list[tuple[str, str, dict[str, str], int]] = [
    ("cpu:gloo,cuda:gloo", "cpu:gloo,cuda:gloo", {"FSGATHER_PATCH": "torch"}, 1),
    ("cpu:gloo,cuda:nccl", "cpu:gloo,cuda:nccl", {"FSGATHER_PATCH": "torch"}, 1),
    ("cpu:gloo,cuda:nccl", "cpu:fsgather,cuda:nccl", {}, 1),
    ("nccl", "nccl", {"FSGATHER_PATCH": "torch"}, RANKS),
]
"""The backend of a job and the one it is given instead, the variables that switch it, and how many GPUs it needs."""


def same(directory: Path, backend: str, instead: str, variables: dict[str, str]) -> None:
    """Runs the job both ways, and compares line by line."""
    plain = prove.start("gpu.py", directory / "plain", ranks=RANKS, SWITCH_CASE=backend)
    assert prove.NOTICE not in plain, plain
    prove.start("gpu.py", directory / "with", ranks=RANKS, SWITCH_CASE=instead, FSGATHER_DIR=str(directory), **variables)
    before, after = (prove.results(directory / name, RANKS) for name in ("plain", "with"))
    for rank in before:
        for old, new in zip(before[rank].splitlines(), after[rank].splitlines()):
            print(f"{'same     ' if old == new else 'DIFFERENT'} {rank}: {old[:200]}" + ("" if old == new else f"\n  with: {new[:400]}"))
    assert before == after, "not the same"


def own(directory: Path, case: str) -> None:
    """Runs a job of fsgather's own functions, and shows what it says."""
    prove.start("gpu_own.py", directory / "own", ranks=RANKS, SWITCH_CASE=case, FSGATHER_DIR=str(directory))
    for rank, said in prove.results(directory / "own", RANKS).items():
        print(f"{rank}: {said.strip()}")


def nothing_is_left(directory: Path) -> None:
    """Whether the shared directory is as it was."""
    left = sorted(path.name for path in (directory / "all_gather_via_filesys").glob("*"))
    assert not left, f"left: {left}"


def main() -> int:
    """Tries each backend that these GPUs allow, and the functions without one; how many failed."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        print("SKIPPED: gpu: torch sees no GPU here")
        return 0
    failed = 0

    def try_one(name: str, job: Callable[[Path], None]) -> None:
        nonlocal failed
        with tempfile.TemporaryDirectory(prefix="fsgather-gpu-") as directory:
            try:
                job(Path(directory))
                nothing_is_left(Path(directory))
                print(f"ok {name}")
            except AssertionError as error:
                print(f"FAILED {name}: {error}")
                failed += 1

    for case in gpu_own.CASES:
        name = case.__name__
        try_one(f"own functions, {name}", lambda directory: own(directory, name))
    for backend, instead, variables, needed in JOBS:
        name = f"{backend}, with {variables or instead}"
        if count < needed:
            print(f"SKIPPED: {name}: each of {RANKS} ranks needs a GPU of its own, and there is {count}")
            continue
        try_one(name, lambda directory: same(directory, backend, instead, variables))
    return failed


if __name__ == "__main__":
    sys.exit(main())
