"""The job that every engine runs: two gathers of 1 MiB objects with, if asked for, the death of a rank between them."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any, Optional

import fsgather

RANKS = 4
SIZE = 1 << 20
VICTIM = 2


def part(rank: int, call: int) -> dict[str, Any]:
    """What a rank hands in."""
    return {"rank": rank, "call": call, "data": hashlib.shake_256(f"{rank} {call}".encode()).digest(SIZE)}


def job(notes: Optional[str] = None) -> str:
    """What each rank does, and returns. With ``notes``, a directory, rank 2 is killed in the first attempt, and what each rank then heard is there."""
    world = fsgather.Communicator()
    try:
        gather(world, 1)
        if notes is not None and world.rank == VICTIM and first_time(Path(notes)):
            os.kill(os.getpid(), signal.SIGKILL)
        gather(world, 2)
    except fsgather.Error as error:
        if notes is not None:
            Path(notes, f"heard-{world.rank}").write_text(f"{type(error).__name__}: {error}")
        raise
    world.close()
    # Not closed by this job: what runs next in the same process is none of its business.
    assert fsgather.all_gather(world.rank) == list(range(RANKS))
    return f"rank {world.rank} of {world.world_size}"


def by_functions(notes: str) -> list[int]:
    """Gathers by the functions of the package; in the first attempt rank 1 raises after a call."""
    rank = fsgather.default_communicator().rank
    fsgather.barrier()
    if rank == 1 and first_time(Path(notes)):
        raise RuntimeError("bad luck")
    return fsgather.all_gather(rank)


def gather(world: fsgather.Communicator, call: int) -> None:
    """Gathers on rank 0, and compares."""
    parts = world.gather_object(part(world.rank, call), 0)
    if world.rank == 0:
        assert parts == [part(rank, call) for rank in range(world.world_size)]


def first_time(notes: Path) -> bool:
    """Whether nobody has been killed yet."""
    try:
        (notes / "killed").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


EXPECTED = [f"rank {rank} of {RANKS}" for rank in range(RANKS)]
