"""Lightning: a prediction writer that joins everybody's predictions, ``self.all_gather`` and ``sync_dist`` of tensors."""

from __future__ import annotations

from typing import Any, Callable

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader

PACKAGE = "lightning"
PATCH = "torch"
WHAT = "prediction writer with `all_gather_object`, `all_gather` and `sync_dist` of tensors"
OBJECTS = True
NAMES = True

_patience: Any = None


def begin(patience: Any) -> None:
    """Lightning meets by itself."""
    global _patience
    _patience = patience


class Writer(BasePredictionWriter):
    """As in Lightning's manual, with all predictions on each rank in the place of one file of each."""

    def __init__(self) -> None:
        super().__init__("epoch")
        self.found: dict[int, float] = {}

    def write_on_epoch_end(self, trainer: Any, pl_module: Any, predictions: Any, batch_indices: Any) -> None:
        """When all batches are done."""
        everybodys: list[Any] = [None] * trainer.world_size
        torch.distributed.all_gather_object(everybodys, predictions)
        for batch in (batch for part in everybodys for batch in part):
            for sample in batch:
                self.found[sample["number"]] = float(sample["boxes"].double().sum())


class Module(LightningModule):
    """A linear layer."""

    def __init__(self, share: Callable[[], None]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(1, 1200)
        self.share = share
        self.seen: list[float] = []

    def validation_step(self, batch: torch.Tensor, number: int) -> None:
        """Tensors, which stay with gloo."""
        self.log("loss", self.layer(batch[:, None]).mean(), sync_dist=True, on_epoch=True)
        self.seen += self.all_gather(batch.sum()).tolist()

    def predict_step(self, batch: torch.Tensor, number: int) -> Any:
        """Objects."""
        if number == 5:
            self.share()
        return [{"number": int(sample), "boxes": self.layer(sample[None]).view(300, 4)} for sample in batch]


def evaluate(share: Callable[[], None]) -> Any:
    """Validates and predicts."""
    writer, module = Writer(), Module(share)
    strategy = DDPStrategy(process_group_backend="gloo", timeout=_patience)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", devices=3, strategy=strategy, callbacks=[writer], **quiet)
    samples = DataLoader(torch.arange(300.0), batch_size=8)
    loss = trainer.validate(module, samples, verbose=False)
    trainer.predict(module, samples, return_predictions=False)
    return [loss, module.seen, sum(writer.found.values()), sorted(writer.found) == list(range(300))]


def end() -> None:
    """Parts."""
    torch.distributed.destroy_process_group()
