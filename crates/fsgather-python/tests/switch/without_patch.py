"""One rank without ``FSGATHER_PATCH``: the others name it. And one that only comes late: nobody minds."""

from __future__ import annotations

import datetime
import os
import time

ODD_ONE_OUT = int(os.environ.get("SWITCH_ODD", "2"))
if os.environ["RANK"] == str(ODD_ONE_OUT) and os.environ["SWITCH_CASE"] == "missing":
    del os.environ["FSGATHER_PATCH"]

import fsgather
import torch.distributed as dist
from fsgather._switch import world

# Nobody wants to wait a minute for this test.
world.GRACE = 2.0
world.NAME_AFTER = 1.0


def main() -> None:
    """Says hello in vain, or not in vain."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    rank, size = dist.get_rank(), dist.get_world_size()
    into = [None] * size
    if os.environ["SWITCH_CASE"] == "late":
        if rank == ODD_ONE_OUT:
            time.sleep(5)
        dist.all_gather_object(into, rank)
        assert into == list(range(size)), into
        said = "in time"
    elif rank == ODD_ONE_OUT:
        # In torch's own function, from which nobody can call it back.
        said = "alone"
    else:
        try:
            dist.all_gather_object(into, rank)
            said = "nothing"
        except fsgather.RendezvousError as error:
            said = str(error)
    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{rank}"), "w") as output:
        output.write(said)
    dist.barrier()


if __name__ == "__main__":
    main()
