"""What the switch says, through the logger ``fsgather``, or on standard error while torch is imported."""

from __future__ import annotations

import os
import sys
import threading

__all__ = ["at_import", "debug", "first", "forget", "once", "warn"]

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
    # Importing logging costs 5 ms that a process which says nothing need not spend.
    from fsgather import _logging

    _logging.logger().warning("%s", text)


def debug(text: str) -> None:
    """Says ``text`` to those who look for a fault."""
    from fsgather import _logging

    _logging.logger().debug("%s", text)


def first(text: str) -> None:
    """Says ``text``, unless this process has said anything this way already."""
    global _has_said_first
    with _lock:
        if _has_said_first:
            return
        _has_said_first = True
    once(text)


_has_said_first = False


def at_import(text: str) -> None:
    """Says ``text`` on standard error while torch is imported, when a program has not set up any logging yet.

    Once on each host, where launchers say which of its processes this is; and not again in processes that this one starts.
    """
    if any(os.environ.get(name, "0") != "0" for name in _LOCAL_RANKS) or os.environ.get(_SAID) == text:
        return
    os.environ[_SAID] = text
    print(f"fsgather: {text}", file=sys.stderr, flush=True)


_SAID = "_FSGATHER_SAID"

_LOCAL_RANKS = (
    *("FSGATHER_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
    *("MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID"),
)


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
    global _has_said_first
    with _lock:
        _said.clear()
        _has_said_first = False
