"""Calls in torch's argument order, which the functions of the same names do not take: :func:`hint` says what to write."""

from __future__ import annotations

from typing import Any

from fsgather._errors import ConfigError

__all__ = ["ALL", "check_list", "hint", "missing", "refusal"]

_OR_SWITCH = "or keep torch.distributed in the program and set FSGATHER_PATCH=torch"

_WRITE = {
    "all_gather": "parts = fsgather.all_gather(tensor), or import the all_gather of SAM and MDETR from fsgather.compat",
    "all_gather_object": "out = fsgather.all_gather(obj)",
    "broadcast_object_list": "objects = fsgather.broadcast_object(objects, src=0)",
    "gather": "joined = fsgather.gather(tensor, dst=0)",
    "gather_object": "out = fsgather.gather_object(obj, dst=0)",
    "get_rank": "fsgather.default_communicator().rank",
    "get_world_size": "fsgather.default_communicator().world_size",
    "scatter_object_list": "own = fsgather.broadcast_object(objects, src=0)[rank]",
}


class _AllRanks:
    """The default of ``group``, which is as ``None`` to every caller."""

    def __repr__(self) -> str:
        return "None"


ALL: Any = _AllRanks()


def check_list(name: str, world_size: int, data: Any, group: Any) -> None:
    """Refuses a list for results in the place of the data.

    Raises:
        fsgather.ConfigError: says what to write instead.
    """
    is_list = isinstance(data, list) and len(data) == world_size and all(entry is None for entry in data)
    if is_list and group is not ALL:
        raise refusal(name, f"{name}({data!r}, ...)")


def refusal(name: str, call: str) -> ConfigError:
    """The error of a call in torch's order."""
    return ConfigError(f"{call} is in the argument order of torch.distributed{hint(name)}")


def missing(name: str) -> AttributeError:
    """The error of a function that torch or ``fsgather.compat`` has and fsgather has not."""
    way = f"; write from fsgather.compat import {name}" if name in ("all_gather_list", "all_gather_via_filesys") else hint(name)
    return AttributeError(f"module 'fsgather' has no attribute {name!r}{way}")


def hint(name: str) -> str:
    """The end of a message that says how to write a call of a function of this name, if torch has one too."""
    return f"; fsgather returns its result: write {_WRITE[name]}, {_OR_SWITCH}" if name in _WRITE else ""
