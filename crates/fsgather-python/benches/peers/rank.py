"""One process of a job that gathers arrays in one way, again and again: ``rank.py WAY BYTES ITERATIONS TABLE``.

Every rank hands in a new array of numpy each time; rank 0 gets all and adds one number of each page up, so that nothing is
measured that was not brought. Rank 0 writes beside the table a JSON list of milliseconds: of each iteration the longest of any rank.

The start of an iteration is agreed on in ``TABLE``, a file that all ranks map, and not by what is measured.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from typing import Any, Callable, Optional, Sequence

import numpy

PAGE = 4096 // 8
Gather = Callable[[numpy.ndarray], Optional[Sequence[Any]]]


class Starts:
    """A table in a file: how often each rank has arrived, when all go on, and how long each took."""

    def __init__(self, path: str, rank: int, ranks: int) -> None:
        with open(path, "r+b") as file:
            self.table = mmap.mmap(file.fileno(), 8 * (2 * ranks + 1))
        self.rank, self.ranks, self.turn, self.last = rank, ranks, 0.0, 0.0

    def _read(self, place: int) -> float:
        return float(struct.unpack_from("d", self.table, 8 * place)[0])

    def _write(self, place: int, value: float) -> None:
        struct.pack_into("d", self.table, 8 * place, value)

    def together(self) -> float:
        """Waits until all ranks are here; the moment, the same for all, at which they go on."""
        self.turn += 1
        self._write(1 + self.rank, self.turn)
        if self.rank == 0:
            while min(self._read(1 + rank) for rank in range(self.ranks)) < self.turn:
                time.sleep(0.0002)
            self._write(0, time.monotonic() + 0.003)
        while (start := self._read(0)) <= self.last:
            time.sleep(0.0002)
        self.last = start
        time.sleep(max(0.0, start - time.monotonic()))
        return start

    def took(self, seconds: float) -> None:
        """Notes how long this rank took."""
        self._write(1 + self.ranks + self.rank, seconds)

    def slowest(self) -> float:
        """The longest that any rank took, in seconds, once all have noted it."""
        return max(self._read(1 + self.ranks + rank) for rank in range(self.ranks))


def torch_world() -> tuple[int, int]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def by_files() -> tuple[int, int, Gather]:
    """As people write it themselves: a file of each rank in a directory of all, a barrier, reading, a barrier, removing."""
    import torch
    import torch.distributed as dist

    rank, ranks = torch_world()

    def gather(mine: numpy.ndarray) -> Optional[Sequence[Any]]:
        tag = torch.tensor([int(time.time()), int.from_bytes(os.urandom(4), "little")])
        dist.broadcast(tag, src=0)
        path = "gathered_{}_{}_{}".format(*tag.tolist(), "{}")
        torch.save(mine, path.format(rank))
        dist.barrier()
        parts = None
        if rank == 0:
            parts = [torch.load(path.format(other), weights_only=False) for other in range(ranks)]
        dist.barrier()
        os.remove(path.format(rank))
        return parts

    return rank, ranks, gather


def by_gloo() -> tuple[int, int, Gather]:
    import torch.distributed as dist

    rank, ranks = torch_world()

    def gather(mine: numpy.ndarray) -> Optional[Sequence[Any]]:
        parts: Optional[list[Any]] = [None] * ranks if rank == 0 else None
        dist.gather_object(mine, parts, dst=0)
        return parts

    return rank, ranks, gather


def by_mmengine() -> tuple[int, int, Gather]:
    import mmengine.dist as mm

    rank, ranks = torch_world()
    return rank, ranks, lambda mine: mm.collect_results_cpu([mine], ranks)


def by_mpi4py() -> tuple[int, int, Gather]:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    return world.rank, world.size, lambda mine: world.gather(mine, root=0)


def by_openmpi() -> tuple[int, int, Gather]:
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def gather(mine: numpy.ndarray) -> Optional[Sequence[Any]]:
        every = numpy.empty((world.size, len(mine))) if world.rank == 0 else None
        world.Gather(mine, every, root=0)
        return None if every is None else list(every)

    return world.rank, world.size, gather


def by_fsgather() -> tuple[int, int, Gather]:
    import fsgather

    world = fsgather.default_communicator()
    return world.rank, world.world_size, lambda mine: fsgather.gather_object(mine)


WAYS = {
    "files": by_files,
    "gloo": by_gloo,
    "mmengine": by_mmengine,
    "mpi4py": by_mpi4py,
    "openmpi": by_openmpi,
    "fsgather": by_fsgather,
}


def main() -> None:
    way, length, iterations, table = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    rank, ranks, gather = WAYS[way]()
    starts = Starts(table, rank, ranks)
    times: list[float] = []
    for turn in range(iterations + 2):
        mine = numpy.full(length // 8, rank + turn, dtype="f8")
        start = starts.together()
        parts = gather(mine)
        total = sum(float(part[::PAGE].sum()) for part in parts) if parts is not None else 0.0
        starts.took(time.monotonic() - start)
        pages = -(-(length // 8) // PAGE)
        if rank == 0 and total != sum((other + turn) * pages for other in range(ranks)):
            sys.exit(f"{way} brought something else than was handed in")
        del parts
        starts.together()
        # Connections and memory are there from the third on.
        if turn >= 2:
            times.append(starts.slowest() * 1000)
    if rank == 0:
        with open(f"{table}.json", "w") as file:
            json.dump(times, file)
    # Whoever ends first may take what others still need.
    starts.together()


if __name__ == "__main__":
    main()
