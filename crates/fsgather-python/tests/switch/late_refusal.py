"""Torch swaps the numbers of the first two ranks of a job, and the first call without a group comes after one that names torch's world."""

from __future__ import annotations

import os

import fsgather
import torch.distributed as dist


def main() -> None:
    """Makes calls without a group, which fail on all ranks, and calls with one, in turns."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]) + 1, size, is_master=rank == 0)
    swapped = {0: 1, 1: 0}.get(rank, rank)
    dist.init_process_group("gloo", store=store, rank=swapped, world_size=size)
    said = []
    for _ in range(2):
        assert fsgather.all_gather(swapped, group=dist.group.WORLD) == list(range(size))
        fsgather.close()
        try:
            said.append(str(fsgather.all_gather(rank)))
        except fsgather.ConfigError as error:
            said.append(str(error))
    for text in said:
        assert "torch.distributed is initialised as rank " in text, said
        assert text.startswith("rank 0 of torch.distributed refused the call: ") == (swapped == rank), said
    dist.barrier()


if __name__ == "__main__":
    main()
