"""What ``FSGATHER_LOG`` means to Python's ``logging``."""

from __future__ import annotations

import logging
import time

__all__ = ["listen"]


def listen(level: int) -> None:
    """Lets the logger ``fsgather`` pass records from this level on.

    Where a program has set up no logging they go to standard error: who sets the variable wants to see them. Where more than
    warnings is wanted, with the time.
    """
    logger = logging.getLogger("fsgather")
    logger.setLevel(level)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        line = "fsgather: %(levelname)s: %(message)s"
        if level <= logging.INFO:
            line = f"%(asctime)s.%(msecs)03dZ {line}"
        formatter = logging.Formatter(line, "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
        logger.addHandler(handler)
