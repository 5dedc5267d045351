"""Tells that fsgather was asked for and cannot be loaded."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

__all__ = ["install"]


def install(selected: str, error: Exception) -> None:
    """Says so on standard error, and has torch's object functions raise, with ``error`` as the cause.

    Going on without would leave this rank waiting in torch and the others in fsgather, each for its own time-out.
    """
    text = _text(selected, error)
    # Processes that this one starts need not say it again.
    if os.environ.get("_FSGATHER_SAID") != text:
        os.environ["_FSGATHER_SAID"] = text
        print(f"fsgather: {text}", file=sys.stderr, flush=True)
    for name in ("all_gather_object", "gather_object", "broadcast_object_list"):
        for module in ("torch.distributed", "torch.distributed.distributed_c10d"):
            function = getattr(sys.modules.get(module), name, None)
            if callable(function):
                setattr(sys.modules[module], name, _refusing(function, selected, error))


def _refusing(function: Callable[..., Any], selected: str, error: Exception) -> Callable[..., Any]:
    @functools.wraps(function)
    def refuse(*_arguments: Any, **_named: Any) -> Any:
        raise ImportError(_text(selected, error)) from error

    return refuse


def _text(selected: str, error: Exception) -> str:
    return (
        f"FSGATHER_PATCH={selected} is set, but fsgather cannot be loaded on this rank: {error}; "
        "install it in this environment, or unset the variable on all ranks"
    )
