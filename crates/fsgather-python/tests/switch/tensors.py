"""A rank that ends while the others are in a collective of tensors, which torch reports without a name; what programs do with its error."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist

HOW, END = os.environ["SWITCH_CASE"].split(", ")


def reduce(rank: int) -> None:
    """All but one wait in an all_reduce."""
    if rank == 2:
        if HOW == "raises":
            raise MemoryError("out of luck")
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))


def main() -> None:
    """Ends by that, in one of the ways that programs have."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    into: list[Any] = [None] * size
    dist.all_gather_object(into, rank)
    if END == "raises" or (rank == 2 and END in ("exits", "destroys later")):
        reduce(rank)
    try:
        reduce(rank)
    except RuntimeError as error:
        if END in ("exits", "destroys later"):
            print("caught", error)
            if END == "destroys later":
                dist.destroy_process_group()
            sys.exit(1)
        raise
    finally:
        if END == "destroys":
            dist.destroy_process_group()
        elif END == "aborts":
            dist.distributed_c10d._abort_process_group()


if __name__ == "__main__":
    main()
