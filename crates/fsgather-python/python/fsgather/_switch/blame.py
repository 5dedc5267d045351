"""Names the rank that was lost where torch could not: :func:`name_lost`.

In a collective of tensors, which fsgather does not carry, a rank that others wait for is reported by gloo or nccl, as an address at best. The
world of ours knows by its own connections who it was.
"""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING, Any, Optional

from fsgather import _errors
from fsgather._logging import logger

if TYPE_CHECKING:
    from fsgather._switch.ground import Ground

__all__ = ["name_lost"]

_MOMENT = 1.0
"""How long it may take until the others' connections tell who has gone, in seconds."""
_LOOK_EVERY = 0.05
_STAY = 0.5
"""How long rank 0, which tells the others who has gone, stays for those that end by the same, in seconds."""
_COLLECTIVES = "torch.distributed.distributed_c10d"


def name_lost(error: BaseException, ground: Ground) -> Optional[str]:
    """Logs which rank has gone, if this process ends by an error of a collective of torch's own; what is known of that rank."""
    rank = ground.own_rank
    where = None if isinstance(error, _errors.Error) else _collective(error)
    if where is None:
        return None
    lost = _lost(ground)
    if lost is None or lost.rank is None or lost.rank == rank:
        return None
    collective, place = where
    known = str(lost).partition("\n")[0]
    text = "%s; rank %d was in torch's own %s at %s, which fsgather does not carry"
    logger().warning(text, known, rank, collective, place)
    if rank == ground.ranks[0]:
        time.sleep(_STAY)
    return known


def _collective(error: BaseException) -> Optional[tuple[str, str]]:
    """The collective of torch that has raised an error, and the place in the program that has called it."""
    place = ""
    step = error.__traceback__
    while step is not None:
        code, module = step.tb_frame.f_code, str(step.tb_frame.f_globals.get("__name__"))
        if module == _COLLECTIVES:
            return code.co_name, place
        if module.partition(".")[0] != "torch":
            place = f"{os.path.basename(code.co_filename)}:{step.tb_lineno}"
        step = step.tb_next
    return None


def _lost(ground: Ground) -> Optional[_errors.Error]:
    """What the world of all ranks says of one that is not there any more; this rank is about to leave it."""
    how: dict[str, Any] = {"site": "the end of the program", "timeout": None}
    until = time.monotonic() + _MOMENT
    try:
        arrival = ground.arrive(ground.ranks, secrets.randbits(56), how)
        while time.monotonic() < until:
            arrival.have_all_come()
            time.sleep(_LOOK_EVERY)
    except _errors.Error as error:
        return error
    return None
