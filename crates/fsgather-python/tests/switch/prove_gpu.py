"""Whether jobs with tensors on GPUs get with ``FSGATHER_PATCH`` what they get without; see ``scripts/test-gpu.sh``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import prove
import torch


def same(directory: Path, backend: str, ranks: int) -> None:
    """Runs the job both ways, and compares line by line."""
    directory.mkdir()
    plain = prove.start("gpu.py", directory / "plain", ranks=ranks, SWITCH_CASE=backend)
    assert prove.NOTICE not in plain, plain
    said = prove.start("gpu.py", directory / "patched", ranks=ranks, SWITCH_CASE=backend, FSGATHER_PATCH="torch", FSGATHER_DIR=str(directory))
    assert said.count(prove.NOTICE) == 1, said
    before, after = (prove.results(directory / name, ranks) for name in ("plain", "patched"))
    for rank in before:
        for old, new in zip(before[rank].splitlines(), after[rank].splitlines()):
            print(f"{'same     ' if old == new else 'DIFFERENT'} {backend}, {rank}: {old[:200]}" + ("" if old == new else f"\n  with: {new[:400]}"))
    assert before == after, backend


def main() -> int:
    """Tries each backend that these GPUs allow."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        print("SKIPPED: gpu: torch sees no GPU here")
        return 0
    failed = 0
    for backend, needed in (("cpu:gloo,cuda:gloo", 1), ("nccl", 2), ("cpu:gloo,cuda:nccl", 2)):
        if count < needed:
            print(f"SKIPPED: {backend}: each of two ranks needs a GPU of its own, and there is {count}")
            continue
        with tempfile.TemporaryDirectory(prefix="fsgather-gpu-") as directory:
            try:
                same(Path(directory) / "job", backend, 2)
                print(f"ok {backend}")
            except AssertionError as error:
                print(f"FAILED {backend}: {error}")
                failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
