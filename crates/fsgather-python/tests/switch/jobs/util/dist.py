"""A gather with the name and parameters of the MDETR code, written for this test."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

CALLS: list[str] = []


def all_gather(data: Any) -> list[Any]:
    """The list of all ranks' data."""
    CALLS.append("all_gather")
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, data)
    return gathered
