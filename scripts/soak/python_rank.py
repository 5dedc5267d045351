"""A rank in Python, which takes steps as `tests/examples/rank` does, but fewer."""

from __future__ import annotations

import hashlib
import sys
import time
from typing import Any, Optional

import fsgather

CODES = [
    (fsgather.TimeoutError, 10),
    ((fsgather.PeerFailedError, fsgather.PoisonedError), 11),
    ((fsgather.StorageError, fsgather.NotSharedError), 12),
    ((fsgather.CorruptError, fsgather.IncompatibleError), 13),
    ((fsgather.DesyncError, fsgather.MismatchError), 14),
    (fsgather.RendezvousError, 15),
]

job = ""


def length(size: str, rank: int) -> int:
    """How long a rank's payload is: `1000*` differs from rank to rank."""
    if size.endswith("*"):
        return int(size[:-1]) * (rank % 4) + rank if rank % 4 else 0
    return int(size)


def value(rank: int, size: str, group: str = "") -> Any:
    """What a rank hands over: no two ranks, groups or jobs the same."""
    count = length(size, rank)
    word = hashlib.sha256(f"{job} {group} {rank}".encode()).digest()
    return {"rank": rank, "of": [job, group], "bytes": (word * (count // len(word) + 1))[:count]}


def check(values: Optional[list[Any]], ranks: int, size: str, group: str = "") -> None:
    """Compares every byte."""
    if values != [value(rank, size, group) for rank in range(ranks)]:
        raise SystemExit("error: wrong values")


def take(world: Optional[fsgather.Communicator], words: list[str]) -> Optional[fsgather.Communicator]:
    """One step; the world after it."""
    global job
    kind, *rest = words
    if kind == "job":
        job = rest[0]
        return None
    if kind == "pause":
        time.sleep(int(rest[0]) / 1000)
        return world
    if kind == "join":
        world = fsgather.Communicator()
        print("joined", flush=True)
        return world
    assert world is not None
    me, ranks = world.rank, world.world_size
    if kind == "barrier":
        world.barrier()
    elif kind == "all_gather":
        check(world.all_gather(value(me, rest[0])), ranks, rest[0])
    elif kind == "all_gather_parts":
        check(list(world.all_gather_parts(value(me, rest[0]))), ranks, rest[0])
    elif kind == "split_all_gather":
        color = str(me % 2)
        half = world.split(me % 2)
        assert half is not None
        check(half.all_gather(value(half.rank, rest[0], color)), half.world_size, rest[0], color)
        half.close()
    elif kind in ("gather", "gather_iter"):
        root, size = int(rest[0]), rest[1]
        if kind == "gather":
            got = world.gather_object(value(me, size), dst=root)
        else:
            got = list(world.gather_iter(value(me, size), dst=root))
        if me == root:
            check(got, ranks, size)
    elif kind == "broadcast":
        root, size = int(rest[0]), rest[1]
        if world.broadcast_object(value(root, size) if me == root else None, src=root) != value(root, size):
            raise SystemExit("error: wrong value")
    elif kind == "close":
        world.close()
    else:
        raise SystemExit(f"error: no such step: {words}")
    return world


def main() -> int:
    """Takes all steps; the exit code that the rank in Rust would end with."""
    world: Optional[fsgather.Communicator] = None
    try:
        for step in sys.argv[1:]:
            world = take(world, step.split(":"))
            print(f"done {step}", flush=True)
    except fsgather.Error as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return next((code for kind, code in CODES if isinstance(error, kind)), 1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
