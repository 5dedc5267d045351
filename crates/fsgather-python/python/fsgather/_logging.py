"""What ``FSGATHER_LOG`` means to Python's ``logging``."""

from __future__ import annotations

import logging

__all__ = ["listen"]


def listen(level: int) -> None:
    """Lets the logger ``fsgather`` pass records from this level on.

    Where a program has set up no logging they go to standard error: who sets the variable wants to see them.
    """
    logger = logging.getLogger("fsgather")
    logger.setLevel(level)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("fsgather: %(levelname)s: %(message)s"))
        logger.addHandler(handler)
