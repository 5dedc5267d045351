"""A rank of an evaluation that may be killed at any moment: rank.py DIRECTORY LOGS SAMPLES HARM ATTEMPT.

Each result follows from the sample's number alone. Every computed sample is a line in a log of this process: when its result had been added, and its number.
HARM is what rank 1, or the only one, does to itself in the middle: `exception`, `address space`, `memory group` or `-`.
"""

import os
import random
import resource
import sys
import time

import numpy as np

import fsgather

WORK_SECONDS = 0.004
"""Time that a sample takes."""


def compute(number: int) -> object:
    """A text as of a language model, boxes as of a detector, or a score."""
    generator = np.random.default_rng(number)
    if number % 3 == 0:
        return "".join(chr(97 + letter) for letter in generator.integers(0, 26, 50 + number % 400))
    if number % 3 == 1:
        return {"boxes": generator.random((number % 7, 4)), "labels": [f"class {number % 5}"] * (number % 7)}
    return float(generator.random())


def padded_share(missing: list[int], rank: int, world_size: int, seed: int) -> list[int]:
    """As a distributed sampler has it: shuffled, and the last batch filled up with samples that come twice."""
    order = list(missing)
    random.Random(seed).shuffle(order)
    while order and len(order) % world_size:
        order.append(order[len(order) % max(1, len(missing))])
    return order[rank::world_size]


def fill_memory() -> None:
    """Needs more than its control group has, until the kernel kills this process."""
    blocks = []
    while True:
        blocks.append(b"x" * (8 << 20))


def main() -> None:
    directory, logs, count, harm, attempt = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    communicator = fsgather.default_communicator()
    rank, world_size = communicator.rank, communicator.world_size
    samples = fsgather.samples(directory, expected=count, config={"model": {"name": "tiny", "seed": 0}})
    log = os.open(f"{logs}/{attempt}-{rank}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if rank == 0:
        with open(f"{logs}/missing-{attempt}", "w") as file:
            file.write(" ".join(map(str, samples.missing)))
    share = padded_share(samples.missing, rank, world_size, attempt)
    for done, number in enumerate(share):
        if harm != "-" and rank == min(1, world_size - 1) and done == len(share) // 2:
            if harm == "exception":
                raise ValueError("the model has failed")
            if harm == "memory group":
                fill_memory()
            resource.setrlimit(resource.RLIMIT_AS, (1, 1))
            bytearray(1 << 30)
        time.sleep(WORK_SECONDS)
        samples.add(number, compute(number))
        os.write(log, f"{time.time()} {number}\n".encode())
    results = samples.gather(out=f"{logs}/results.jsonl")
    if results is not None:
        for number, result in results.items():
            assert repr(result) == repr(compute(number)), number
        print(f"gathered {len(results)}, {results.repeated} repeated, {len(results.conflicts)} differ", flush=True)


if __name__ == "__main__":
    main()
