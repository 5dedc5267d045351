"""TorchMetrics, unmodified: its metrics join tensors, which fsgather has not written, in a job whose objects are."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torchmetrics.classification import MulticlassAccuracy


def main() -> None:
    """A metric over all ranks, and what each of them had."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    metric = MulticlassAccuracy(num_classes=5)
    metric.update(torch.randn(10 + rank, 5), torch.randint(5, (10 + rank,)))
    alone = metric.tp.sum().item()
    everybodys = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, {"rank": rank, "right": alone})
    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{rank}"), "w") as output:
        output.write(f"accuracy {metric.compute().item()}\nright {everybodys}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
