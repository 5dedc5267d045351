"""Who calls a replaced function."""

from __future__ import annotations

import os
import sys

__all__ = ["is_torch", "site"]

_LIBRARIES = ("accelerate", "contextlib", "fsgather", "logging", "mmengine", "torch", "torchmetrics")
"""Libraries that call replaced functions, and what lies between them and a program that uses them as a context."""

_MAX_FRAMES = 20


def is_torch(depth: int) -> bool:
    """Whether the code ``depth`` frames above the caller of this function belongs to torch itself."""
    name = sys._getframe(depth + 1).f_globals.get("__name__")
    return isinstance(name, str) and (name == "torch" or name.startswith("torch."))


def site(depth: int) -> str:
    """The place in the program from which that code was called, as messages show it: ``eval.py:12``.

    Libraries between the program and us are passed over: their lines are the same in all calls.
    """
    frame = caller = sys._getframe(depth + 1)
    for _ in range(_MAX_FRAMES):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _LIBRARIES:
            break
        if frame.f_back is None:
            frame = caller
            break
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
