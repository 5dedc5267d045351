"""DPR's bounded gather: ``dpr.utils.dist_utils.all_gather_list``."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fsgather._switch import meeting, replacing
from fsgather._switch.replacing import Call
from fsgather._switch.selection import Selection

__all__ = ["MODULES", "install"]

MODULES = ("dpr.utils.dist_utils",)

_FUNCTIONS = {"all_gather_list": (("data", "group", "max_size"),)}


def install(selection: Selection, module: ModuleType) -> None:
    """Replaces the function, where it is as we know it."""
    for name in replacing.check(module, _FUNCTIONS):
        replacing.replace(module, name, selection, all_gather_list)


def all_gather_list(call: Call, data: Any, group: Any = None, max_size: int = 16384) -> Any:
    """The original's list; ``max_size`` bounds the encoded object, here without anything that is sent in vain."""
    member = meeting.of(group)
    if member is None:
        return call.original()
    return member.call("all_gather", data, max_size=max_size, site=call.site)
