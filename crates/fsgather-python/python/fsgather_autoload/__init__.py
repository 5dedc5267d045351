"""What ``import torch`` calls at its end, in every process of an environment where fsgather is installed.

A package of its own, so that loading the entry point imports nothing of ``fsgather``: without ``FSGATHER_PATCH``, or a name that was
meant to be that, the whole cost is looking through the environment.
"""

from __future__ import annotations

import os

__all__ = ["autoload", "register_backend", "rendezvous"]


def autoload() -> None:
    """Replaces the functions that ``FSGATHER_PATCH`` selects; does nothing without it.

    Never raises, since an exception here would break ``import torch``. What goes wrong is said once on standard error, and
    raised by the first call of a function that would have been replaced.
    """
    selected = os.environ.get("FSGATHER_PATCH", "")
    if not selected.strip():
        _look_for_misspelt()
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


def _look_for_misspelt() -> None:
    """Whoever sets a variable and misspells its name would run without us, and not know."""
    letters = frozenset("FSGATHER_PATCH")
    # Few other names have these letters, all or all but one, so that hardly a job loads anything here.
    names = [name for name in os.environ if 12 <= len(name) <= 16 and len(letters.difference(name.upper())) < 2]
    if set(names) - {"FSGATHER_PATCH"}:
        try:
            from fsgather_autoload import _misspelt

            _misspelt.tell(names)
        except Exception:
            # It was a guess.
            pass


def register_backend() -> None:
    """Registers the backend ``fsgather``; torch calls this when a job names it for the first time."""
    from fsgather import torch

    torch.register()


def rendezvous() -> object:
    """What makes handlers for ``torchrun --rdzv-backend=fsgather``; each torchrun asks, whatever its backend, so that nothing is loaded yet."""

    def create(params: object) -> object:
        from fsgather._torchrun import handler

        return handler.create(params)

    return create
