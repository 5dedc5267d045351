"""Hugging Face evaluate: a metric of several processes, which it joins by files of its own and locks, and not by torch."""

from __future__ import annotations

import os
from typing import Any, Callable

import datasets
import evaluate as library
import torch.distributed as dist

PACKAGE = "evaluate"
PATCH = "torch"
WHAT = "`compute` of several processes: its own files; nothing goes our way"
OBJECTS = False
NAMES = False

_patience: Any = None
_times = 0


class Right(library.Metric):  # type: ignore[misc]
    """The share of right answers, and how many there were."""

    def _info(self) -> Any:
        features = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return library.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        right = sum(int(mine == theirs) for mine, theirs in zip(predictions, references))
        return {"right": right / len(predictions), "count": len(predictions)}


def begin(patience: Any) -> None:
    """Ranks of torch, as where a model was run before."""
    global _patience
    _patience = patience
    dist.init_process_group("gloo", timeout=patience)


def evaluate(share: Callable[[], None]) -> Any:
    """On rank 0."""
    global _times
    _times += 1
    rank, size = dist.get_rank(), dist.get_world_size()
    where = os.path.join(os.environ["PROJECT_OUTPUT"], "metrics")
    which = {"num_process": size, "process_id": rank, "experiment_id": f"time-{_times}", "cache_dir": where}
    metric = Right(timeout=_patience.total_seconds(), **which)
    mine = range(rank, 300, size)
    for number in mine:
        metric.add(prediction=number % 3, reference=number % 2)
        if number // size == 10:
            share()
    found = metric.compute()
    return found


def end() -> None:
    """Parts."""
    dist.destroy_process_group()
