"""Dictionaries of all ranks joined by key: :func:`gather`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from fsgather._errors import _make

if TYPE_CHECKING:
    from fsgather._communicator import Communicator

MUST_BE_THERE: Any = object()
"""The default where there is none."""

_SHOWN = 5
"""How many keys, and how many ranks, a message names before it only counts them."""


def gather(communicator: Communicator, data: Any, dst: Optional[int], default: Any, how: dict[str, Any]) -> Optional[dict[Any, list[Any]]]:
    """Agrees on the keys first, so that all ranks know alike who lacks one; then hands over the values alone."""
    is_mapping = isinstance(data, Mapping)
    keys = list(data) if is_mapping else None
    # What is wrong with a mapping of the program's own comes up before the others wait for this rank.
    own = [data[key] for key in keys or ()]
    member = communicator._member
    # A key that has been pickled need not be equal to that of another rank. Nor may a rank that is wrong leave the others waiting.
    keys_of: list[Any] = member.all_gather(type(data).__name__ if keys is None else keys, {**how, "allow_pickle": False})
    wrong = {rank: f"handed in {keys}, which is no dictionary" for rank, keys in enumerate(keys_of) if isinstance(keys, str)}
    if not wrong and default is MUST_BE_THERE:
        wrong = _lacks(keys_of)
    if wrong:
        raise _make("Mismatch", f"the dictionaries to be joined differ between ranks: {_told(wrong)}", {"table": wrong})
    parts = member.all_gather(own, how) if dst is None else member.gather(own, dst, how)
    if parts is None:
        return None
    joined: dict[Any, list[Any]] = {}
    for rank, (its_keys, values) in enumerate(zip(keys_of, parts)):
        for key, value in zip(its_keys, values):
            joined.setdefault(key, [default] * len(keys_of))[rank] = value
    return joined


def _lacks(keys_of: list[list[Any]]) -> dict[int, str]:
    """What each rank lacks that another one has, in words."""
    # The order is that of the first rank that has a key, the same for all who look.
    everything = dict.fromkeys(key for keys in keys_of for key in keys)
    lacks = {}
    for rank, keys in enumerate(keys_of):
        if len(keys) < len(everything):
            own = frozenset(keys)
            lacking = [repr(key) for key in everything if key not in own]
            lacks[rank] = f"lacks {_some(lacking)}"
    return lacks


def _told(wrong: dict[int, str]) -> str:
    """The ranks by what is wrong with them."""
    ranks: dict[str, list[str]] = {}
    for rank, text in wrong.items():
        ranks.setdefault(text, []).append(str(rank))
    told = [
        f"rank {which[0]} {text}" if len(which) == 1 else f"ranks {_some(which)} {text.replace('lacks', 'lack', 1)}"
        for text, which in ranks.items()
    ]
    return _some(told, "; ")


def _some(texts: list[str], between: str = ", ") -> str:
    more = len(texts) - _SHOWN
    return between.join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
