"""TorchMetrics: states that are sums, joined tensors, and lists of which each rank has its own number."""

from __future__ import annotations

import os
from typing import Any, Callable

import torch
import torch.distributed as dist
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy
from torchmetrics.retrieval import RetrievalMRR
from torchmetrics.text import ROUGEScore

PACKAGE = "torchmetrics"
PATCH = "torch,torchmetrics"
WHAT = "`Metric.sync`: sums, joined tensors, lists"
OBJECTS = True
NAMES = True


def begin(patience: Any) -> None:
    """Meets."""
    dist.init_process_group("gloo", timeout=patience)


def samples(number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, classes and queries of one batch."""
    torch.manual_seed(number)
    return torch.rand(64), torch.randint(2, (64,)), torch.randint(10, (64,))


def evaluate(share: Callable[[], None]) -> Any:
    """As many batches on each rank, since otherwise TorchMetrics alone would not come to an end."""
    return over([3 * step + dist.get_rank() for step in range(30)], share)


def over(batches: list[int], share: Callable[[], None]) -> Any:
    """What all metrics together say of these batches, and those of other ranks."""
    metrics = MetricCollection([MulticlassAccuracy(num_classes=2, average="micro"), BinaryAUROC(), RetrievalMRR()], compute_groups=False)
    text = ROUGEScore(rouge_keys="rouge1")
    for place, number in enumerate(batches):
        scores, classes, queries = samples(number)
        metrics["MulticlassAccuracy"].update((scores > 0.5).long(), classes)
        metrics["BinaryAUROC"].update(scores, classes)
        metrics["RetrievalMRR"].update(scores, classes, indexes=queries + 100 * number)
        text.update(f"word{number} a b", f"word{number % 7} a b")
        if place == 5:
            share()
    return {name: round(float(value), 6) for name, value in {**metrics.compute(), **text.compute()}.items()}


def own() -> Any:
    """Lists of different lengths, one of them empty: the same as one process finds."""
    mine = {0: [0, 1, 2, 3, 4], 1: [5, 6], 2: []}[dist.get_rank()]
    found = over(mine, lambda: None)
    dist.destroy_process_group()
    os.environ["WORLD_SIZE"] = "1"
    return "right" if found == over([0, 5, 1, 6, 2, 3, 4], lambda: None) else f"wrong: {found}"


def end() -> None:
    """Parts."""
    dist.destroy_process_group()
