"""Measures gathers of buffers of many sizes: Open MPI's, through shared memory and through TCP, beside ours and bare system calls.

    buffers.py --fsgather PROGRAM [--ranks 8] [--rounds 3] [--sizes 64KiB 1MiB ...]

All are measured in turn, jobs of their own, round after round; each figure is the median of the rounds' medians, in milliseconds. One
iteration takes as long as its slowest rank, and whoever receives looks at one byte of each page. Under ``mpirun`` this is a rank.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PAGE = 4096
WARM_UP = 3
BYTES_TOGETHER = 400 << 20
"""So much one rank hands over of each size, in at most :data:`MOST` calls."""
MOST = 400

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}
OPERATIONS = ("gather", "all_gather")

OURS = {
    "fsgather, shared memory": ("auto", {}),
    "fsgather, files": ("filesys", {}),
    "fsgather, TCP": ("memory", {"FSGATHER_SHARED_MEMORY": "0"}),
}
MPI = {
    "Open MPI, shared memory": [],
    "Open MPI, TCP": ["--mca", "btl", "tcp,self", "--mca", "pml", "ob1"],
}


def length(size: str) -> int:
    """What is written as 64KiB or 1MiB, in bytes."""
    return int(size[:-3]) * UNITS[size[-3:]]


def take_part(sizes: list[str]) -> None:
    """What each rank of Open MPI does; rank 0 prints a median for each size and operation."""
    import numpy
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for size in sizes:
        own = numpy.full(length(size), world.rank, dtype=numpy.uint8)
        everybody = numpy.empty((world.size, own.size), dtype=numpy.uint8)
        for operation in OPERATIONS:
            receives = operation == "all_gather" or world.rank == 0
            times = []
            for iteration in range(WARM_UP + min(MOST, max(6, BYTES_TOGETHER // own.size))):
                world.Barrier()
                began = time.perf_counter()
                if operation == "gather":
                    world.Gather(own, everybody if receives else None, root=0)
                else:
                    world.Allgather(own, everybody)
                if receives:
                    everybody[:, ::PAGE].sum()
                slowest = world.allreduce(time.perf_counter() - began, MPI.MAX)
                if iteration >= WARM_UP:
                    times.append(slowest)
            if world.rank == 0:
                print(json.dumps([size, operation, statistics.median(times) * 1000]), flush=True)


def measured(program: str, ranks: int, sizes: list[str]) -> dict[tuple[str, str, str], float]:
    """One round: milliseconds by size, operation and way."""
    found = {}
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    for way, flags in MPI.items():
        job = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), *flags, sys.executable, __file__]
        said = subprocess.run([*job, "--sizes", *sizes], stdout=subprocess.PIPE, check=True, timeout=1800).stdout
        for line in said.decode().splitlines():
            size, operation, milliseconds = json.loads(line)
            found[size, operation, way] = milliseconds
    for size in sizes:
        for way, (transport, variables) in OURS.items():
            for operation in OPERATIONS:
                floor = [str(Path(program).with_name("floor")), operation, size, transport]
                bench = [program, "run", "-n", str(ranks), "--no-prefix", "--", *floor]
                said = subprocess.run(bench, stdout=subprocess.PIPE, check=True, timeout=1800, env={**os.environ, **variables}).stdout
                row = json.loads(said)
                found[size, operation, way] = row["median_seconds"] * 1000
                found[size, operation, f"{way}: bare system calls"] = row["floor_seconds"] * 1000
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fsgather", help="the program `fsgather`")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", default=["64KiB", "256KiB", "1MiB", "4MiB", "16MiB", "64MiB"])
    chosen = parser.parse_args()
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        take_part(chosen.sizes)
        return
    rounds = [measured(chosen.fsgather, chosen.ranks, chosen.sizes) for _ in range(chosen.rounds)]
    floors = {"fsgather, files": "fsgather, files: bare system calls", "fsgather, TCP": "fsgather, TCP: bare system calls"}
    ways = ["fsgather, shared memory", "Open MPI, shared memory", "fsgather, files", "fsgather, TCP", "Open MPI, TCP"]
    print("| | " + " | ".join(f"{way} (bare system calls)" if way in floors else way for way in ways) + " |")
    print("|---" * (len(ways) + 1) + "|")
    for operation in OPERATIONS:
        for size in chosen.sizes:
            cells = []
            for way in ways:
                cell = f"{statistics.median(found[size, operation, way] for found in rounds):.2f}"
                if way in floors:
                    cell += f" ({statistics.median(found[size, operation, floors[way]] for found in rounds):.2f})"
                cells.append(cell)
            print(f"| {operation}, {size} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
