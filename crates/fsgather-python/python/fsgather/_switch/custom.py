"""Single functions, named as ``package.module:function``.

A function looks like a gather of objects by its name and its parameters, as below; all others are left alone, with a warning. Its first
calls show whether it is one (:mod:`~fsgather._switch.trial`).

========================================== ============================ ==================================
parameters                                 name                         result
========================================== ============================ ==================================
``(object_list, obj, group, ...)``         any                          None, the list is filled
``(data, force_cpu, ...)``                 any                          as ``compat.all_gather``
``(data, filesys_save_dir, ...)``          any                          as ``compat.all_gather_via_filesys``
``(data, group, max_size)``                any                          as ``compat.all_gather_list``
``(data)``, ``(data, group)``              with ``all_gather`` or       the list, on every rank
                                           ``allgather`` in it
``(data, dst)``, ``(data, dst, group)``    with ``gather``, but         the list on ``dst``; elsewhere ``None``
                                           without ``all`` before it    for ``..._object``, else ``[]``
========================================== ============================ ==================================

``data`` may also be called ``obj``, ``object`` or ``value``; what is called ``tensor`` is not an object.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any, Callable, Optional

from fsgather._switch import dpr, mdetr, meeting, notices, replacing, trial
from fsgather._switch.replacing import Call
from fsgather._switch.selection import Selection

__all__ = ["install"]

_RULE = (
    "Functions of (data) or (data, group) need all_gather or allgather in their name, functions of (data, dst) or (data, dst, group) need "
    "gather in it, without all"
)
"""The part of the rule that depends on the name."""

_DATA = ("data", "obj", "object", "value")


def install(selection: Selection, name: str, module: ModuleType) -> None:
    """Replaces the function ``name`` of ``module``, where it looks like one of those above."""
    function = getattr(module, name, None)
    full_name = f"{module.__name__}:{name}"
    if function is None:
        notices.warn(f"FSGATHER_PATCH: there is no {full_name}; nothing is replaced")
        return
    found = replacing.parameters(function)
    ours = _recognise(name, found)
    if ours is None:
        notices.warn(
            f"FSGATHER_PATCH: {full_name}({', '.join(found)}) is none of the gathers of objects that fsgather knows, by its name and "
            f"parameters; it is left as it is. {_RULE}"
        )
        return
    replacing.replace(module, name, selection, trial.on_trial(full_name, ours))


def _recognise(name: str, found: tuple[str, ...]) -> Optional[replacing.Replacement]:
    if found[:3] == ("object_list", "obj", "group"):
        return _fill
    if not found or found[0] not in _DATA:
        return None
    others = found[1:]
    rename = _Renaming(found[0])
    if others[:1] == ("force_cpu",) and set(others) <= {"force_cpu", "force_filesys", "filesys_save_dir"}:
        return rename(mdetr.all_gather)
    if others[:1] == ("filesys_save_dir",) and set(others) <= {"filesys_save_dir", "gather_to_rank_0_only"}:
        to_rank_0 = "rank_0" in name or "rank0" in name
        return rename(mdetr.gather_to_rank_0_via_filesys if to_rank_0 else mdetr.all_gather_via_filesys)
    if others == ("group", "max_size"):
        return rename(dpr.all_gather_list)
    if others in ((), ("group",)) and re.search(r"all_?gather", name):
        return rename(_list_for_all)
    if others in (("dst",), ("dst", "group")) and "gather" in name and not re.search(r"all_?gather", name):
        return rename(_list_for_none if name.endswith("_object") else _list_for_empty)
    return None


class _Renaming:
    """Calls our functions, whose parameter is ``data``, with what the original calls otherwise."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, function: Callable[..., Any]) -> replacing.Replacement:
        def ours(call: Call, **arguments: Any) -> Any:
            data = arguments.pop(self._name)
            return function(call, data, **arguments)

        return ours


def _fill(call: Call, object_list: Any, obj: Any, group: Any = None, **others: Any) -> Any:
    member = meeting.of(group)
    if member is None or any(others.values()):
        return call.original()
    for place, entry in enumerate(member.call("all_gather", obj, site=call.site)):
        object_list[place] = entry
    return None


def _list_for_all(call: Call, data: Any, group: Any = None) -> Any:
    member = meeting.of(group)
    if member is None:
        return call.original()
    return member.call("all_gather", data, site=call.site)


def _gather(call: Call, data: Any, dst: int, group: Any, elsewhere: Any) -> Any:
    member = meeting.of(group)
    place = member.place(dst) if member is not None else None
    if member is None or place is None:
        return call.original()
    everything = member.call("gather", data, place, site=call.site)
    return everything if everything is not None else elsewhere


def _list_for_none(call: Call, data: Any, dst: int = 0, group: Any = None) -> Any:
    return _gather(call, data, dst, group, None)


def _list_for_empty(call: Call, data: Any, dst: int = 0, group: Any = None) -> Any:
    return _gather(call, data, dst, group, [])
