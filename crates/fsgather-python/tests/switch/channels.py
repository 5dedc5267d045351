"""Many process groups: what they cost, what becomes of them when a rank ends that is not in them, and lives of torch's default group."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import fsgather
import torch.distributed as dist

OUTPUT = os.environ["SWITCH_OUTPUT"]


def gather(group: Any = None) -> None:
    """Everybody's rank arrives."""
    ranks = dist.get_process_group_ranks(group) if group is not None else list(range(dist.get_world_size()))
    into: list[Any] = [None] * len(ranks)
    dist.all_gather_object(into, dist.get_rank(), group)
    assert into == ranks, (into, ranks)


def cost() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


class Stubborn:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError("not me")


def main() -> None:
    """All of it in one job."""
    for _life in range(2):
        dist.init_process_group("gloo")
        gather()
        dist.destroy_process_group()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gather()
    everybody = [dist.new_group() for _ in range(20)]
    pairs = [dist.new_group([0, 2]) for _ in range(5)]
    others = [dist.new_group([1, 3]) for _ in range(5)]
    mine = others if rank in (1, 3) else pairs
    gather(mine[0])
    dist.barrier()
    before = cost()
    for group in everybody + mine[1:]:
        gather(group)
    after = cost()
    # What a few groups of torch's own need for themselves, and nothing for each.
    assert after[0] - before[0] < 10 and after[1] - before[1] < 5, (before, after)

    # Groups fail by themselves, and meet anew without new connections.
    for _turn in range(3):
        try:
            dist.all_gather_object([None] * 4, Stubborn() if rank == 2 else 1, everybody[0])
        except (ValueError, fsgather.PeerFailedError) as error:
            assert "not me" in str(error), error
        gather(everybody[1])
        gather(everybody[0])
    assert cost()[0] - before[0] < 10, (before, cost())

    # Who is not in a group need not live for it.
    dist.barrier()
    mark = os.path.join(OUTPUT, "rank-0")
    if rank in (0, 2):
        with open(os.path.join(OUTPUT, f"rank-{rank}"), "w") as output:
            output.write(str(os.getpid()))
        sys.exit(0)
    while not os.path.exists(mark) or not open(mark).read():
        time.sleep(0.01)
    pid = open(mark).read()
    while os.path.exists(f"/proc/{pid}/fd/0"):
        time.sleep(0.01)
    for group in mine:
        gather(group)
    try:
        gather()
    except fsgather.PeerFailedError as error:
        assert "rank 0" in str(error) or "rank 2" in str(error), error
    with open(os.path.join(OUTPUT, f"rank-{rank}"), "w") as output:
        output.write("went on")


if __name__ == "__main__":
    main()
