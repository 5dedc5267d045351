"""Loaders of data in processes of their own: they get the hook too, and must not say or do anything."""

from __future__ import annotations

import os
import sys

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    """Says from which process a sample comes."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int, bool]:
        return index * index, os.getpid(), "fsgather._fsgather" in sys.modules


def main() -> None:
    """A collective, then loaders, then a collective."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    into = [None] * size
    dist.all_gather_object(into, rank)
    for way in ("spawn", "fork", "forkserver"):
        loader = DataLoader(Squares(), num_workers=2, multiprocessing_context=way, batch_size=None)
        seen = list(loader)
        assert [square for square, _, _ in seen] == [index * index for index in range(8)], seen
        assert {pid for _, pid, _ in seen}.isdisjoint({os.getpid()}), seen
        dist.all_gather_object(into, (rank, way))
        assert into == [(place, way) for place in range(size)], into
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
