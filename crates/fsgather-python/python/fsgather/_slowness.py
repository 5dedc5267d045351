"""Waiting for what fsgather cannot end, not in silence: :func:`told_if_slow`."""

from __future__ import annotations

import contextlib
import threading
from typing import Callable, Iterator, Optional

from fsgather._logging import logger

__all__ = ["SLOW", "told_if_slow"]

SLOW = 30.0
"""After how many seconds it is told for what this process waits, and how often from then on."""


@contextlib.contextmanager
def told_if_slow(what: Callable[[], str], limit: Optional[float] = None) -> Iterator[None]:
    """Says for what this process waits, as it stands then, once that takes long; the wait times out after ``limit`` seconds."""
    is_over = threading.Event()

    def tell() -> None:
        waited = 0.0
        while not is_over.wait(SLOW):
            waited += SLOW
            end = "" if limit is None else f"; times out in {max(limit - waited, 0):.0f} s"
            logger().warning("waiting for %s, for %.0f s so far%s", what(), waited, end)

    threading.Thread(target=tell, name="fsgather-slow", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
