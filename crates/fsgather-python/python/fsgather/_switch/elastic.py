"""What torchrun says of ranks that end by an exception: :func:`leave_word`.

torchrun calls the failure with the earliest time the root cause. Of a rank that leaves no word that is the moment at which the end of
its process was noticed, and of all that were noticed together the first rank counts. Torch's other ranks hear of a failure a second or two
later; ours hear of it at once, and were blamed for it as often as the rank that had failed. So that one leaves its exception in the file
that torchrun names to it, as ``torch.distributed.elastic`` has it for programs with ``@record``, and the others what they were told.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
import traceback
from typing import Any, Optional

from fsgather import _errors

__all__ = ["forget", "leave_word", "leave_word_of_end", "note", "note_told"]

_FILE = "TORCHELASTIC_ERROR_FILE"

_noted: dict[int, float] = {}
"""When others were told of an exception that is on its way through the program. It is known by its number alone, so that it may go."""


_early: Optional[str] = None
"""Where word of an exception is by which this rank may end; it does not, if it goes on."""


def note(error: BaseException, since: Optional[float] = None) -> None:
    """Notes that others are being told of an exception, by which this rank will end, or not; or since when they may have been."""
    _noted.setdefault(id(error), time.time() if since is None else since)


def note_told(error: BaseException, told: BaseException, began: float) -> None:
    """The same where others have been told already, in a call that began then: they may have ended, and torchrun this rank because of that,
    before it gets to say it at its end."""
    global _early
    note(error, began)
    path = _path()
    if path is not None:
        _early = path
        _leave(path, f"{_said(error)}; {told}", {"timestamp": str(int(began))})


def forget() -> None:
    """Takes that back: the program has got over it."""
    global _early
    path, _early = _early, None
    if path is not None:
        with contextlib.suppress(OSError):
            os.remove(path)


def _path() -> Optional[str]:
    """Where torchrun looks for what this rank says, if nothing is there but what has been said here."""
    path = os.environ.get(_FILE)
    return path if path and path != os.devnull and (path == _early or not os.path.exists(path)) else None


def leave_word(error: BaseException) -> None:
    """Tells torchrun, if that has started this rank, by which exception the rank ends, unless the program has told it."""
    path = _path()
    if path is None:
        return
    heard = _errors.heard(error, os.environ.get("RANK"))
    if heard is not None and heard.is_transient:
        # The rank that was lost leaves no word: its end has the time at which torchrun notices it, and should be the first.
        return forget()
    more: dict[str, Any]
    if heard is None:
        said = _said(error)
        whole = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        more = {"py_callstack": whole, "timestamp": str(int(_noted.get(id(error), time.time())))}
    else:
        said = _said(error) if heard is error else f"{_said(error)}; {_said(heard)}"
        # Seconds are all that counts: whoever only heard of it is never as early as whoever failed.
        more = {"timestamp": str(math.ceil(time.time()))}
    _leave(path, said, more)


def leave_word_of_end() -> None:
    """Tells torchrun that the program of this rank ends without an exception, by ``sys.exit`` or in good order.

    torchrun reads that only of a rank that has ended with another code than 0, which the others may have heard of before.
    """
    path = _path()
    if path is not None:
        said = "the program has ended without an exception; the ranks that wait for this one fail because of that"
        _leave(path, said, {"timestamp": str(int(time.time()))})


def _leave(path: str, said: str, more: dict[str, Any]) -> None:
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "w", encoding="utf-8", errors="backslashreplace") as output:
            json.dump({"message": {"message": said, "extraInfo": more}}, output)
        os.replace(draft, path)
    except OSError:
        # Then torchrun says what it has seen.
        pass


def _said(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()
