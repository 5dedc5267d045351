"""Lightning: a prediction writer that adds each batch to ``fsgather.samples``; a killed evaluation is completed by other ranks."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

import fsgather
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Subset

PACKAGE = "lightning"
PATCH = "torch"
WHAT = "prediction writer that adds to `fsgather.samples`; two ranks complete what three have begun"
# Lightning itself broadcasts some.
OBJECTS = True
NAMES = True

IMAGES = torch.arange(300.0)

_evaluations = 0


class Writer(BasePredictionWriter):
    """Adds the predictions of each batch as they come."""

    def __init__(self, samples: fsgather.Samples) -> None:
        super().__init__("batch")
        self.samples = samples

    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        prediction: Any,
        batch_indices: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """The positions are those in the part that was missing."""
        self.samples.add([self.samples.missing[position] for position in batch_indices], prediction)


class Module(LightningModule):
    """A linear layer."""

    def __init__(self, share: Optional[Callable[[], None]] = None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(1, 1200)
        self.share = share

    def predict_step(self, batch: torch.Tensor, number: int) -> Any:
        """Boxes of each image."""
        if number == 5 and self.share is not None:
            self.share()
        return [{"boxes": self.layer(image[None]).view(300, 4)} for image in batch]


def begin(patience: Any) -> None:
    """Meets; Lightning takes the process group that there is."""
    torch.distributed.init_process_group("gloo", timeout=patience)


def evaluate(share: Callable[[], None]) -> Any:
    """Sums of all results."""
    global _evaluations
    _evaluations += 1
    results = predict(_evaluations, share)
    return [list(results), sum(float(found["boxes"].double().sum()) for found in results.values())]


def directory(evaluation: int) -> str:
    """Where its results are kept."""
    return f"{os.environ['PROJECT_OUTPUT']}/samples-{evaluation}"


def predict(evaluation: int, share: Optional[Callable[[], None]] = None) -> fsgather.SampleResults:
    """Predicts what is missing of that evaluation."""
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    with fsgather.samples(directory(evaluation), expected=len(IMAGES)) as samples:
        strategy, ranks = DDPStrategy(), torch.distributed.get_world_size()
        trainer = Trainer(accelerator="cpu", devices=ranks, strategy=strategy, callbacks=[Writer(samples)], **quiet)
        trainer.predict(Module(share), DataLoader(Subset(IMAGES, samples.missing), batch_size=8), return_predictions=False)
        results = samples.gather(dst=None)
    assert results is not None
    return results


def resume() -> str:
    """Completes the evaluation of which a rank was killed, and compares it with one process over all images."""
    begun = len(fsgather.read_samples(directory(3)))
    assert 0 < begun < len(IMAGES), begun
    results = predict(3)
    with torch.inference_mode():
        whole = Module().predict_step(IMAGES, 0)
    same = [torch.equal(found["boxes"], wanted["boxes"]) for found, wanted in zip(results.values(), whole)]
    assert list(results) == list(range(len(IMAGES))) and all(same), f"{len(results)} results, {same.count(False)} differ"
    return "right"


def end() -> None:
    """Parts."""
    torch.distributed.destroy_process_group()
