"""What ``import torch`` calls at its end, in every process of an environment where fsgather is installed.

A package of its own, so that loading the entry point imports nothing of ``fsgather``: without ``FSGATHER_PATCH``
the whole cost is reading one variable.
"""

from __future__ import annotations

import os

__all__ = ["autoload", "register_backend"]


def autoload() -> None:
    """Replaces the functions that ``FSGATHER_PATCH`` selects; does nothing without it.

    Never raises, since an exception here would break ``import torch``. What goes wrong is said once on standard error, and
    raised by the first call of a function that would have been replaced.
    """
    selected = os.environ.get("FSGATHER_PATCH", "")
    if not selected.strip():
        return
    try:
        from fsgather import _switch

        _switch.install(selected)
    except Exception as error:
        try:
            from fsgather_autoload import _unavailable

            _unavailable.install(selected, error)
        except Exception:
            # There is no object function left that could tell it.
            pass


def register_backend() -> None:
    """Registers the backend ``fsgather``; torch calls this when a job names it for the first time."""
    from fsgather import torch

    torch.register()
