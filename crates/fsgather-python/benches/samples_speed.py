"""Measures samples beside what people write by hand: a JSONL file for each rank that is joined by a dictionary, and `all_gather_object`.

usage: fsgather run -n 4 -- python samples_speed.py [--small 2000000] [--large 2000] DIRECTORY

Prints for each way, on rank 0: seconds to add everything (the slowest rank), seconds to gather and look at every result, the growth of rank 0's
memory, and bytes on disk. Large results are tensors of 1 MB if torch is installed, else arrays. Directories in DIRECTORY are removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import numpy as np

import fsgather

WORLD = fsgather.default_communicator()
Result = Callable[[int], Any]


def small(number: int) -> Any:
    return {"score": number / 7, "answer": number % 4}


def large(number: int) -> Any:
    array = np.full(250_000, number, dtype=np.float32)
    try:
        import torch
    except ImportError:
        return array
    return torch.from_numpy(array)


def by_samples(directory: Path, count: int, result: Result) -> Iterator[Any]:
    samples = fsgather.samples(directory, expected=count)
    share = samples.share
    yield
    for number in share:
        samples.add(number, result(number))
    samples.flush()
    yield
    yield samples.gather()


def by_hand(directory: Path, count: int, result: Result) -> Iterator[Any]:
    directory.mkdir(parents=True, exist_ok=True)
    share = range(WORLD.rank, count, WORLD.world_size)
    yield
    with open(directory / f"{WORLD.rank}.jsonl", "w") as file:
        for number in share:
            value = result(number)
            file.write(json.dumps([number, value.tolist() if hasattr(value, "tolist") else value]) + "\n")
    yield
    WORLD.barrier()
    if WORLD.rank != 0:
        yield None
        return
    results = {}
    for path in sorted(directory.iterdir()):
        with open(path) as file:
            results.update(map(json.loads, file))
    yield {number: results[number] for number in range(count)}


def by_objects(directory: Path, count: int, result: Result) -> Iterator[Any]:
    share = range(WORLD.rank, count, WORLD.world_size)
    yield
    own = {number: result(number) for number in share}
    yield
    parts: Iterable[Any] = fsgather.all_gather(own)
    results: dict[int, Any] = {}
    for part in parts:
        results.update(part)
    yield {number: results[number] for number in range(count)}


def measure(name: str, way: Callable[[Path, int, Result], Iterator[Any]], place: Path, count: int, result: Result) -> None:
    directory = place / f"{name}-{count}"
    WORLD.barrier()
    run = way(directory, count, result)
    next(run)
    began = time.perf_counter()
    next(run)
    adding = max(WORLD.all_gather(time.perf_counter() - began))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    results = next(run)
    if results is not None and WORLD.rank == 0:
        checked = sum(1 for value in results.values() if value is not None)
        gathering = time.perf_counter() - began
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        on_disk = sum(file.stat().st_size for file in directory.iterdir()) if directory.exists() else 0
        assert checked == count
        each = adding / (count / WORLD.world_size) * 1e6
        print(
            f"{name:10} {count:>8} results: add {adding:7.2f} s ({each:8.1f} us each), gather {gathering:7.2f} s, memory +{grown:6.0f} MiB, disk {on_disk / 2**20:7.0f} MiB",
            flush=True,
        )
    WORLD.barrier()
    if WORLD.rank == 0:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--small", type=int, default=2_000_000)
    parser.add_argument("--large", type=int, default=2_000)
    parser.add_argument("--only", choices=["samples", "by hand", "objects"])
    arguments = parser.parse_args()
    ways = {"samples": by_samples, "by hand": by_hand, "objects": by_objects}
    for count, result in [(arguments.small, small), (arguments.large, large)]:
        for name, way in ways.items():
            if count and arguments.only in (None, name):
                measure(name, way, arguments.directory, count, result)


if __name__ == "__main__":
    main()
