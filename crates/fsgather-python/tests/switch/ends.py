"""A rank that ends in some way, before the first object call of the job or between two of them; the others say what they are told, and when."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
from typing import Any

import torch.distributed as dist
from fsgather._switch import marks

VICTIM = 2
WHEN, HOW = os.environ["SWITCH_CASE"].rsplit(", ", 1)
if WHEN == "at once, alone":
    # As on a host of its own, from which nobody can look whether a process of another one is still there.
    marks.boot = lambda: os.environ["RANK"]
OUTPUT = os.environ["SWITCH_OUTPUT"]
MARK = os.path.join(OUTPUT, "ended")


def end() -> None:
    """Ends this process."""
    with open(MARK + ".draft", "w") as output:
        output.write(str(time.time()))
    os.rename(MARK + ".draft", MARK)
    if HOW == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "raises":
        raise MemoryError("out of luck")
    if HOW == "destroys":
        try:
            raise MemoryError("out of luck")
        finally:
            dist.destroy_process_group()
    if HOW == "exits":
        sys.exit(0)
    if HOW == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)


def main() -> None:
    """One rank ends, the others call."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    rank, size = dist.get_rank(), dist.get_world_size()
    into: list[Any] = [None] * size
    if WHEN == "between":
        dist.all_gather_object(into, rank)
        assert into == list(range(size)), into
    if WHEN == "later":
        # Until ranks know each other by their connections.
        from fsgather._switch import meeting

        assert meeting._world is not None
        meeting._world.wait(60)
        assert meeting._world.ground is not None
        dist.barrier()
    if rank == VICTIM:
        end()
    while not os.path.exists(MARK):
        time.sleep(0.01)
    try:
        dist.all_gather_object(into, rank)
        said: list[Any] = ["nothing"]
    except Exception as error:
        with open(MARK) as ended:
            said = [type(error).__name__, str(error), time.time() - float(ended.read())]
    with open(os.path.join(OUTPUT, f"rank-{rank}"), "w") as output:
        json.dump(said, output)
    # Nobody is ended by the end of another.
    while len([name for name in os.listdir(OUTPUT) if name.startswith("rank-")]) < size - 1:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
