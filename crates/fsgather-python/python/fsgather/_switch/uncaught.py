"""Has the peers told when this process ends by an exception that nobody catches."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Callable, Optional

__all__ = ["tell"]

_lock = threading.Lock()
_listeners: list[Callable[[BaseException], None]] = []


def tell(listener: Callable[[BaseException], None]) -> None:
    """Has ``listener`` called with an uncaught exception of the main thread, before the interpreter shows it."""
    with _lock:
        if listener in _listeners:
            return
        _listeners.append(listener)
        if len(_listeners) == 1:
            _chain()


def _chain() -> None:
    shown_by = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, where: Optional[TracebackType]) -> None:
        for listener in list(_listeners):
            try:
                listener(error)
            except Exception:
                # What the process ends by is more important than who cannot be told.
                pass
        shown_by(kind, error, where)

    sys.excepthook = hook
