"""A job that torch.multiprocessing starts, in which one rank raises."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

RANKS = 4


def main(rank: int, port: str) -> None:
    """One rank."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    into: list[Any] = [None] * RANKS
    dist.all_gather_object(into, rank)
    assert into == list(range(RANKS)), into
    if rank == 1:
        raise KeyError("no such score")
    try:
        dist.all_gather_object(into, rank)
    except Exception as error:
        # In one write: lines of different ranks would mix.
        sys.stdout.write(f"{rank}: {type(error).__name__}: {error}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    context = torch.multiprocessing.spawn(main, (sys.argv[1],), RANKS, join=False)
    # Its own join ends the others as soon as one has failed.
    for process in context.processes:
        process.join()
