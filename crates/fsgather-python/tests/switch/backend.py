"""The backend ``fsgather``, and meeting by ``init_method="fsgather:///directory"``."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

SIZE = 4


def use(backend: str) -> None:
    """Objects go our way, tensors through gloo, and groups are real."""
    from fsgather._switch import meeting

    rank = dist.get_rank()
    into = [None] * SIZE
    dist.all_gather_object(into, {"rank": rank})
    assert into == [{"rank": place} for place in range(SIZE)], into
    assert meeting.of(None)._communicator is not None
    summed = torch.ones(3) * rank
    dist.all_reduce(summed)
    assert summed.tolist() == [6.0] * 3, summed
    pair = dist.new_group([1, 3])
    plain = dist.new_group(backend="gloo")
    if rank in (1, 3):
        objects = [rank, "x"]
        dist.broadcast_object_list(objects, 3, pair)
        assert objects == [3, "x"], objects
        assert type(dist.distributed_c10d._get_default_group()) is type(pair)
    dist.all_gather_object(into, rank, plain)
    assert into == list(range(SIZE)), into
    # Without FSGATHER_PATCH those of other groups are torch's own.
    assert meeting.of(plain)._communicator is None
    dist.barrier()
    kind = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    assert isinstance(kind, dist.ProcessGroupGloo), kind
    print(f"used {backend} {rank}", flush=True)


def main() -> None:
    """Once for each way in which torch learns of us."""
    case = os.environ["SWITCH_CASE"]
    if case == "found by name":
        assert "fsgather" not in sys.modules
        dist.init_process_group("cpu:fsgather,cuda:gloo")
        use(case)
    elif case == "registered":
        import fsgather.torch

        fsgather.torch.register()
        fsgather.torch.register()
        dist.init_process_group("fsgather")
        use(case)
    elif case == "directory":
        import fsgather.torch

        fsgather.torch.register()
        rank = int(os.environ["RANK"])
        for variable in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
            os.environ.pop(variable, None)
        directory = os.environ["SWITCH_OUTPUT"]
        for _life in range(2):
            dist.init_process_group("cpu:fsgather", init_method=f"fsgather://{directory}", rank=rank, world_size=SIZE)
            use(case)
            dist.destroy_process_group()
    elif case == "directory, by the launcher":
        dist.init_process_group("gloo", init_method=f"fsgather://{os.environ['SWITCH_OUTPUT']}")
        into = [None] * SIZE
        dist.all_gather_object(into, dist.get_rank())
        assert into == list(range(SIZE)), into
        dist.barrier()
    dist.destroy_process_group() if dist.is_initialized() else None


if __name__ == "__main__":
    main()
