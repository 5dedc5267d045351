"""The end of a process that has communicators: what it tells the other ranks."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

from fsgather import _errors

if TYPE_CHECKING:
    from fsgather._communicator import Communicator


def text(error: BaseException) -> str:
    """What other ranks are told of an exception."""
    said = str(error)
    name = type(error).__name__
    return f"{name}: {said}" if said else name


def last_words(error: BaseException, own: Any) -> str:
    """What is told of the exception by which this rank ends: also what it has heard of another, by which it is known not to be the first."""
    heard = _errors.heard(error, own)
    if heard is None or heard is error:
        return text(error)
    return f"{text(error)}; {heard}"


living: weakref.WeakSet[Communicator] = weakref.WeakSet()
"""Those of this process that have not been left."""


def _leave_all() -> None:
    """At the end of the process: leaves every communicator, and says why if that was an exception.

    While others have still to read what only this process can give them it stays, and says for whom; Ctrl-C ends that.
    """
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for communicator in list(living):
        if communicator._pid == os.getpid():
            communicator._member.leave(None if error is None else last_words(error, communicator.rank))


atexit.register(_leave_all)
