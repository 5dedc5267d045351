"""Torch's world is made anew with other numbers than the launcher's, but for one rank: the same error on all of them."""

from __future__ import annotations

import os

import fsgather
import torch.distributed as dist


def main() -> None:
    """Gathers over the first world, is refused over the second, and gathers over it by its name."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    assert fsgather.all_gather(rank) == list(range(size))
    dist.destroy_process_group()
    order = [0, *range(size - 1, 0, -1)]
    dist.init_process_group("gloo", init_method=f"file://{os.environ['SWITCH_OUTPUT']}/store", rank=order.index(rank), world_size=size)
    for _ in range(2):
        try:
            raise AssertionError(fsgather.all_gather(rank))
        except fsgather.ConfigError as error:
            by_other = "of torch.distributed refused the call: " in str(error)
            assert by_other == (order[rank] == rank) and "torch.distributed is initialised as rank" in str(error), error
    assert fsgather.all_gather(rank, group=dist.group.WORLD) == order
    dist.barrier()


if __name__ == "__main__":
    main()
