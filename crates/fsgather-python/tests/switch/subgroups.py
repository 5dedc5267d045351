"""What the ranks of a group that is not the world are told when something goes wrong in it: everybody by its number in the job."""

from __future__ import annotations

import datetime
import json
import logging
import os
import time
from typing import Any

import fsgather
import torch.distributed as dist

CASE, _, WHO = os.environ["SWITCH_CASE"].partition(", ")

OUTPUT = os.environ["SWITCH_OUTPUT"]
MEMBERS = [1, 3]
WAITS, ABSENT = MEMBERS if WHO == "second" else MEMBERS[::-1]


def share(name: str, text: str) -> None:
    """Leaves a text for whoever looks for it, whole."""
    with open(os.path.join(OUTPUT, f"draft-{name}"), "w") as output:
        output.write(text)
    os.rename(os.path.join(OUTPUT, f"draft-{name}"), os.path.join(OUTPUT, name))


def wait_for(name: str) -> None:
    """Until somebody has left it."""
    while not os.path.exists(os.path.join(OUTPUT, name)):
        time.sleep(0.01)


def call(rank: int, group: Any) -> None:
    """What a member does, which goes wrong."""
    into: list[Any] = [None] * len(MEMBERS)
    if CASE in ("first call", "warned first"):
        if rank == ABSENT:
            wait_for(f"rank-{WAITS}")
        dist.all_gather_object(into, rank, group)
        return
    dist.all_gather_object(into, rank, group)
    assert into == MEMBERS, into
    if CASE == "desync" and rank == ABSENT:
        dist.broadcast_object_list([rank], ABSENT, group)
    elif CASE == "roots":
        dist.gather_object(rank, into, rank, group)
    elif CASE in ("late", "warned") and rank == ABSENT:
        wait_for(f"rank-{WAITS}")
        dist.all_gather_object(into, rank, group)
    elif CASE == "raises" and rank == ABSENT:
        raise MemoryError("out of luck")
    else:
        dist.all_gather_object(into, rank, group)


def main() -> None:
    """Says what it is told."""
    logging.basicConfig(format=f"{os.environ['RANK']} is told: %(message)s")
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    rank = dist.get_rank()
    group = dist.new_group(MEMBERS, timeout=datetime.timedelta(seconds=35 if CASE.startswith("warned") else 4))
    if rank in MEMBERS:
        said = "nothing"
        try:
            call(rank, group)
        except fsgather.Error as error:
            kinds = ("rank", "ranks", "missing", "timeout")
            facts = {name: getattr(error, name) for name in kinds if getattr(error, name, None) is not None}
            facts["stacks"] = [number for stack in getattr(error, "stacks", ()) for number in stack.ranks]
            said = json.dumps([f"{type(error).__name__}: {error}", facts])
        share(f"rank-{rank}", said)
    else:
        for member in MEMBERS:
            if not (CASE == "raises" and member == ABSENT):
                wait_for(f"rank-{member}")


if __name__ == "__main__":
    main()
