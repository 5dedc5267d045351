"""The end of a process that has communicators: what it tells the other ranks."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
import weakref
from typing import TYPE_CHECKING, Any, Iterator, Optional

from fsgather import _errors, _fsgather

if TYPE_CHECKING:
    from fsgather._communicator import Communicator


def text(error: BaseException) -> str:
    """What other ranks are told of an exception."""
    name = type(error).__name__
    try:
        said = str(error)
    except Exception:
        # As Python itself says it.
        said = "<exception str() failed>"
    return f"{name}: {said}" if said else name


def last_words(error: BaseException, own: Any) -> str:
    """What is told of the exception by which this rank ends: also what it has heard of another, by which it is known not to be the first."""
    # The failure before says it all.
    failure = error.__cause__ if isinstance(error, _errors.PoisonedError) else None
    if failure is not None:
        error = failure
    heard = _errors.heard(error, own)
    if heard is None or heard is error:
        return text(error)
    return f"{text(error)}; {heard}"


living: weakref.WeakSet[Communicator] = weakref.WeakSet()
"""Those of this process that have not been left."""


_meetings: set[_fsgather.Stop] = set()
"""What ends each meeting that a thread of this process is in."""
_meetings_change = threading.Condition()
_is_over = False
"""Whether all that was to be left at the end of the process has been."""
_LAST_MOMENTS = 5.0
"""How many seconds the end of the process waits for meetings of other threads to end, and for their calls: file systems may hang."""
_RAISED_EXIT_SECONDS = 1.0
"""How many seconds such calls may take to end once an exception was raised in them."""


@contextlib.contextmanager
def meeting(stop: _fsgather.Stop) -> Iterator[None]:
    """Has a meeting end with the process, which would else leave behind by what others find it.

    Raises:
        fsgather.ConfigError: the process ends, and a thread that goes on would join what nobody leaves.
    """
    with _meetings_change:
        # What the program itself does at its end it may do.
        if _is_over and threading.current_thread() is not threading.main_thread():
            raise _errors.ConfigError("this process ends, and its threads join nothing any more")
        _meetings.add(stop)
    try:
        yield
    finally:
        with _meetings_change:
            _meetings.discard(stop)
            _meetings_change.notify_all()


def _end_meetings() -> None:
    global _is_over
    with _meetings_change:
        _is_over = True
        for stop in _meetings:
            stop.end("the process ends")
        _meetings_change.wait_for(lambda: not _meetings, _LAST_MOMENTS)


def _after_fork() -> None:
    # The threads that meet are the parent's.
    global _meetings_change
    _meetings_change = threading.Condition()
    _meetings.clear()
    _fsgather.forget_calls()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_failure: Optional[BaseException] = None
"""By what a process ends that ``multiprocessing`` has started; there Python itself does not tell."""
_watched = 0
"""The process whose end has been asked for."""


def ended_by() -> Optional[BaseException]:
    """The exception by which this process ends, at its end."""
    if _failure is not None:
        return _failure
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


def watch() -> None:
    """Has a process that ``multiprocessing`` has started tell the other ranks why it ends: it forgets an exception before ``atexit``, if it gets
    to that."""
    global _watched
    process = sys.modules.get("multiprocessing.process")
    if process is None or _watched == os.getpid() or process.parent_process() is None:
        return
    _watched = os.getpid()
    from multiprocessing import util

    # Before what others have asked for.
    util.Finalize(None, _end_of_child, exitpriority=1 << 30)


def _end_of_child() -> None:
    global _failure
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        # As torch.multiprocessing.spawn, which writes down what it has caught.
        error = error.__context__ if error.code else None
    if error is None:
        return
    _failure = error
    meeting = sys.modules.get("fsgather._switch.meeting")
    if meeting is not None:
        meeting.end_of_process()
    _leave_all()


def _leave_all() -> None:
    """At the end of the process: leaves every communicator, and says why if that was an exception.

    While others have still to read what only this process can give them it stays, and says for whom; Ctrl-C ends that.
    """
    error = ended_by()
    _end_meetings()
    for communicator in list(living):
        if communicator._pid == os.getpid():
            communicator._member.leave(None if error is None else last_words(error, communicator.rank))
    if not _fsgather.end_calls(_LAST_MOMENTS):
        _raise_in_calls()
        _fsgather.end_calls(_RAISED_EXIT_SECONDS)


def _raise_in_calls() -> None:
    """Raises ``SystemExit`` in threads that run Python code of the program within a call, such as a long ``__setstate__``.

    Before 3.14, Python unwinds the stacks of threads that continue while the interpreter ends. Functions of Rust are on these stacks, which
    turn that into an abort of the process.
    """
    with contextlib.suppress(ImportError):
        from fsgather.bootstraps._limits import raise_in_thread

        package = os.path.dirname(__file__)
        for thread, innermost in sys._current_frames().items():
            files = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(innermost))
            if thread != threading.get_ident() and any(file.startswith(package) for file in files):
                raise_in_thread(thread, SystemExit)


atexit.register(_leave_all)
