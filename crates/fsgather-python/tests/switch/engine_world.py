"""An engine inside of a rank makes a world of torch for itself: the job's ranks gather, or are told."""

from __future__ import annotations

import os

import fsgather
import torch.distributed as dist


def main() -> None:
    """Gathers after the engine has come."""
    rank = os.environ["RANK"]
    if os.environ["SWITCH_CASE"] == "after_a_call":
        fsgather.barrier()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        said = str(fsgather.all_gather(rank))
    except fsgather.ConfigError as error:
        said = str(error)
    said += f"\n{fsgather.all_gather(rank, group=dist.group.WORLD)}"
    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{rank}"), "w") as output:
        output.write(said)


if __name__ == "__main__":
    main()
