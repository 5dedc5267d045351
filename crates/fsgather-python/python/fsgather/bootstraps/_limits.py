"""What an engine does for us may hang: :func:`apart` and :func:`within` end that."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from typing import Any, Callable, Iterator, Optional, TypeVar

from fsgather._slowness import told_if_slow

__all__ = ["GRACE", "Overdue", "apart", "raise_in_thread", "within"]

T = TypeVar("T")

GRACE = 2.0
"""How much longer than its seconds a call may take, so that one that keeps to them says itself what is the matter."""


class Overdue(BaseException):
    """A call has taken too long. Whoever catches all exceptions to try again does not catch this one."""


def apart(call: Callable[[], T], seconds: float, what: str, why: str = "") -> T:
    """The result of a call in a thread of its own, which is left to itself once it takes too long; ``why`` that may be is said while it does.

    Raises:
        TimeoutError: it has taken too long.
    """
    results: list[T] = []
    failures: list[BaseException] = []
    is_over = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            failures.append(error)
        is_over.set()

    threading.Thread(target=run, name="fsgather-engine", daemon=True).start()
    with told_if_slow(lambda: what + why, seconds):
        is_over.wait(min(seconds + GRACE, threading.TIMEOUT_MAX))
    if not is_over.is_set():
        raise TimeoutError(_late(what, seconds))
    if failures:
        raise failures[0]
    return results[0]


def within(call: Callable[[], T], seconds: float, what: str) -> T:
    """The result of a call in this thread, since what it looks for may be this thread's alone.

    A call that takes too long is ended as Ctrl-C would end it; in another thread than the main one as soon as Python code runs there.

    Raises:
        TimeoutError: it has taken too long.
    """
    try:
        with told_if_slow(lambda: what, seconds), _ended_after(seconds):
            return call()
    except Overdue as error:
        raise TimeoutError(_late(what, seconds)) from error


def _late(what: str, seconds: float) -> str:
    return f"{what} has not come back within {seconds:g} s (FSGATHER_JOIN_TIMEOUT)"


@contextlib.contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Raises :class:`Overdue` in this thread, once."""
    thread = threading.get_ident()
    lock, is_late, is_raised = threading.Lock(), threading.Event(), threading.Event()
    before: Any = None
    is_over = False

    def interrupt(number: int, frame: Any) -> None:
        if is_late.is_set() and not is_raised.is_set():
            is_raised.set()
            raise Overdue
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.signal(number, before)
            signal.raise_signal(number)

    def end() -> None:
        with lock:
            if is_over:
                return
            is_late.set()
            if before is None:
                raise_in_thread(thread, Overdue)
            else:
                # It ends what waits in the system as well.
                signal.pthread_kill(thread, signal.SIGINT)

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not None:
        # Not in another interpreter than the main one.
        with contextlib.suppress(ValueError):
            before = signal.signal(signal.SIGINT, interrupt)
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        try:
            with lock:
                is_over = True
            timer.cancel()
            if before is None and is_late.is_set():
                # It may not have been raised yet.
                raise_in_thread(thread, None)
            while before is not None and is_late.is_set() and not is_raised.is_set():
                # The handler runs at the next chance.
                is_raised.wait(0.01)
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)


def raise_in_thread(thread: int, kind: Optional[type[BaseException]]) -> None:
    """Raises an exception in a thread as soon as it runs Python code, or takes back one that was not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if kind is None else ctypes.py_object(kind))
