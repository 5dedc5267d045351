"""SIGTERM while a call waits: what this process has handed in is removed before the signal ends it, as with Ctrl-C.

A launcher that is told to end sends SIGTERM to all ranks at once, so that none is left to remove what they leave. By default that signal
ends a process between two instructions. So for as long as the main thread is inside of a call, and the program has nothing of its own
for SIGTERM, the signal ends the call first, and then the process, by the same signal. Between calls nothing is different.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

__all__ = ["Terminated", "begin", "die", "end"]

#: Seconds that removing and taking leave may take. Launchers wait some ten times as long before they kill.
_LIMIT = 3.0

_SIGTERM, _DEFAULT = int(signal.SIGTERM), int(signal.SIG_DFL)
_plain: Any = sys.modules.get("_signal", signal)
"""The same functions, but for a conversion of numbers and handlers to members of enumerations that takes longer than the rest of a call."""

_pid = 0
"""The process that has begun a call; a forked child has our handler, and no call."""
_is_minding = False
"""Whether a call is under way in that process that SIGTERM ends first."""
_has_come = False
_is_dying = False


class Terminated(BaseException):
    """SIGTERM has come while a call waited."""


def begin() -> bool:
    """Has SIGTERM end the call that begins now, where it would end the process; whether it does.

    What raises here, such as the signal itself, has to be followed by :func:`end` as well.
    """
    global _pid, _is_minding, _has_come
    if _is_dying or threading.current_thread() is not threading.main_thread():
        return False
    before = _plain.getsignal(_SIGTERM)
    if before is _terminate:
        if _is_minding and _pid == os.getpid():
            # Python code that runs within another call, such as a logging handler, makes this one. That call has set the handler.
            return False
    elif not isinstance(before, int) or before != _DEFAULT:
        return False
    _pid, _is_minding, _has_come = os.getpid(), True, False
    try:
        _plain.signal(_SIGTERM, _terminate)
    except ValueError:
        # Not the main interpreter.
        _is_minding = False
        return False
    return True


def end() -> None:
    """Ends what :func:`begin` began; raises if SIGTERM came meanwhile, also if Python code within the call has caught that."""
    global _is_minding
    _is_minding = False
    if _plain.getsignal(_SIGTERM) is _terminate:
        _plain.signal(_SIGTERM, _DEFAULT)
    if _has_come and _pid == os.getpid():
        raise Terminated("SIGTERM")


def die() -> None:
    """Leaves all communicators, and ends this process by the signal."""
    global _is_dying
    _is_dying = True
    # From now on another one ends it at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    leaving = threading.Thread(target=_leave_all, name="fsgather-end", daemon=True)
    leaving.start()
    leaving.join(_LIMIT)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(128 + signal.SIGTERM)


def _leave_all() -> None:
    from fsgather._leaving import living

    for communicator in list(living):
        if communicator._pid == os.getpid():
            communicator._member.leave("SIGTERM")


def _terminate(number: int, _frame: Any) -> None:
    global _has_come
    if os.getpid() != _pid or not _is_minding:
        # A forked child, or a program that has put us back between calls.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    _has_come = True
    raise Terminated("SIGTERM")
