"""Times torch's object collectives against ours, in turn, on the ranks of one job.

    torchrun --nproc-per-node 8 torch_objects.py [--kinds small boxes array] [--only fsgather] [--seconds 20]

For each kind of object: ``all_gather_object`` to everybody and ``gather_object`` to rank 0. One iteration's time is the
slowest rank's; medians. With ``--only`` one side alone, so that the peak memory of rank 0 is that side's.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import time
from typing import Any, Callable, Optional

import numpy
import torch.distributed as dist

import fsgather

LABELS = ["person", "bicycle", "car", "dog", "horse", "boat"]


def objects(kind: str, rank: int) -> Any:
    """64 bytes; 16 MiB of boxes as a detector reports them, when pickled; 64 MiB of an array."""
    if kind == "small":
        return bytes([rank]) * 64
    if kind == "array":
        return numpy.full(8 << 20, rank, dtype="f8")
    noise = random.Random(rank)
    return [
        {
            "image_id": rank * 1_000_000 + number,
            "bbox": [noise.random() * 640 for _ in range(4)],
            "score": noise.random(),
            "label": LABELS[number % len(LABELS)],
        }
        for number in range(254_000)
    ]


def torch_all(value: Any) -> Any:
    result: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(result, value)
    return result


def torch_root(value: Any) -> Optional[list[Any]]:
    result: Optional[list[Any]] = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(value, result, dst=0)
    return result


SIDES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "torch": (torch_all, torch_root),
    "fsgather": (fsgather.all_gather, fsgather.gather_object),
}


def slowest(seconds: float) -> float:
    """The longest time that any rank has taken."""
    return max(fsgather.all_gather(seconds))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", nargs="+", default=["small", "boxes", "array"])
    parser.add_argument("--only", choices=SIDES)
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long each row may take")
    chosen = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    sides = [chosen.only] if chosen.only else list(SIDES)
    for kind in chosen.kinds:
        value = objects(kind, rank)
        for index, call in enumerate(["all_gather", "gather to 0"]):
            times: dict[str, list[float]] = {side: [] for side in sides}
            begun = time.perf_counter()
            turn = 0
            while True:
                for side in sides:
                    fsgather.barrier()
                    start = time.perf_counter()
                    result = SIDES[side][index](value)
                    took = slowest(time.perf_counter() - start)
                    del result
                    if turn > 0:
                        times[side].append(took)
                turn += 1
                enough = fsgather.broadcast_object(
                    turn > 3 and (time.perf_counter() - begun > chosen.seconds or turn > 500)
                )
                if enough:
                    break
            if rank == 0:
                medians = {side: statistics.median(taken) for side, taken in times.items()}
                row = "  ".join(f"{side} {1000 * median:9.3f} ms" for side, median in medians.items())
                gain = f"  {medians['torch'] / medians['fsgather']:6.1f}x" if len(medians) == 2 else ""
                print(f"{kind:6} {call:12} {row}{gain}  ({len(times[sides[0]])} runs)", flush=True)
        del value
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if rank == 0 and chosen.only:
            print(json.dumps({"kind": kind, "only": chosen.only, "peak_rss_mib_of_rank_0": peak // 1024}), flush=True)
    fsgather.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
