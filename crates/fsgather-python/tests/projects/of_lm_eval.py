"""lm-evaluation-harness: a task of its own kind on a tiny random model, with the log of each sample, which rank 0 gathers as objects."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable

import tiny
import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

PACKAGE = "lm-eval"
PATCH = "torch"
WHAT = "`simple_evaluate` with `log_samples`"
OBJECTS = True
# Before its objects it has a barrier, which stays with gloo and fails there.
NAMES = False

_lm: Any = None
_tasks: Any = None

TASK = """
task: tiny
dataset_path: json
dataset_kwargs: {{data_files: {{test: {questions}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


class Shared(HFLM):  # type: ignore[misc]
    """Tells when a rank is in the midst of its share."""

    share: Callable[[], None]

    def loglikelihood(self, requests: Any, *others: Any, **named: Any) -> Any:
        """As it is."""
        self.share()
        return super().loglikelihood(requests, *others, **named)


def begin(patience: Any) -> None:
    """Meets by Accelerate, as the harness does; on processors it leaves it to the program to say which rank it is."""
    global _lm, _tasks
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=patience)])
    _lm = Shared(pretrained=tiny.gpt2(), tokenizer=tiny.tokenizer(), batch_size=16, max_length=64)
    _lm.accelerator = accelerator
    _lm._rank, _lm._world_size = accelerator.process_index, accelerator.num_processes
    where = Path(os.environ["PROJECT_OUTPUT"]) / f"task-{accelerator.process_index}"
    where.mkdir()
    questions = [{"question": tiny.text(n), "choices": ["word1", "word2", "word3"], "answer": n % 3} for n in range(300)]
    (where / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (where / "tiny.yaml").write_text(TASK.format(questions=where / "questions.jsonl"))
    os.environ["HF_DATASETS_CACHE"] = str(where / "cache")
    _tasks = TaskManager(include_path=str(where), include_defaults=False)


def evaluate(share: Callable[[], None]) -> Any:
    """Accuracy, and what was logged of each sample, on rank 0."""
    _lm.share = share
    found = simple_evaluate(_lm, tasks=["tiny"], task_manager=_tasks, log_samples=True, bootstrap_iters=0, verbosity="ERROR")
    if not found:
        return None
    samples = found["samples"]["tiny"]
    return [found["results"]["tiny"], sorted((sample["doc_id"], str(sample["filtered_resps"])) for sample in samples)]


def end() -> None:
    """Parts."""
    torch.distributed.destroy_process_group()
