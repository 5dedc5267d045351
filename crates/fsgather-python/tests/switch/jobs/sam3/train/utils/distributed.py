"""The same names in another place, one of them with parameters that nobody knows."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

CALLS: list[str] = []


def all_gather(data: Any, force_cpu: bool = False, force_filesys: bool = False, filesys_save_dir: Any = None) -> Any:
    """The list of all ranks' data."""
    CALLS.append("all_gather")
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, data)
    return gathered


def gather_to_rank_0_via_filesys(data: Any, directory: str, retries: int = 3) -> Any:
    """Something else under a known name: to be left alone."""
    CALLS.append("gather_to_rank_0_via_filesys")
    return ("not ours", data)
