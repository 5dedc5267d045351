"""A job that never calls an object function: its ranks end in any order, with and without destroying their groups, and say nothing."""

from __future__ import annotations

import os
import time

import torch.distributed as dist

ORDER = {"first to last": (0, 1, 2, 3), "last to first": (3, 2, 1, 0), "at once": (0, 0, 0, 0)}


def main() -> None:
    """Ends when its turn has come."""
    dist.init_process_group("gloo")
    order, destroys = os.environ["SWITCH_CASE"].split(", ")
    rank = dist.get_rank()
    from fsgather._switch import meeting

    assert meeting._world is not None
    if order != "at once":
        meeting._world.wait(60)
        assert meeting._world.ground is not None
    dist.barrier()
    output = os.environ["SWITCH_OUTPUT"]
    turn = ORDER[order][rank]
    while turn and not os.path.exists(os.path.join(output, f"gone-{turn - 1}")):
        time.sleep(0.01)
    if destroys == "destroying":
        dist.destroy_process_group()
    # What comes after this line is the end of the interpreter; the next one has its turn when this process is no more.
    if os.fork() == 0:
        parent = os.getppid()
        while os.path.exists(f"/proc/{parent}") and os.getppid() == parent:
            time.sleep(0.01)
        open(os.path.join(output, f"gone-{turn}"), "w").close()
        os._exit(0)
    open(os.path.join(output, f"rank-{rank}"), "w").close()


if __name__ == "__main__":
    main()
