"""An evaluation of MMEngine: a metric of the program's own on its unmodified base class, both ways of collecting.

Prints what it found to ``$SWITCH_OUTPUT``: it must be the same with ``FSGATHER_PATCH`` and without.
"""

from __future__ import annotations

import os
from typing import Any, Sequence

import torch
import torch.distributed as dist
from mmengine.dist import all_gather_object, broadcast_object_list, collect_results, gather_object
from mmengine.evaluator import BaseMetric

SAMPLES = 103


class Seen(BaseMetric):
    """Says which samples it was given, and in which order."""

    default_prefix = "seen"

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Keeps a result for each sample."""
        self.results.extend({"number": sample["number"], "boxes": sample["boxes"]} for sample in data_samples)

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        """On rank 0, with everybody's."""
        numbers = [result["number"] for result in results]
        boxes = torch.cat([result["boxes"] for result in results])
        return {"count": len(numbers), "in_order": numbers == list(range(SAMPLES)), "sum": float(boxes.sum())}


def evaluate(device: str, directory: Any = None) -> dict[str, Any]:
    """As a sampler without shuffling deals samples out: one by one, and the last round padded."""
    rank, size = dist.get_rank(), dist.get_world_size()
    metric = Seen(collect_device=device, collect_dir=directory)
    rounds = -(-SAMPLES // size)
    for step in range(rounds):
        number = (step * size + rank) % SAMPLES
        metric.process({}, [{"number": number, "boxes": torch.full((1000, 4), float(number))}])
    found: dict[str, Any] = metric.evaluate(SAMPLES)
    return found


def main() -> None:
    """Collects in every way."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    lines = [f"cpu {evaluate('cpu')}", f"gpu {evaluate('gpu')}"]
    lines.append(f"directory {evaluate('cpu', os.path.join(os.environ['SWITCH_OUTPUT'], 'collected'))}")
    with_none = [rank, None, rank + size] + ([None] if rank == 1 else [99])
    for device in ("cpu", "gpu"):
        lines.append(f"dropped and cut, {device}: {collect_results(with_none, 2 * size + 1, device)}")
        lines.append(f"uneven, {device}: {collect_results(list(range(rank)), 100, device)}")
    lines.append(f"objects {all_gather_object({'rank': rank})} {gather_object(rank, 2)}")
    objects = [rank, "text"]
    broadcast_object_list(objects, 3)
    lines.append(f"broadcast {objects}")
    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{rank}"), "w") as output:
        output.write("\n".join(lines) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
