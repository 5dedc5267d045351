"""The backend ``fsgather``: gloo under another name, by which the object functions know whose groups are ours.

A process group that did everything itself would also have to take over the tensors of the job. With a real gloo
inside, nothing of Python is in their way, and a pair such as ``cpu:fsgather,cuda:nccl`` is two real backends.
"""

from __future__ import annotations

import datetime
import inspect
import sys
from typing import Any

from fsgather._switch import collectives, groups

__all__ = ["NAME", "register"]

NAME = "fsgather"


def register() -> None:
    """Makes the backend known to torch, and has the object functions look for it."""
    import torch.distributed as distributed

    if not distributed.is_available():
        raise RuntimeError("this torch is built without torch.distributed, and so without process groups")
    if not hasattr(distributed, "ProcessGroupGloo"):
        raise RuntimeError("this torch is built without gloo, on which the backend fsgather rests")
    for name in (groups.C10D, "torch.distributed"):
        collectives.use_for_backend(sys.modules[name])
    backends: Any = distributed.Backend
    if NAME.upper() in backends._plugins:
        return
    named = {}
    # Without it, torch from 2.0 on warns and takes it for one that serves graphics processors, too.
    if "devices" in inspect.signature(backends.register_backend).parameters:
        named["devices"] = ["cpu"]
    backends.register_backend(NAME, _gloo, **named)


def _gloo(store: Any, rank: int, world_size: int, timeout: datetime.timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    return ProcessGroupGloo(store, rank, world_size, timeout=timeout)
