"""Tracebacks of failed calls: the program's frames, and one of ours. The message tells everything; our own frames would bury it, on each rank."""

from __future__ import annotations

import functools
import logging
from types import TracebackType
from typing import Any, Callable, Iterable, Optional, TypeVar

__all__ = ["public", "shorten", "shortened", "without_our_frames"]

E = TypeVar("E", bound=BaseException)

_PACKAGE = __name__.partition(".")[0]


def without_our_frames(error: E) -> E:
    """Returns an exception that is raised anew, without the frames by which it has come through us. The debug level keeps them."""
    if not logging.getLogger(_PACKAGE).isEnabledFor(logging.DEBUG):
        seen: set[int] = set()
        cause: Optional[BaseException] = error
        # Exceptions may be causes of each other.
        while cause is not None and id(cause) not in seen:
            cause.__traceback__ = _of_others(cause.__traceback__)
            seen.add(id(cause))
            cause = cause.__cause__
    return error


def shortened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose exceptions have none of its own frames."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except Exception as error:
            raise without_our_frames(error)

    return call


def shorten(place: Any, names: Iterable[str]) -> None:
    """Replaces functions of a module or class by those."""
    for name in names:
        function = vars(place)[name]
        if isinstance(function, classmethod):
            setattr(place, name, classmethod(shortened(function.__func__)))
        elif callable(function):
            setattr(place, name, shortened(function))


def public(place: type) -> list[str]:
    """Returns the names of a class's own methods that programs call."""
    return [name for name in vars(place) if not name.startswith("_")]


def _of_others(traceback: Optional[TracebackType]) -> Optional[TracebackType]:
    """Returns what follows the frames of ours that a traceback begins with."""
    while traceback is not None and str(traceback.tb_frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        traceback = traceback.tb_next
    return traceback
