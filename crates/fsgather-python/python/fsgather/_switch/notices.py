"""What the switch says, through the logger ``fsgather``, and never before a replaced function is called or passed over."""

from __future__ import annotations

import os
import threading

__all__ = ["forget", "once", "warn"]

_lock = threading.Lock()
_said: set[str] = set()


def once(text: str) -> None:
    """Says ``text``, unless this process has said it already.

    As a warning, so that it is seen where nobody has set up logging: a job should not run on replaced functions
    without a trace of it.
    """
    with _lock:
        if text in _said:
            return
        _said.add(text)
    # Costs 5 ms that a process which says nothing need not spend.
    import logging

    logging.getLogger("fsgather").warning("%s", text)


def warn(text: str) -> None:
    """Says ``text`` once, in one process of the job, going by what its launcher says."""
    for variable in ("RANK", "FSGATHER_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        rank = os.environ.get(variable)
        if rank is not None:
            if rank != "0":
                return
            break
    once(text)


def forget() -> None:
    """Starts anew, for tests."""
    with _lock:
        _said.clear()
