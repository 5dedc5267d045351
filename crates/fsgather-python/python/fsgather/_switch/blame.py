"""Names the rank that was lost if torch could not: :func:`name_lost`.

In a collective of tensors, which fsgather does not carry, gloo or nccl report the rank that others wait for as an address at best. The
world of all ranks knows by its own connections which rank it was.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, Optional

from fsgather import _errors
from fsgather._switch import callers, groups, notices

if TYPE_CHECKING:
    from fsgather._switch.ground import Ground

__all__ = ["listen", "name_lost"]

MOMENT = 1.0
"""How long it may take until the others' connections tell which rank has gone, in seconds."""

_LOOK_INTERVAL = 0.02

_STAY = 0.5
"""How long rank 0, from which the others learn which rank has gone, stays for those that end by the same, in seconds."""

_ABOUT_OTHERS = ("onnection", "Broken pipe", "remote process", "aborted", "imed out")
"""Words of gloo and nccl in errors that another rank has caused."""

_COLLECTIVES = "torch.distributed.distributed_c10d"


class _Failure(NamedTuple):
    """A collective of torch's own that has failed, on a group of ranks of the default group."""

    collective: str
    site: str
    at: float


_last: Optional[_Failure] = None
"""The last one in this process, whatever the program has made of it."""


class _Listener(logging.Handler):
    """Hears of the collectives that fail: torch logs each for itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Notes the failure, if the record is one; the frames above this one are those of logging and of torch."""
        global _last
        if isinstance(record.msg, dict) and "error" in record.msg:
            error = sys.exc_info()[1]
            if error is not None and any(word in str(record.msg["error"]) for word in _ABOUT_OTHERS):
                failure = _failure_of(error)
                _last = None if failure is None else failure._replace(site=callers.site(0))


def listen(module: ModuleType) -> None:
    """Notes failures of torch's collectives from now on; ``module`` is its ``c10d_logger``."""
    logger = getattr(module, "_c10d_logger", None)
    if isinstance(logger, logging.Logger):
        logger.addHandler(_Listener())


def name_lost(error: Optional[BaseException], ground: Ground) -> Optional[str]:
    """Logs which rank has gone, if a collective of torch's own has failed by that; returns what is known of that rank.

    ``error`` is the exception by which this rank ends; without one, a program may have caught it.
    """
    global _last
    if isinstance(error, _errors.Error):
        return None
    failure = (None if error is None else _failure_of(error)) or _last
    if failure is None:
        return None
    _last = None
    lost = _lost(ground, failure.at + MOMENT)
    if lost is None or lost.rank is None or lost.rank == ground.own_rank:
        return None
    known = str(lost).partition("\n")[0]
    notices.once(f"{known}; rank {ground.own_rank} was in torch's own {failure.collective} at {failure.site}, which fsgather does not carry")
    if ground.own_rank == ground.ranks[0]:
        time.sleep(_STAY)
    return known


def _lost(ground: Ground, until: float) -> Optional[_errors.Error]:
    """Returns what the world of all ranks reports of one that has gone; this rank is about to leave it."""
    try:
        arrival = ground.arrive(ground.ranks, "end", "the end of the program", _STAY + MOMENT + 60)
        while not arrival.have_all_come() and time.monotonic() < until:
            time.sleep(_LOOK_INTERVAL)
    except _errors.Error as error:
        return error
    return None


def _failure_of(error: BaseException) -> Optional[_Failure]:
    """Returns the collective of torch that has raised an error, with the place in the program that has called it.

    The world of all ranks knows nothing of the other members of a group that is not of the default group.
    """
    place = ""
    step = error.__traceback__
    while step is not None:
        code, module = step.tb_frame.f_code, str(step.tb_frame.f_globals.get("__name__"))
        if module == _COLLECTIVES:
            group = groups.describe(step.tb_frame.f_locals.get("group"))
            return _Failure(code.co_name, place, time.monotonic()) if group is not None and group.is_of_world else None
        if module.partition(".")[0] != "torch":
            place = f"{os.path.basename(code.co_filename)}:{step.tb_lineno}"
        step = step.tb_next
    return None
