"""Gathers with the names and parameters of the SAM code, written for this test; they go through torch."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

CALLS: list[str] = []


def all_gather(data: Any, force_cpu: bool = False, force_filesys: bool = False, filesys_save_dir: Any = None) -> Any:
    """The list of all ranks' data, by a path that variables choose."""
    CALLS.append("all_gather")
    if dist.get_world_size() == 1:
        return [data]
    if os.getenv("MDETR_FILESYS_REDUCE_RANK_0_ONLY") == "1":
        return all_gather_via_filesys(data, filesys_save_dir, gather_to_rank_0_only=True)
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, data)
    return gathered


def all_gather_via_filesys(data: Any, filesys_save_dir: Any = None, gather_to_rank_0_only: bool = False) -> Any:
    """The same, where only rank 0 may want it."""
    CALLS.append("all_gather_via_filesys")
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, data)
    return gathered if dist.get_rank() == 0 or not gather_to_rank_0_only else []


def gather_to_rank_0_via_filesys(data: Any, filesys_save_dir: Any = None) -> Any:
    """For rank 0 alone."""
    return all_gather_via_filesys(data, filesys_save_dir, gather_to_rank_0_only=True)
