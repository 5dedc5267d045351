"""The communicator of calls that name no group: :func:`communicator`."""

from __future__ import annotations

import sys
import weakref
from typing import Any, NamedTuple, Optional

from fsgather import _fsgather, _own, _workers
from fsgather._communicator import Communicator
from fsgather._errors import ConfigError
from fsgather._logging import logger
from fsgather.bootstraps import _runs

__all__ = ["close", "communicator"]


class _World(NamedTuple):
    rank: int
    size: int


_torch_world: Optional[_World] = None
"""The world of torch that calls have used last."""

_agreed_group: Optional[weakref.ref[Any]] = None
"""The default process group in which no rank has refused the first call without a group."""


def communicator() -> Communicator:
    """Returns the communicator that lives; else one of torch's ranks where it is initialised, else one of the launcher's ranks.

    Raises:
        fsgather.ConfigError: torch's world is another than the launcher's, here or on another rank, and no communicator lives that
            would decide.
    """
    global _agreed_group
    living = _own.living()
    if living is not None:
        return living
    distributed = _initialised_torch()
    if distributed is None:
        return _own.communicator()
    from fsgather._switch import groups, meeting

    process_group = groups.current()
    try:
        _check(_World(distributed.get_rank(), distributed.get_world_size()))
    except ConfigError as error:
        meeting.refuse(str(error))
        raise
    is_agreed = _agreed_group is not None and _agreed_group() is process_group
    found = meeting.communicator_of(None, can_be_refused=not is_agreed)
    _agreed_group = weakref.ref(process_group)
    return found


def close() -> None:
    """Ends the process's own communicator, and forgets which world calls have used."""
    global _torch_world, _agreed_group
    _torch_world = _agreed_group = None
    _own.close()


def _initialised_torch() -> Any:
    distributed = sys.modules.get("torch.distributed")
    return distributed if distributed is not None and distributed.is_available() and distributed.is_initialized() else None


def _check(world: _World) -> None:
    """Refuses a world of torch that an engine may have made for itself, inside one rank of the job."""
    global _torch_world
    if world == _torch_world:
        return
    try:
        other = _world_of_launcher()
    except ConfigError:
        # Torch's world counts, unless it may go by the same wrong variables and is one rank of several.
        if world.size == 1:
            raise
        other = None
    if other is not None and other[0] != world:
        raise ConfigError(
            f"torch.distributed is initialised as rank {world.rank} of {world.size}, but this process is {other[1]}; to gather over the "
            "latter, call fsgather.barrier() before torch.distributed is initialised, or pass group=fsgather.Communicator(); to gather "
            "over torch's ranks, pass group=torch.distributed.group.WORLD"
        )
    if _torch_world is not None:
        logger().warning(
            "torch.distributed is initialised anew: calls without a group are now over its %d ranks, before over %d",
            world.size,
            _torch_world.size,
        )
    _torch_world = world


def _world_of_launcher() -> Optional[tuple[_World, str]]:
    """The world of the engine or the launcher that has started this process, and the words for it."""
    bootstrap = _runs.introduced()
    if bootstrap is not None:
        world = _World(bootstrap.rank, bootstrap.world_size)
        return world, f"rank {world.rank} of {world.size}, by {type(bootstrap).__name__}"
    try:
        _workers.check_environment()
    except ConfigError:
        # The launcher has started the parent; the program itself has started this process to be a rank of torch.
        return None
    found = _fsgather.launched_rank()
    return None if found is None else (_World(*found[:2]), found[2])
