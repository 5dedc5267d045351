"""A rank that comes to its first call after the time-out, when those that waited have gone or go on."""

from __future__ import annotations

import datetime
import os
import sys
import time
from typing import Any

import fsgather
import torch.distributed as dist

OUTPUT = os.environ["SWITCH_OUTPUT"]


def main() -> None:
    """Says what it is told."""
    # Torch's own meeting has the same time-out, and processors may be busy: so all begin it at the same time.
    with open(os.path.join(OUTPUT, f"begins-{os.environ['RANK']}"), "w"):
        pass
    while len([name for name in os.listdir(OUTPUT) if name.startswith("begins-")]) < 4:
        time.sleep(0.01)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
    rank = dist.get_rank()
    mark = os.path.join(OUTPUT, "rank-0")
    while rank == 2 and not os.path.exists(mark):
        time.sleep(0.01)
    into: list[Any] = [None] * 4
    try:
        dist.all_gather_object(into, rank)
        said = "nothing"
    except fsgather.Error as error:
        said = f"{type(error).__name__}: {error}"
    with open(os.path.join(OUTPUT, f"draft-{rank}"), "w") as output:
        output.write(said)
    os.rename(os.path.join(OUTPUT, f"draft-{rank}"), os.path.join(OUTPUT, f"rank-{rank}"))
    if os.environ["SWITCH_CASE"] == "gone":
        sys.exit(0)
    # The others have not gone: all can call again.
    while len([name for name in os.listdir(OUTPUT) if name.startswith("rank-")]) < 4:
        time.sleep(0.01)
    dist.all_gather_object(into, rank)
    assert into == [0, 1, 2, 3], into


if __name__ == "__main__":
    main()
