"""MMEngine: a metric on its base class, which collects the results of all ranks by ``collect_results``."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist
from mmengine.evaluator import BaseMetric, Evaluator

PACKAGE = "mmengine"
PATCH = "torch,mmengine"
WHAT = "`BaseMetric.evaluate` (`collect_results`)"
OBJECTS = True
NAMES = True

SAMPLES = 300


class Boxes(BaseMetric):
    """Sees every sample once, in the order of the data set."""

    default_prefix = "boxes"

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Keeps a result for each sample."""
        self.results.extend({"number": sample["number"], "boxes": sample["boxes"]} for sample in data_samples)

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        """On rank 0, with everybody's."""
        numbers = [result["number"] for result in results]
        return {"in_order": numbers == list(range(SAMPLES)), "sum": sum(float(result["boxes"].sum()) for result in results)}


def begin(patience: Any) -> None:
    """Meets."""
    dist.init_process_group("gloo", timeout=patience)


def evaluate(share: Callable[[], None]) -> Any:
    """As a sampler without shuffling deals samples out."""
    evaluator = Evaluator(Boxes())
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(-(-SAMPLES // size)):
        number = (step * size + rank) % SAMPLES
        evaluator.process([{"number": number, "boxes": torch.full((2000, 4), float(number))}])
        if step == 10:
            share()
    return evaluator.evaluate(SAMPLES)


def end() -> None:
    """Parts."""
    dist.destroy_process_group()
