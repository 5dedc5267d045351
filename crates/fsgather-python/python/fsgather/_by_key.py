"""Dictionaries of all ranks joined by key: :func:`gather`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

from fsgather import _fsgather
from fsgather._errors import _make

if TYPE_CHECKING:
    from fsgather._communicator import Communicator

MUST_BE_THERE: Any = object()
"""The default where there is none."""

_SHOWN = 5
"""How many keys, and how many ranks, a message names before it only counts them."""
_LONGEST = 100
"""How many characters of a key a message shows."""


def gather(communicator: Communicator, data: Any, dst: Optional[int], default: Any, how: dict[str, Any]) -> Optional[dict[Any, list[Any]]]:
    """Agrees on the keys first, so that all ranks know alike who lacks one; then hands over the values alone."""
    keys = list(data) if isinstance(data, Mapping) else []
    # What is wrong with a mapping of the program's own comes up before the others wait for this rank.
    own = [data[key] for key in keys]
    has_default = default is not MUST_BE_THERE
    member = communicator._member
    # A rank that is wrong must not leave the others waiting.
    own_word = _unfit(data, keys) or (keys, has_default)
    words: list[Any] = member.all_gather(own_word, {**how, "allow_pickle": False})
    wrong = {rank: word for rank, word in enumerate(words) if isinstance(word, str)}
    if not wrong and any(word[1] != words[0][1] for word in words):
        wrong = {rank: f"gave {'a' if word[1] else 'no'} default" for rank, word in enumerate(words)}
    keys_of = [word[0] for word in words if not isinstance(word, str)]
    if not wrong and not has_default:
        wrong = _lacks(keys_of)
    if wrong:
        wrong = {member.name_of(rank): text for rank, text in wrong.items()}
        raise _make("Mismatch", f"the dictionaries to be joined differ between ranks: {_told(wrong)}", {"table": wrong})
    parts = member.all_gather(own, how) if dst is None else member.gather(own, dst, how)
    if parts is None:
        return None
    joined: dict[Any, list[Any]] = {}
    for rank, (its_keys, values) in enumerate(zip(keys_of, parts)):
        for key, value in zip(its_keys, values):
            joined.setdefault(key, [default] * len(keys_of))[rank] = value
    return joined


def _unfit(data: Any, keys: list[Any]) -> Optional[str]:
    """Why this rank cannot take part, in words."""
    if not isinstance(data, Mapping):
        return f"handed in {type(data).__name__}, which is no dictionary"
    if _travels(keys):
        return None
    for key in keys:
        if not _is_plain(key):
            # Once it has been pickled it need not be equal to that of another rank.
            kind = type(key)
            return f"handed in a key of type {kind.__module__}.{kind.__qualname__}, and keys are plain data, such as strings"
        if not _travels(key):
            return f"handed in the key {_cut(key)}, which equals no other rank's (as nan does not)"
    return None


def _is_plain(data: Any) -> bool:
    try:
        _fsgather._plain_encode(data)
    except TypeError:
        return False
    return True


def _travels(data: Any) -> bool:
    """Whether this is plain data, and equals what another rank gets of it."""
    try:
        return bool(_fsgather._plain_decode(*_fsgather._plain_encode(data)) == data)
    except (TypeError, ValueError, RuntimeError):
        return False


def _lacks(keys_of: list[list[Any]]) -> dict[int, str]:
    """What each rank lacks that another one has, in words."""
    # The order is that of the first rank that has a key, the same for all who look.
    everything = dict.fromkeys(key for keys in keys_of for key in keys)
    lacks = {}
    for rank, keys in enumerate(keys_of):
        if len(keys) < len(everything):
            own = frozenset(keys)
            lacking = [_cut(key) for key in everything if key not in own]
            lacks[rank] = f"lacks {_some(lacking)}"
    return lacks


def _cut(key: Any) -> str:
    """A key, or its beginning."""
    text = repr(key)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


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
