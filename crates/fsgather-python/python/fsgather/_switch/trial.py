"""Functions that only look like a gather are found by their first call: :func:`on_trial`."""

from __future__ import annotations

import pickle
import sys
import weakref
from typing import Any, Callable, Optional, Union

from fsgather import _fsgather
from fsgather._switch import meeting, notices
from fsgather._switch.replacing import Call, Replacement

__all__ = ["difference", "on_trial"]


def on_trial(full_name: str, ours: Replacement) -> Replacement:
    """Returns a replacement whose first call on each process group runs the original as well and compares the results.

    If they differ on any rank of the group, the original stays on all of them. If they are the same, later calls run ours alone; results
    that would look the same with repetitions dropped and sorted prove nothing, and the next call is another trial.
    """
    is_gather: weakref.WeakKeyDictionary[meeting.Membership, bool] = weakref.WeakKeyDictionary()

    def replacement(call: Call, **arguments: Any) -> Any:
        member = meeting.of(arguments.get("group"))
        known = None if member is None else is_gather.get(member)
        if member is None or known is not None:
            return call.original() if known is False else ours(call, **arguments)
        is_left_to_original = False

        def original() -> Any:
            nonlocal is_left_to_original
            is_left_to_original = True
            return call.original()

        filled = arguments.get("object_list")
        found = _outcome(ours(call._replace(original=original), **arguments), filled)
        if is_left_to_original:
            return found[0]
        result = call.original()
        verdict = _judge(found, _outcome(result, filled))
        told = member.call("all_gather", verdict, site=call.site)
        differing = [(rank, text) for rank, text in zip(member.ranks, told) if isinstance(text, str)]
        if differing or all(told):
            is_gather[member] = not differing
        if differing and member.rank == 0:
            rank, text = differing[0]
            notices.once(
                f"FSGATHER_PATCH: {full_name} is left as it is, because it does not return what a gather does: on rank {rank} it returns "
                f"{_fsgather.plain_text(text)}"
            )
        return result

    return replacement


def _outcome(result: Any, filled: Optional[list[Any]]) -> tuple[Any, Any]:
    """What a function has returned, and what it has put into the list that it was given."""
    return result, None if filled is None else list(filled)


def _judge(ours: tuple[Any, Any], original: tuple[Any, Any]) -> Union[str, bool]:
    """How the outcomes differ; ``True`` if they are the same, ``False`` if they are but prove nothing."""
    for mine, its in zip(ours, original):
        text = difference(mine, its)
        if text is not None:
            return text
    return not any(_is_ordered(part) for part in ours)


def _is_ordered(part: Any) -> bool:
    """Whether dropping repetitions and sorting would change nothing."""
    if not isinstance(part, list) or not part:
        return False
    try:
        return bool(sorted(set(part)) == part)
    except Exception:
        # Not hashable, or without an order.
        return False


def difference(ours: Any, original: Any) -> Optional[str]:
    """What the original returns, for people, if that is another type, length or content than ours; else ``None``."""
    if _shape(ours) != _shape(original):
        return f"{_shape(original)} instead of {_shape(ours)}"
    return None if _are_same(ours, original) else f"{_shape(original)} with another content"


def _shape(value: Any) -> str:
    name = type(value).__name__
    return f"{name} of {len(value)}" if isinstance(value, (list, tuple, dict, set, str, bytes)) else name


def _are_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_are_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_are_same(one[key], other[key]) for key in one)
    for name, compare in _COMPARISONS.items():
        module = sys.modules.get(name)
        if module is not None and isinstance(one, (module.Tensor if name == "torch" else module.ndarray)):
            return compare(one, other)
    try:
        if bool(one == other):
            return True
    except Exception:
        # Comparing is the program's code, and may know no answer.
        pass
    return _pickled(one) == _pickled(other)


def _are_same_tensors(one: Any, other: Any) -> bool:
    if (one.dtype, one.shape, one.device, one.layout) != (other.dtype, other.shape, other.device, other.layout):
        return False
    return _pickled(one.detach().clone()) == _pickled(other.detach().clone())


def _are_same_arrays(one: Any, other: Any) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return _pickled(one.copy()) == _pickled(other.copy())


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"torch": _are_same_tensors, "numpy": _are_same_arrays}


def _pickled(value: Any) -> bytes:
    # Read back once, so that objects that one of the two shares with others look alike.
    return pickle.dumps(pickle.loads(pickle.dumps(value)))
