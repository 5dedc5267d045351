"""The object functions of ``torch.distributed``, with fsgather behind them.

Whatever is not ours is left to the original, called with the very arguments: calls from inside torch, arguments
that do not fit or that we do not know, ranks outside the group, groups of one. It is decided from what is the same
on all ranks, and before anything is sent.

Results are the original's. Where ranks fail it is better: an object that cannot be pickled raises its own exception on
its rank, as in the original, and :class:`fsgather.PeerFailedError` with that exception's text on the others, which the original
leaves waiting.
"""

from __future__ import annotations

import functools
import inspect
import io
import pickle
from types import ModuleType
from typing import Any, Callable, Optional

from fsgather import _errors
from fsgather._tracebacks import without_our_frames
from fsgather._switch import callers, groups, marks, meeting, notices
from fsgather._switch.selection import Selection

__all__ = ["install", "use_for_backend"]

#: What each replacement understands, beside what it needs.
_PARAMETERS = {
    "all_gather_object": ({"object_list", "obj", "group"}, {"weights_only"}),
    "gather_object": ({"obj", "object_gather_list", "dst", "group"}, {"group_dst", "weights_only"}),
    "broadcast_object_list": ({"object_list", "src", "group"}, {"device", "group_src", "weights_only"}),
}

_Arguments = dict[str, Any]

_selection = Selection()


def install(selection: Selection, module: ModuleType) -> None:
    """Replaces the functions in ``module``, one of those that have some of them. Doing so twice changes nothing more."""
    global _selection
    _selection = selection
    for name, replacement in (
        ("all_gather_object", _all_gather_object),
        ("gather_object", _gather_object),
        ("broadcast_object_list", _broadcast_object_list),
    ):
        _replace(module, name, functools.partial(_collective, name, replacement))
    _replace(module, "init_process_group", _announcing)
    _replace(module, "destroy_process_group", _forgetting)
    _replace(module, "_abort_process_group", _forgetting)


def use_for_backend(module: ModuleType) -> None:
    """Replaces the functions for groups whose backend is ``fsgather``, and for others if that was asked for before."""
    install(_selection, module)


def _replace(module: ModuleType, name: str, make: Callable[[Callable[..., Any]], Optional[Callable[..., Any]]]) -> None:
    original = getattr(module, name, None)
    if original is None or hasattr(original, "__fsgather_original__"):
        return
    # Both modules have the same function, and go on having the same one.
    known = getattr(original, "__fsgather_replacement__", None)
    replacement = known if known is not None else make(original)
    if replacement is None:
        return
    replacement.__dict__["__fsgather_original__"] = original
    original.__dict__["__fsgather_replacement__"] = replacement
    setattr(module, name, replacement)


def _collective(
    name: str, ours: Callable[[_Arguments, meeting.Membership, str], bool], original: Callable[..., Any]
) -> Optional[Callable[..., Any]]:
    signature = inspect.signature(original)
    needed, understood = _PARAMETERS[name]
    if not needed <= set(signature.parameters):
        notices.warn(f"torch.distributed.{name} of this version takes {signature}, which fsgather does not know; it is left as it is")
        return None
    unknown = set(signature.parameters) - needed - understood

    @functools.wraps(original)
    def replacement(*arguments: Any, **named: Any) -> Any:
        if not _selection.internal and callers.is_torch(1):
            return original(*arguments, **named)
        if _selection.problem:
            raise _errors.ConfigError(_selection.problem)
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:
            return original(*arguments, **named)
        bound.apply_defaults()
        given = bound.arguments
        if any(given[key] is not signature.parameters[key].default for key in unknown):
            return original(*arguments, **named)
        member = _member(given["group"])
        site = callers.site(1)
        try:
            is_ours = member is not None and ours(given, member, site)
        except Exception as error:
            raise without_our_frames(error)
        return None if is_ours else original(*arguments, **named)

    return replacement


def _member(group: Any) -> Optional[meeting.Membership]:
    """The membership for a group whose objects go our way."""
    if not _selection.torch:
        process_group = groups.current(group)
        if process_group is None or not groups.is_for_us(process_group):
            return None
    return meeting.of(group)


def _all_gather_object(given: _Arguments, member: meeting.Membership, site: str) -> bool:
    into = given["object_list"]
    packing = _Packing(given)
    everything = member.call("all_gather", packing.pack(given["obj"]), site=site)
    for place, entry in enumerate(everything):
        into[place] = packing.unpack(entry)
    return True


def _gather_object(given: _Arguments, member: meeting.Membership, site: str) -> bool:
    destination = _place(given, member, "dst")
    into = given["object_gather_list"]
    # A list where there must be none, or none where there must be one: the original says so.
    if destination is None or bool(into) != (destination == member.rank):
        return False
    packing = _Packing(given)
    everything = member.call("gather", packing.pack(given["obj"]), destination, site=site)
    if everything is not None:
        for place, entry in enumerate(everything):
            into[place] = packing.unpack(entry)
    return True


def _broadcast_object_list(given: _Arguments, member: meeting.Membership, site: str) -> bool:
    source = _place(given, member, "src")
    if source is None:
        return False
    objects = given["object_list"]
    packing = _Packing(given)
    if source == member.rank:
        member.call("broadcast", [packing.pack(entry) for entry in objects], source, like="pickles", site=site)
        return True
    received = member.call("broadcast", None, source, site=site)
    if len(received) != len(objects):
        raise ValueError(
            f"broadcast_object_list: rank {member.ranks[source]} sent {len(received)} objects, and the list of rank "
            f"{member.ranks[member.rank]} has {len(objects)} entries; they must be the same on all ranks"
        )
    for index, entry in enumerate(received):
        objects[index] = packing.unpack(entry)
    return True


def _place(given: _Arguments, member: meeting.Membership, name: str) -> Optional[int]:
    """The root's place in the group; ``None`` where the original has something to say about it."""
    in_world, in_group = given[name], given.get("group_" + name)
    if in_group is None:
        return member.place(0 if in_world is None else in_world)
    if in_world is not None or in_group not in range(len(member.ranks)):
        return None
    return int(in_group)


class _Packing:
    """Objects as they are, or under ``weights_only`` in the form that torch reads back without running code.

    Where the program has given torch a pickler of its own, that one makes the pickle.
    """

    def __init__(self, given: _Arguments) -> None:
        self._is_restricted = bool(given.get("weights_only", False))

    def pack(self, entry: Any) -> Any:
        if not self._is_restricted:
            return _Pickled(entry) if _has_own_pickler() else entry
        import torch

        packed = io.BytesIO()
        try:
            torch.save(entry, packed)
        except Exception as error:
            return _Unpackable(error)
        return packed.getvalue()

    def unpack(self, entry: Any) -> Any:
        if not self._is_restricted:
            return entry
        if not isinstance(entry, (bytes, bytearray)):
            raise ValueError("weights_only must be the same on all ranks")
        import torch

        return torch.load(io.BytesIO(entry), weights_only=True)


def _has_own_pickler() -> bool:
    module = groups.c10d()
    pickler, unpickler = getattr(module, "_pickler", None), getattr(module, "_unpickler", None)
    return pickler not in (None, pickle.Pickler) or unpickler not in (None, pickle.Unpickler)


class _Pickled:
    """Stands for an object that the program's own pickler carries: unpickled it is that object."""

    def __init__(self, entry: Any) -> None:
        self._entry = entry

    def __reduce__(self) -> Any:
        packed = io.BytesIO()
        groups.c10d()._pickler(packed).dump(self._entry)
        return _unpickled, (packed.getvalue(),)


def _unpickled(packed: bytes) -> Any:
    return groups.c10d()._unpickler(io.BytesIO(packed)).load()


class _Unpackable:
    """Stands for an object that cannot be packed: handing it in fails the call for all ranks, so that none is left waiting."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise self._error


def _begin(began: float) -> None:
    chosen = _selection
    if chosen.problem or chosen.torch or chosen.families or chosen.functions:
        meeting.begin(began, chosen.problem)
        return
    process_group = groups.current(None)
    if process_group is not None and groups.is_for_us(process_group):
        meeting.begin(began, "")


def _announcing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_process_group(*arguments: Any, **named: Any) -> Any:
        began = marks.clock()
        result = original(*arguments, **named)
        try:
            _begin(began)
        except Exception as error:
            # What is known of other ranks depends on it, and no more.
            notices.debug(f"ranks cannot be told of each other: {error!r}")
        return result

    return init_process_group


def _forgetting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def destroy_process_group(*arguments: Any, **named: Any) -> Any:
        group = arguments[0] if arguments else named.get("group")
        is_last = group is None or groups.current(group) is groups.current()
        failure = meeting.last_words() if is_last else None
        try:
            return original(*arguments, **named)
        finally:
            meeting.forget_destroyed(failure)

    return destroy_process_group
