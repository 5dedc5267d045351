"""The Trainer of transformers: an evaluation, whose tensors go one way and whose objects, where it is told so, the other."""

from __future__ import annotations

import os
from typing import Any, Callable

import numpy
import tiny
import torch
from transformers import Trainer, TrainingArguments

PACKAGE = "transformers"
PATCH = "torch"
WHAT = "`Trainer.evaluate` with `eval_use_gather_object`"
OBJECTS = True
# Between its objects it pads tensors, which stays with gloo and may fail there.
NAMES = False

_arguments: Any = None


def begin(patience: Any) -> None:
    """Meets."""
    global _arguments
    quiet = {"report_to": [], "disable_tqdm": True}
    meeting = {"use_cpu": True, "ddp_backend": "gloo", "ddp_timeout": int(patience.total_seconds())}
    where = os.path.join(os.environ["PROJECT_OUTPUT"], "trainer")
    _arguments = TrainingArguments(where, per_device_eval_batch_size=8, eval_use_gather_object=True, **meeting, **quiet)


class Sentences(torch.utils.data.Dataset[Any]):
    """As many as fill all batches: of a last one that is not full the Trainer itself drops some, with objects."""

    def __init__(self, share: Callable[[], None]) -> None:
        self._share = share
        self._tokenizer = tiny.tokenizer()
        self._taken = 0

    def __len__(self) -> int:
        return 288

    def __getitem__(self, number: int) -> dict[str, Any]:
        self._taken += 1
        if self._taken == 60:
            self._share()
        return {"input_ids": self._tokenizer(tiny.text(number))["input_ids"], "labels": number % 2}


def measure(prediction: Any) -> dict[str, float]:
    """On all ranks, of all samples."""
    # With objects they come batch by batch.
    scores, labels = numpy.asarray(prediction.predictions).reshape(-1, 2), numpy.asarray(prediction.label_ids).reshape(-1)
    return {"count": len(labels), "right": float((scores.argmax(-1) == labels).mean())}


def evaluate(share: Callable[[], None]) -> Any:
    """One evaluation."""
    model = tiny.bert("BertForSequenceClassification", num_labels=2)
    trainer = Trainer(model, _arguments, eval_dataset=Sentences(share), compute_metrics=measure, processing_class=tiny.tokenizer())
    found = trainer.evaluate()
    return {name: value for name, value in found.items() if "runtime" not in name and "per_second" not in name and "time" not in name}


def end() -> None:
    """Parts."""
    torch.distributed.destroy_process_group()
