"""torch.distributed.checkpoint: ranks plan together what each of them writes, and read it again."""

from __future__ import annotations

import os
import shutil
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

PACKAGE = "torch"
PATCH = "torch+internal"
WHAT = "`torch.distributed.checkpoint`: planning of `save` and `load`"
OBJECTS = True
NAMES = True


class State:
    """300 tensors that all ranks have, and one of each rank."""

    def __init__(self, share: Callable[[], None], factor: float) -> None:
        self._share = share
        self.tensors = {f"layer{number}": factor * torch.full((1000,), float(number)) for number in range(300)}
        self.tensors[f"of rank {dist.get_rank()}"] = factor * torch.full((1000,), float(dist.get_rank()))

    def state_dict(self) -> dict[str, Any]:
        """For saving, and for where to load to."""
        self._share()
        return self.tensors

    def load_state_dict(self, loaded: dict[str, Any]) -> None:
        """What was read."""
        self.tensors = loaded


def begin(patience: Any) -> None:
    """Meets."""
    dist.init_process_group("gloo", timeout=patience)


def evaluate(share: Callable[[], None]) -> Any:
    """Saves and loads."""
    place = os.path.join(os.environ["PROJECT_OUTPUT"], "checkpoint")
    dcp.save({"model": State(share, 1.0)}, checkpoint_id=place)
    read = State(lambda: None, 0.0)
    dcp.load({"model": read}, checkpoint_id=place)
    dist.barrier()
    files = sorted(os.listdir(place))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(place)
    return [files, sum(tensor.double().sum().item() for tensor in read.tensors.values())]


def end() -> None:
    """Parts."""
    dist.destroy_process_group()
