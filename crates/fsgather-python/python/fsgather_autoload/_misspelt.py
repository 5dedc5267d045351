"""Tells that a variable was probably meant to be ``FSGATHER_PATCH``."""

from __future__ import annotations

import difflib

__all__ = ["tell"]

_RIGHT = "FSGATHER_PATCH"


def tell(names: list[str]) -> None:
    """Says so of the first of these that is nearly that, on standard error, once on each host."""
    for name in names:
        if name != _RIGHT and difflib.SequenceMatcher(None, name.upper(), _RIGHT).ratio() > 0.88:
            from fsgather._switch import notices

            notices.at_import(f"{name} is set, and means nothing: did you mean {_RIGHT}? Nothing is replaced")
            return
