"""Where in a program a call is made, for messages: :func:`caller`."""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import Any

__all__ = ["caller"]

_PASSED_OVER = {"concurrent", "fsgather", "multiprocessing", "threading"}
"""Modules that stand between a program and its call: their lines are the same in all."""


def caller() -> str:
    """The place in the program that has called us; the name of the thread where that was told to call us itself."""
    frame: Any = sys._getframe(1)
    while frame is not None and _is_passed_over(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    if frame is None:
        return f"thread {threading.current_thread().name}"
    return f"{_last_part(frame.f_code.co_filename)}:{frame.f_lineno}"


# Remembered, since each call asks for the same few.
@functools.lru_cache(maxsize=256)
def _is_passed_over(module: str) -> bool:
    return module.partition(".")[0] in _PASSED_OVER


@functools.lru_cache(maxsize=256)
def _last_part(path: str) -> str:
    return os.path.basename(path)
