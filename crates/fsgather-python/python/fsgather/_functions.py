"""The functions of the package, on the process's own communicator or on a group."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from fsgather import _default, _fsgather, _torch_order, _tracebacks
from fsgather._communicator import Communicator
from fsgather._errors import ConfigError, Error
from fsgather._results import Gathering, Parts, Pending
from fsgather._torch_order import ALL

__all__ = [
    "all_gather",
    "all_gather_parts",
    "barrier",
    "broadcast_object",
    "close",
    "default_communicator",
    "gather",
    "gather_iter",
    "gather_object",
    "start_all_gather",
    "start_gather",
]

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fsgather._arguments import CallOptions

T = TypeVar("T")


def default_communicator() -> Communicator:
    """The process's own communicator, on which the functions of this module work; the first call makes it.

    Where an engine such as Dask has this process take part in several runs, each has its own. If ``torch.distributed`` is initialised
    when it is made, its ranks are torch's, and meet through torch's store; else they are what the launcher and the variables
    ``FSGATHER_*`` say. It stays until :func:`close`, whatever is initialised later.

    Raises:
        fsgather.ConfigError: torch's world is another than the launcher's; the message says how to choose.
    """
    return _communicator_of(None)


def _communicator_of(group: Any) -> Communicator:
    """The communicator of a group: ours, torch's, or of all ranks."""
    if isinstance(group, Communicator):
        return group
    if group is None or group is ALL:
        return _default.communicator()
    from fsgather._switch import meeting

    try:
        return meeting.communicator_of(group)
    except ValueError as error:
        raise error if isinstance(error, Error) else ConfigError(str(error)) from None


def all_gather(data: T, group: Any = ALL, **options: Unpack[CallOptions]) -> list[T]:
    """Gathers all ranks' objects on every rank, in rank order.

    >>> import fsgather
    >>> fsgather.all_gather({"accuracy": 0.97})
    [{'accuracy': 0.97}]

    Variables choose the path of large objects; the first that applies counts:

    ============================================================================ ==========================
    the world has one rank                                                       none: ``[data]``
    ``FSGATHER_ROOT_ONLY=1`` or ``MDETR_FILESYS_REDUCE_RANK_0_ONLY=1``           files; an empty list on all
                                                                                 ranks but 0
    ``FSGATHER_TRANSPORT=filesys`` or ``MDETR_FILESYS_REDUCE=1``                 files
    ``FSGATHER_TRANSPORT=memory`` or ``MDETR_CPU_REDUCE=1``                      memory
    otherwise                                                                    files if ranks share a
                                                                                 directory, else memory
    ============================================================================ ==========================

    Args:
        data: any object that can be pickled. Plain data (``None``, numbers, strings, bytes, lists, tuples, dicts, sets, dates, arrays of
            numpy, tensors of torch) travels by a codec that cannot run code; everything else is pickled.
        group: a :class:`fsgather.Communicator`, a group of ``torch.distributed``, or ``None`` for all ranks.
        options: ``timeout``, ``tag``, ``site`` and ``allow_pickle``, as in the description of :mod:`fsgather`.

    Returns:
        One object for each rank, in rank order; this rank's own is a copy, except in a world of one.

    Raises:
        fsgather.Error: on every rank alike.
    """
    communicator = communicator_for("all_gather", data, group)
    return gather_by_path(communicator, _fsgather.choose_path(communicator._member, False, False), data, None, options)


def communicator_for(name: str, data: Any, group: Any) -> Communicator:
    """Returns the communicator of a call that takes an object and a group, and refuses torch's order of arguments."""
    is_group = group is None or group is ALL or isinstance(group, Communicator) or "Group" in type(group).__name__
    if isinstance(data, list) and not is_group:
        raise _torch_order.refusal(name, f"{name}(list, {type(group).__name__})")
    communicator = _communicator_of(group)
    _torch_order.check_list(name, communicator.world_size, data, group)
    return communicator


def gather_by_path(communicator: Communicator, path: str, data: T, directory: Optional[str], options: CallOptions) -> list[T]:
    """Gathers objects by a path of ``choose_path``; the list is empty on ranks that do not receive them."""
    if path == "solo":
        communicator._check_call(**options)
        return [data]
    if path == "memory":
        communicator = communicator.with_options(transport="memory")
    elif path != "auto" or directory is not None:
        communicator = communicator.with_options(transport=None if path == "auto" else "filesys", directory=directory)
    if path == "filesys_root_only":
        return communicator.gather_object(data, **options) or []
    return communicator.all_gather(data, **options)


def all_gather_parts(data: T, group: Any = ALL, **options: Unpack[CallOptions]) -> Parts[T]:
    """Gathers all ranks' objects on every rank, where each is decoded on first access.

    >>> parts = fsgather.all_gather_parts({"accuracy": 0.97})
    >>> parts[0]["accuracy"]
    0.97

    For large lists and dictionaries that not every rank reads; :class:`fsgather.Parts` is used as a list.
    """
    return _communicator_of(group).all_gather_parts(data, **options)


def gather(tensor: Any, dim: int = 0, dst: Optional[int] = None, **options: Unpack[CallOptions]) -> Any:
    """Joins the tensors of all ranks along ``dim``, without padding.

    Args:
        tensor: a tensor of torch or an array of numpy, of any shape ``[..., n, ...]`` with at least one dimension; ``n``, along
            ``dim``, may differ between ranks and be 0, everything else may not.
        dim: the dimension; negative ones count from the end.
        dst: the rank that receives the result; ``None`` for all ranks.

    Returns:
        The joined tensor where it is received, on the device of this rank's own, ``None`` elsewhere. In a world of one the
        tensor itself.

    Raises:
        fsgather.MismatchError: on every rank, with a table of what each rank has.
    """
    if dim is None or isinstance(dim, list):
        raise _torch_order.refusal("gather", "gather(tensor, list)")
    return _communicator_of(None).gather(tensor, dim, dst, **options)


def gather_object(data: T, dst: int = 0, group: Any = ALL, **options: Unpack[CallOptions]) -> Optional[list[T]]:
    """Gathers all ranks' objects on rank ``dst`` of a group.

    Returns:
        On ``dst`` one object for each rank, in rank order; ``None`` elsewhere.
    """
    if dst is None or isinstance(dst, list):
        raise _torch_order.refusal("gather_object", f"gather_object(obj, {'None' if dst is None else 'list'})")
    communicator = _communicator_of(group)
    if communicator.world_size == 1:
        communicator._check_call(dst, **options)
        return [data]
    return communicator.gather_object(data, dst, **options)


def gather_iter(data: T, dst: int = 0, group: Any = ALL, **options: Unpack[CallOptions]) -> Gathering[T]:
    """Gathers all ranks' objects on rank ``dst`` of a group, which holds one rank's at a time.

    >>> import fsgather
    >>> for part in fsgather.gather_iter([0.97]):
    ...     print(part)
    [0.97]

    Returns:
        On ``dst`` an iterator in rank order, elsewhere an empty one.
    """
    return _communicator_of(group).gather_iter(data, dst, **options)


def broadcast_object(data: T, src: int = 0, group: Any = ALL, **options: Unpack[CallOptions]) -> T:
    """Returns rank ``src``'s object on every rank of a group; the objects of the others are ignored."""
    return _communicator_of(group).broadcast_object(data, src, **options)


def barrier(group: Any = ALL, **options: Unpack[CallOptions]) -> None:
    """Waits until every rank of a group has called it."""
    _communicator_of(group).barrier(**options)


def start_all_gather(data: T, group: Any = ALL, **options: Unpack[CallOptions]) -> Pending[list[T]]:
    """Starts an :func:`all_gather`; ``wait()`` or ``await`` of its result returns the list."""
    return _communicator_of(group).start_all_gather(data, **options)


def start_gather(data: T, dst: int = 0, group: Any = ALL, **options: Unpack[CallOptions]) -> Pending[Optional[list[T]]]:
    """Starts a :func:`gather_object`; ``wait()`` or ``await`` of its result returns the list, or ``None``."""
    return _communicator_of(group).start_gather(data, dst, **options)


def close() -> None:
    """Ends the process's own communicator together with all other ranks, and leaves nothing behind.

    Does nothing when no function of this module has been called. A later call joins anew; also after a failure, which is raised here only if
    no call has raised it before.

    Where ranks meet through ``torch.distributed``, which ends what is whole with its process groups, it gives up what has failed on any of
    them: the next call on such a group has its ranks meet anew.
    """
    _default.close()
    meeting = sys.modules.get("fsgather._switch.meeting")
    if meeting is not None:
        meeting.give_up_failed()


_tracebacks.shorten(sys.modules[__name__], __all__)
