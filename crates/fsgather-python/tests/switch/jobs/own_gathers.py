"""Gathers as programs have them, for single functions in ``FSGATHER_PATCH``."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

CALLS: list[str] = []


def all_gather(obj: Any, group: Any = None) -> list[Any]:
    """The list, for everybody."""
    CALLS.append("all_gather")
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, obj, group)
    return gathered


def gather(data: Any, dst: int = 0, group: Any = None) -> list[Any]:
    """The list on one rank, nothing elsewhere."""
    CALLS.append("gather")
    gathered: Any = [None] * dist.get_world_size(group) if dist.get_rank() == dst else None
    dist.gather_object(data, gathered, dst, group)
    return gathered or []


def all_gather_flat(data: list[Any]) -> list[Any]:
    """One list: no gather, although it looks like one."""
    CALLS.append("all_gather_flat")
    return [entry for part in all_gather(data) for entry in part]


def all_gather_tensors(tensor: Any) -> Any:
    """Not objects: to be left alone."""
    CALLS.append("all_gather_tensors")
    return tensor
