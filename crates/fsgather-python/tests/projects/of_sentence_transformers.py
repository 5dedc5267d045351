"""sentence-transformers: each rank encodes its share of a corpus; what it finds is joined by objects, and searched."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import tiny
import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer import modules

PACKAGE = "sentence-transformers"
PATCH = "torch"
WHAT = "shares of a corpus encoded, joined by `all_gather_object`, `semantic_search`"
OBJECTS = True
NAMES = True

_model: Any = None


def begin(patience: Any) -> None:
    """Makes a model, and meets."""
    global _model
    # Among ranks only the first one would save.
    place = tiny.saved(Path(os.environ["PROJECT_OUTPUT"]) / f"model-{os.environ['RANK']}", tiny.bert("BertModel"))
    dist.init_process_group("gloo", timeout=patience)
    _model = SentenceTransformer(modules=[modules.Transformer(place), modules.Pooling(64)], device="cpu")


def evaluate(share: Callable[[], None]) -> Any:
    """Nearest sentences of the first ten."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = list(range(rank, 600, size))
    vectors = _model.encode([tiny.text(number) for number in mine], convert_to_tensor=True, show_progress_bar=False)
    share()
    everybodys: list[Any] = [None] * size
    dist.all_gather_object(everybodys, dict(zip(mine, vectors)))
    corpus = {number: vector for part in everybodys for number, vector in part.items()}
    together = torch.stack([corpus[number] for number in sorted(corpus)])
    found = util.semantic_search(together[:10], together, top_k=3)
    return [[(hit["corpus_id"], round(hit["score"], 5)) for hit in hits] for hits in found]


def end() -> None:
    """Parts."""
    dist.destroy_process_group()
