"""Accelerate: the predictions of each batch by ``gather_for_metrics``, and one object of each rank by ``gather_object``."""

from __future__ import annotations

from typing import Any, Callable

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, gather_object
from torch.utils.data import DataLoader

PACKAGE = "accelerate"
PATCH = "torch"
WHAT = "`gather_for_metrics` of objects, `gather_object`"
OBJECTS = True
NAMES = True

_accelerator: Any = None


def begin(patience: Any) -> None:
    """Meets."""
    global _accelerator
    _accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=patience)])


def evaluate(share: Callable[[], None]) -> Any:
    """Boxes of 400 images, batch by batch, as detection programs do it."""
    images = torch.arange(402, dtype=torch.float32)
    found: list[Any] = []
    for number, batch in enumerate(_accelerator.prepare(DataLoader(images, batch_size=8))):
        mine = [{"image": int(image), "boxes": image + torch.arange(1200.0).view(300, 4)} for image in batch]
        if number == 5:
            share()
        found += _accelerator.gather_for_metrics(mine, use_gather_object=True)
    names = gather_object([f"rank {_accelerator.process_index}"])
    return [len(found), sum(entry["boxes"].double().sum().item() for entry in found), [entry["image"] for entry in found], names]


def end() -> None:
    """Parts."""
    _accelerator.end_training()
