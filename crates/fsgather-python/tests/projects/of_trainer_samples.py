"""The Trainer of transformers: each batch of an evaluation goes to ``fsgather.samples``; a killed evaluation is completed by other ranks."""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

import fsgather
import tiny
import torch
from torch.utils.data import Dataset, Subset
from transformers import Trainer, TrainingArguments

PACKAGE = "transformers"
PATCH = "torch"
WHAT = "`Trainer.prediction_step` that adds to `fsgather.samples`; two ranks complete what three have begun"
# Those of the samples.
OBJECTS = True
# It averages the loss by tensors, which stays with gloo and may fail there.
NAMES = False

COUNT = 290
"""Not a multiple of a batch: ranks repeat samples."""

_arguments: Any = None
_evaluations = 0


def begin(patience: Any) -> None:
    """Meets."""
    global _arguments
    quiet = {"report_to": [], "disable_tqdm": True}
    meeting = {"use_cpu": True, "ddp_backend": "gloo", "ddp_timeout": int(patience.total_seconds())}
    where = os.path.join(os.environ["PROJECT_OUTPUT"], "trainer")
    # The ids are no argument of the model.
    _arguments = TrainingArguments(where, per_device_eval_batch_size=8, remove_unused_columns=False, **meeting, **quiet)


class Sentences(Dataset[Any]):
    """Sentences with their numbers."""

    def __init__(self, share: Optional[Callable[[], None]] = None) -> None:
        self._share = share
        self._tokenizer = tiny.tokenizer()
        self._taken = 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> dict[str, Any]:
        self._taken += 1
        if self._taken == 60 and self._share is not None:
            self._share()
        return {"input_ids": self._tokenizer(tiny.text(number))["input_ids"], "labels": number % 2, "id": number}


class Evaluator(Trainer):
    """Adds the scores of each batch as they come, and gathers none itself."""

    samples: fsgather.Samples

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        """One batch."""
        ids = inputs.pop("id")
        loss, scores, _ = super().prediction_step(model, inputs, False, ignore_keys)
        self.samples.add(ids, scores)
        return loss, None, None


def model() -> Any:
    """Made from a configuration."""
    return tiny.bert("BertForSequenceClassification", num_labels=2)


def evaluate(share: Callable[[], None]) -> Any:
    """Sums of all results."""
    global _evaluations
    _evaluations += 1
    results = score(_evaluations, share)
    return [list(results), sum(float(scores.double().sum()) for scores in results.values())]


def directory(evaluation: int) -> str:
    """Where its results are kept."""
    return f"{os.environ['PROJECT_OUTPUT']}/samples-{evaluation}"


def score(evaluation: int, share: Optional[Callable[[], None]] = None) -> fsgather.SampleResults:
    """Scores what is missing of that evaluation."""
    with fsgather.samples(directory(evaluation), expected=COUNT) as samples:
        missing = Subset(Sentences(share), samples.missing)
        trainer = Evaluator(model(), _arguments, eval_dataset=missing, processing_class=tiny.tokenizer())
        trainer.samples = samples
        trainer.evaluate()
        results = samples.gather(dst=None)
    assert results is not None
    return results


def resume() -> str:
    """Completes the evaluation of which a rank was killed, and compares it with one process over all sentences."""
    begun = len(fsgather.read_samples(directory(3)))
    assert 0 < begun < COUNT, begun
    results = score(3)
    sentences, alone = Sentences(), model()
    with torch.inference_mode():
        whole = [alone(input_ids=torch.tensor([sentences[number]["input_ids"]])).logits[0] for number in range(COUNT)]
    differences = [float((found - wanted).abs().max()) for found, wanted in zip(results.values(), whole)]
    # Batches of another size round differently.
    assert list(results) == list(range(COUNT)) and max(differences) < 1e-5, f"{len(results)} results differ by {max(differences)}"
    return "right"


def end() -> None:
    """Parts."""
    torch.distributed.destroy_process_group()
