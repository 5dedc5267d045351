"""A rank that ends while the others are in a collective of tensors, which torch reports without a name; nobody catches anything."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch.distributed as dist


def main() -> None:
    """All but one wait in an all_reduce."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    into: list[Any] = [None] * size
    dist.all_gather_object(into, rank)
    if rank == 2:
        if os.environ["SWITCH_CASE"] == "raises":
            raise MemoryError("out of luck")
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))


if __name__ == "__main__":
    main()
