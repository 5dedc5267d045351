"""A bounded gather with the name and parameters of the DPR code, written for this test."""

from __future__ import annotations

import pickle
from typing import Any

import torch.distributed as dist

CALLS: list[str] = []


def all_gather_list(data: Any, group: Any = None, max_size: int = 16384) -> list[Any]:
    """The list of all ranks' data, if each fits."""
    CALLS.append("all_gather_list")
    if len(pickle.dumps(data)) + 4 > max_size:
        raise ValueError("encoded data exceeds max_size")
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, data, group)
    return gathered
