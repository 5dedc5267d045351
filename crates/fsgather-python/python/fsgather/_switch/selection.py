"""What ``FSGATHER_PATCH`` asks for: :func:`parse`."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

__all__ = ["Selection", "parse"]

#: The words, as messages list them.
WORDS = ("torch", "torch+internal", "mmengine", "torchmetrics", "sam", "mdetr", "dpr", "all")

_FAMILIES = ("mmengine", "torchmetrics", "sam", "dpr")

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class Selection(NamedTuple):
    """Which functions are to be replaced."""

    text: str = ""
    """The variable as it was given."""
    torch: bool = False
    """The object functions of ``torch.distributed``."""
    internal: bool = False
    """Those also where torch itself calls them."""
    families: frozenset[str] = frozenset()
    """Of ``mmengine``, ``torchmetrics``, ``sam`` and ``dpr``."""
    named: frozenset[str] = frozenset()
    """Those of them that the text names, rather than ``all``: the job is expected to use them."""
    functions: tuple[tuple[str, str], ...] = ()
    """Single functions: module and name."""
    problem: str = ""
    """What is wrong with the text, and what would be right; empty when nothing is."""


def parse(text: str) -> Selection:
    """Reads a list separated by commas or blanks. Never raises: see :attr:`Selection.problem`."""
    words = [word for word in re.split(r"[,\s]+", text) if word]
    named: set[str] = set()
    is_all = False
    functions: list[tuple[str, str]] = []
    problems: list[str] = []
    torch = internal = False
    for word in words:
        if word in ("torch", "torch+internal"):
            torch = True
            internal = internal or word != "torch"
        elif word == "all":
            torch = is_all = True
        elif word in _FAMILIES:
            named.add(word)
        elif word == "mdetr":
            named.add("sam")
        elif _FUNCTION.fullmatch(word):
            module, function = word.split(":")
            functions.append((module, function))
        else:
            problems.append(_unknown(word))
    problem = ""
    if problems:
        problem = (
            f"FSGATHER_PATCH={text}: {'; '.join(problems)}. Valid words are {', '.join(WORDS)} and package.module:function, "
            "separated by commas, for example FSGATHER_PATCH=torch,mmengine"
        )
    families = frozenset(_FAMILIES if is_all else named)
    return Selection(text, torch, internal, families, frozenset(named), tuple(functions), problem)


def _unknown(word: str) -> str:
    near = difflib.get_close_matches(word, WORDS, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no {word!r}{hint}"
