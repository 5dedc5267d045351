"""The gathers of the SAM and MDETR code, with the variables by which their jobs choose a path."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Optional

from fsgather import compat
from fsgather._switch import meeting, replacing
from fsgather._switch.replacing import Call
from fsgather._switch.selection import Selection

__all__ = ["MODULES", "all_gather", "all_gather_via_filesys", "gather_to_rank_0_via_filesys", "install"]

MODULES = ("training.utils.distributed", "sam3.train.utils.distributed", "util.dist")

_FUNCTIONS = {
    # MDETR's takes the data alone.
    "all_gather": (("data", "force_cpu", "force_filesys", "filesys_save_dir"), ("data",)),
    "all_gather_via_filesys": (("data", "filesys_save_dir", "gather_to_rank_0_only"),),
    "gather_to_rank_0_via_filesys": (("data", "filesys_save_dir"),),
}


def install(selection: Selection, module: ModuleType) -> None:
    """Replaces those of the three that are there and as we know them."""
    replacements: dict[str, replacing.Replacement] = {
        "all_gather": all_gather,
        "all_gather_via_filesys": all_gather_via_filesys,
        "gather_to_rank_0_via_filesys": gather_to_rank_0_via_filesys,
    }
    for name in replacing.check(module, _FUNCTIONS):
        replacing.replace(module, name, selection, replacements[name])


def all_gather(
    call: Call,
    data: Any,
    force_cpu: bool = False,
    force_filesys: bool = False,
    filesys_save_dir: Optional[str] = None,
) -> Any:
    """By the path that arguments and variables choose, in the original's order."""
    member = meeting.of(None)
    if member is None:
        return call.original()
    return compat._by_path(lambda: member.communicator(call.site), data, force_cpu, force_filesys, filesys_save_dir, {})


def all_gather_via_filesys(
    call: Call,
    data: Any,
    filesys_save_dir: Optional[str] = None,
    gather_to_rank_0_only: bool = False,
) -> Any:
    """Through files; with ``gather_to_rank_0_only`` the list is empty on other ranks."""
    member = meeting.of(None)
    if member is None:
        return call.original()
    return compat._by_files(lambda: member.communicator(call.site), data, filesys_save_dir, gather_to_rank_0_only, {})


def gather_to_rank_0_via_filesys(
    call: Call, data: Any, filesys_save_dir: Optional[str] = None
) -> Any:
    """Through files, for rank 0."""
    return all_gather_via_filesys(call, data, filesys_save_dir, True)
