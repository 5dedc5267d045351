"""What torch knows about a process group, whatever its version: :func:`describe`.

Nothing here imports torch: whoever asks has a process group already.
"""

from __future__ import annotations

import datetime
import sys
from typing import Any, NamedTuple, Optional

__all__ = ["C10D", "Group", "backend", "c10d", "current", "describe", "exists", "is_for_us"]

C10D = "torch.distributed.distributed_c10d"

_UNREAL = ("fake", "threaded")
"""Backends that connect nothing: ranks without processes of their own."""

_DEFAULT_TIMEOUT = 1800.0
"""Torch's default for process groups that do not tell theirs, in seconds."""


class Group(NamedTuple):
    """A process group of more than one process, of which this is one."""

    process_group: Any
    name: str
    """What torch calls it: a number in the order of making."""
    rank: int
    """This process's number within it."""
    ranks: tuple[int, ...]
    """The number in the world of each of its ranks."""
    home: Any
    """The default group, if all members are known to be its ranks; else the group itself, whose numbers mean something else."""
    store: Any
    """The store through which torch introduced the ranks of ``home``."""
    timeout: float
    """How long its collectives wait, in seconds."""
    backend: str
    """Its backends, as torch writes them: ``"cpu:gloo,cuda:nccl"``."""

    @property
    def is_of_world(self) -> bool:
        """Whether its members are known to be ranks of the default group."""
        return self.home is not self.process_group or self.home is current()


def c10d() -> Any:
    """The module of torch that holds process groups, or ``None``."""
    return sys.modules.get(C10D)


def current(group: Any = None) -> Any:
    """The process group that ``group`` stands for, or ``None`` when there is none."""
    module = c10d()
    if module is None or not module.is_initialized():
        return None
    if group is None or group is module.GroupMember.WORLD:
        return module._get_default_group()
    if group is module.GroupMember.NON_GROUP_MEMBER or not isinstance(group, module.ProcessGroup):
        return None
    return group


def is_for_us(process_group: Any) -> bool:
    """Whether the job has chosen the backend ``fsgather`` for it."""
    return "fsgather" in backend(process_group)


def backend(process_group: Any) -> str:
    """Its backends, as torch writes them: ``"cpu:gloo,cuda:nccl"``; before 2.0 a single word."""
    config = _table("pg_backend_config").get(process_group)
    return str(config) if config is not None else str(c10d().get_backend(process_group))


def exists(process_group: Any) -> bool:
    """Whether it has not been destroyed."""
    return process_group is not None and process_group in _table("pg_map")


def describe(group: Any = None) -> Optional[Group]:
    """What there is to know, or ``None`` where torch's own functions are right: no group, a group of one, a
    destroyed one, or one whose ranks share no store."""
    process_group = current(group)
    if process_group is None or process_group.size() < 2 or not exists(process_group):
        return None
    module = c10d()
    backends = backend(process_group)
    if any(word in backends for word in _UNREAL):
        return None
    store = _store(process_group)
    places = _table("pg_group_ranks").get(process_group)
    if store is None or not places:
        return None
    ranks = tuple(sorted(places, key=places.__getitem__))
    name = str(_table("pg_names").get(process_group, ""))
    home, rank = process_group, process_group.rank()
    default = module._get_default_group()
    default_store = _store(default)
    if _is_within(store, default_store) and max(ranks) < default.size() and ranks[rank] == default.rank():
        home, store = default, default_store
    return Group(process_group, name, rank, ranks, home, store, _timeout(process_group), backends)


def _is_within(store: Any, default_store: Any) -> bool:
    """Whether a store is a part of the default group's, as those of the groups that torch makes of its ranks.

    A program may also join processes of several jobs, over a store of its own: such a group numbers them anew.
    """
    while store is not None and store is not default_store:
        store = getattr(store, "underlying_store", None)
    return store is not None


def _table(name: str) -> Any:
    """One of torch's tables of process groups: in an object since 2.0, before that variables of the module."""
    module = c10d()
    world = getattr(module, "_world", None)
    table = getattr(world, name, None) if world is not None else None
    return table if table is not None else getattr(module, "_" + name, {})


def _store(process_group: Any) -> Any:
    public = getattr(process_group, "get_group_store", None)
    if public is not None:
        try:
            return public()
        except RuntimeError:
            # Groups of some backends have none of their own.
            pass
    entry = _table("pg_map").get(process_group)
    return entry[1] if entry else None


def _timeout(process_group: Any) -> float:
    import torch

    holders = []
    for device in ("cpu", "cuda"):
        try:
            holders.append(process_group._get_backend(torch.device(device)))
        except (AttributeError, RuntimeError):
            # 1.13 has no such method, and other versions may have no backend for the device.
            continue
    for holder in (*holders, process_group):
        found = getattr(getattr(holder, "options", None), "_timeout", None)
        if isinstance(found, datetime.timedelta):
            return found.total_seconds()
    return _DEFAULT_TIMEOUT
