"""Functions that only look like a gather are found by their first call: :func:`on_trial`."""

from __future__ import annotations

import itertools
import pickle
import sys
import weakref
from typing import Any, Callable, Iterator, Optional, Union

from fsgather import _fsgather
from fsgather._switch import meeting, notices
from fsgather._switch.replacing import Call, Replacement

__all__ = ["difference", "on_trial"]

_MAX_TRIALS = 100
"""Maximum number of calls that are compared on each process group."""

_MAX_VALUES_PER_PART = 1000
"""Maximum number of values of a part that are looked at for an order."""

_CHANGES = frozenset({"drops repetitions", "sorts", "sorts in reverse"})
"""What a function may do that other results do not show."""


def on_trial(full_name: str, ours: Replacement) -> Replacement:
    """Returns a replacement whose first calls on each process group run the original as well and compare the results.

    If they differ on any rank of the group, the original stays on all of them. If they are the same, later calls run ours alone, as soon
    as the results have excluded all of :data:`_CHANGES`, or after :data:`_MAX_TRIALS` calls.
    """
    is_gather: weakref.WeakKeyDictionary[meeting.Membership, bool] = weakref.WeakKeyDictionary()
    trials: weakref.WeakKeyDictionary[meeting.Membership, tuple[int, frozenset[str]]] = weakref.WeakKeyDictionary()

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
        count, excluded = trials.get(member, (0, frozenset()))
        excluded = excluded.union(_CHANGES.intersection(*(verdict for verdict in told if not isinstance(verdict, str))))
        trials[member] = count + 1, excluded
        if differing or excluded == _CHANGES or count + 1 >= _MAX_TRIALS:
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


def _judge(ours: tuple[Any, Any], original: tuple[Any, Any]) -> Union[str, list[str]]:
    """How the outcomes differ; if they are the same, which of the changes this excludes."""
    for mine, its in zip(ours, original):
        text = difference(mine, its)
        if text is not None:
            return text
    return sorted(_CHANGES.intersection(*map(_excluded_by, ours)))


def _excluded_by(result: Any) -> set[str]:
    """Returns which of the changes would have changed a result. Nothing is expected of other results than lists."""
    if not isinstance(result, list) or not result:
        return set(_CHANGES)
    pickled = list(map(_pickled, result))
    excluded = {"drops repetitions"} if len(set(pickled)) < len(pickled) else set()
    # A function may sort by any part of the parts. What has no order, or is the same everywhere, shows nothing.
    columns = list(zip(*(itertools.islice(_values(part), _MAX_VALUES_PER_PART) for part in result)))
    columns = [column for column in columns if len({type(value) for value in column}) == 1 and any(value != column[0] for value in column)]
    if columns and not any(list(column) == sorted(column) for column in columns):
        excluded.add("sorts")
    if columns and not any(list(column) == sorted(column, reverse=True) for column in columns):
        excluded.add("sorts in reverse")
    return excluded


def _values(part: Any) -> Iterator[Union[float, str, bytes]]:
    """Yields the numbers and texts in a part, in the order in which it has them."""
    tolist = getattr(part, "tolist", None)
    if isinstance(part, (int, float, str, bytes)):
        yield part
    elif isinstance(part, (list, tuple)):
        yield len(part)
        for entry in part:
            yield from _values(entry)
    elif isinstance(part, dict):
        for entry in part.items():
            yield from _values(entry)
    elif tolist is not None and _is_array(part):
        yield from _values(tolist())


def _is_array(value: Any) -> bool:
    return any(name in sys.modules and isinstance(value, kind(sys.modules[name])) for name, kind in _ARRAY_TYPES.items())


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
        if module is not None and isinstance(one, _ARRAY_TYPES[name](module)):
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


_ARRAY_TYPES: dict[str, Callable[[Any], type]] = {"torch": lambda torch: torch.Tensor, "numpy": lambda numpy: numpy.ndarray}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"torch": _are_same_tensors, "numpy": _are_same_arrays}


def _pickled(value: Any) -> bytes:
    # Read back once, so that objects that one of the two shares with others look alike.
    return pickle.dumps(pickle.loads(pickle.dumps(value)))
