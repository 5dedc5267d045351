"""A rank that raises an exception, or ends the program, and takes its time to go; others hear of it and are gone before."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import time
from typing import Any

# What is registered first runs last: nothing of this rank is left to be done when it waits for the others to go.
atexit.register(lambda: time.sleep(60) if IS_SLOW else None)
IS_SLOW = False

import torch.distributed as dist


class Stubborn:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError("not me")


def main() -> None:
    """All but one call; nobody catches anything."""
    global IS_SLOW
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    into: list[Any] = [None] * size
    dist.all_gather_object(into, rank)
    case = os.environ["SWITCH_CASE"]
    if case == "cannot be pickled":
        try:
            dist.all_gather_object(into, Stubborn() if rank == 2 else rank)
        finally:
            # The launcher ends this rank before it has ended by itself.
            while rank == 2:
                signal.pause()
    if case == "gets over it":
        with contextlib.suppress(Exception):
            dist.all_gather_object(into, Stubborn() if rank == 2 else rank)
        dist.all_gather_object(into, rank)
        if rank == 1:
            raise MemoryError("out of luck")
    elif rank == 2:
        IS_SLOW = True
        if case == "exits":
            sys.exit("no checkpoint found")
        raise MemoryError("out of luck")
    dist.all_gather_object(into, rank)


if __name__ == "__main__":
    main()
