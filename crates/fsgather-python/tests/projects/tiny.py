"""Models that are small and random, and the same in each process; nothing is loaded from anywhere."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

WORDS = [f"word{number}" for number in range(200)]


def text(number: int, words: int = 12) -> str:
    """The sentence of that number."""
    return " ".join(random.Random(number).choices(WORDS, k=words))


def tokenizer() -> Any:
    """One that knows the words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[EOS]"]
    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate([*special, *WORDS])}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "eos_token": "[EOS]"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=128, **named)


def bert(kind: str, **how: Any) -> Any:
    """An encoder of two layers: ``BertModel`` and what stands upon it."""
    import torch
    import transformers

    torch.manual_seed(1)
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    return getattr(transformers, kind)(transformers.BertConfig(vocab_size=205, **shape, **how)).eval()


def gpt2() -> Any:
    """A decoder of two layers."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    end = {"bos_token_id": 4, "eos_token_id": 4}
    return GPT2LMHeadModel(GPT2Config(vocab_size=205, n_embd=64, n_layer=2, n_head=2, n_positions=128, **end)).eval()


def saved(directory: Path, model: Any) -> str:
    """A directory to load it from, with the tokenizer."""
    model.save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return str(directory)
