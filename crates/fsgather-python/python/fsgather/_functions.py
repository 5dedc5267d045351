"""The functions that existing jobs call, on the process's own communicator or on a group of it."""

from __future__ import annotations

import sys
from typing import Any, Optional, TypedDict, TypeVar

from fsgather import _arguments, _default, _fsgather, _torch_order, _tracebacks
from fsgather._arguments import PathLike, Seconds
from fsgather._communicator import Communicator
from fsgather._errors import ConfigError, Error
from fsgather._results import Gathering, Parts, Pending
from fsgather._torch_order import ALL

__all__ = [
    "all_gather",
    "all_gather_list",
    "all_gather_object",
    "all_gather_parts",
    "all_gather_via_filesys",
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

T = TypeVar("T")


class How(TypedDict, total=False):
    """What calls of this module have in common."""

    timeout: Seconds
    tag: Optional[str]
    allow_pickle: Optional[bool]


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


def _is_group(group: Any) -> bool:
    """Whether this may be meant as a group."""
    return group is None or group is ALL or isinstance(group, Communicator) or "Group" in type(group).__name__


def all_gather(
    data: T,
    force_cpu: bool = False,
    force_filesys: bool = False,
    filesys_save_dir: Optional[PathLike] = None,
    *,
    timeout: Seconds = None,
    tag: Optional[str] = None,
    allow_pickle: Optional[bool] = None,
) -> list[T]:
    """Gathers everybody's object on every rank, in rank order, by whichever path is asked for.

    The first that applies decides:

    ================================================================================= ==========================
    the world has one rank                                                            none: ``[data]``
    ``FSGATHER_ROOT_ONLY=1`` or ``MDETR_FILESYS_REDUCE_RANK_0_ONLY=1``                files; an empty list on all
                                                                                      ranks but 0
    ``FSGATHER_TRANSPORT=filesys``, ``MDETR_FILESYS_REDUCE=1`` or ``force_filesys``   files
    ``FSGATHER_TRANSPORT=memory``, ``MDETR_CPU_REDUCE=1`` or ``force_cpu``            memory
    otherwise                                                                         files where ranks share a
                                                                                      directory, else memory
    ================================================================================= ==========================

    Plain data (``None``, numbers, strings, bytes, lists, tuples, dicts, sets, dates, arrays of numpy, tensors of
    torch) travels by a codec of our own that cannot run code; everything else is pickled.

    Args:
        data: any object that can be pickled.
        force_cpu: through memory rather than files.
        force_filesys: through files of the shared directory.
        filesys_save_dir: the shared directory; else ``FSGATHER_DIR``, ``EXP_DIR``, the default.
        timeout: how long nothing may move, in seconds; by default 30 minutes.
        tag: what the call is for; ranks that come to one line with different tags raise :class:`fsgather.DesyncError`, which has both.
        allow_pickle: ``False`` refuses objects that would have to be pickled, on both sides.

    Returns:
        One object for each rank, in rank order; this rank's own is a copy, but in a world of one.

    Raises:
        fsgather.Error: on every rank alike.
    """
    if not isinstance(force_cpu, int) and hasattr(force_cpu, "shape"):
        raise _torch_order.refusal("all_gather", "all_gather(list, tensor)")
    filesys_save_dir = _arguments.path("filesys_save_dir", filesys_save_dir)
    force_cpu, force_filesys = _arguments.switch("force_cpu", force_cpu), _arguments.switch("force_filesys", force_filesys)
    how: How = {"timeout": timeout, "tag": tag, "allow_pickle": allow_pickle}
    return all_gather_by_path(_communicator_of(None), data, force_cpu, force_filesys, filesys_save_dir, how)


def all_gather_by_path(
    communicator: Communicator, data: T, force_cpu: bool, force_filesys: bool, filesys_save_dir: Optional[PathLike], how: How
) -> list[T]:
    """:func:`all_gather` on a communicator."""
    path = _fsgather.choose_path(communicator._member, force_cpu, force_filesys)
    if path == "solo":
        communicator._check_call(**how)
        return [data]
    if path == "memory":
        return communicator.with_options(transport="memory").all_gather(data, **how)
    if path == "auto":
        if filesys_save_dir is not None:
            communicator = communicator.with_options(directory=filesys_save_dir)
        return communicator.all_gather(data, **how)
    files = communicator.with_options(transport="filesys", directory=filesys_save_dir)
    if path == "filesys":
        return files.all_gather(data, **how)
    _fsgather.warn_of_empty_lists(communicator.rank)
    return files.gather_object(data, **how) or []


def all_gather_via_filesys(
    data: T,
    filesys_save_dir: Optional[PathLike] = None,
    gather_to_rank_0_only: bool = False,
    *,
    timeout: Seconds = None,
    tag: Optional[str] = None,
    allow_pickle: Optional[bool] = None,
) -> list[T]:
    """Gathers everybody's object through files of a shared directory, in rank order.

    Objects that fit into the control messages make no file; a world of one rank touches none.

    Args:
        data: any object that can be pickled.
        filesys_save_dir: the shared directory; else ``FSGATHER_DIR``, ``EXP_DIR``, the default.
        gather_to_rank_0_only: all ranks but 0 get an empty list.
        timeout: how long nothing may move, in seconds.
        allow_pickle: ``False`` refuses objects that would have to be pickled.

    Raises:
        fsgather.NotSharedError: ranks do not see one directory.
        fsgather.Error: on every rank alike.
    """
    filesys_save_dir = _arguments.path("filesys_save_dir", filesys_save_dir)
    how: How = {"timeout": timeout, "tag": tag, "allow_pickle": allow_pickle}
    return all_gather_by_files(_communicator_of(None), data, filesys_save_dir, gather_to_rank_0_only, how)


def all_gather_by_files(
    communicator: Communicator, data: T, filesys_save_dir: Optional[PathLike], gather_to_rank_0_only: bool, how: How
) -> list[T]:
    """:func:`all_gather_via_filesys` on a communicator."""
    if communicator.world_size == 1:
        communicator._check_call(**how)
        return [data]
    files = communicator.with_options(transport="filesys", directory=filesys_save_dir)
    if gather_to_rank_0_only:
        return files.gather_object(data, **how) or []
    return files.all_gather(data, **how)


def all_gather_object(
    data: T, group: Any = ALL, *, timeout: Seconds = None, tag: Optional[str] = None, allow_pickle: Optional[bool] = None
) -> list[T]:
    """Gathers everybody's object on every rank of a group, in the order of the group.

    Args:
        data: any object that can be pickled.
        group: a :class:`fsgather.Communicator`, a group of ``torch.distributed``, or ``None`` for all ranks.
        timeout: how long nothing may move, in seconds.
        allow_pickle: ``False`` refuses objects that would have to be pickled.
    """
    if isinstance(data, list) and not _is_group(group):
        raise _torch_order.refusal("all_gather_object", f"all_gather_object(list, {type(group).__name__})")
    communicator = _communicator_of(group)
    _torch_order.check_list("all_gather_object", communicator.world_size, data, group)
    if communicator.world_size == 1:
        communicator._check_call(timeout=timeout, tag=tag, allow_pickle=allow_pickle)
        return [data]
    return communicator.all_gather(data, timeout=timeout, tag=tag, allow_pickle=allow_pickle)


def all_gather_parts(
    data: T, group: Any = ALL, *, timeout: Seconds = None, tag: Optional[str] = None, allow_pickle: Optional[bool] = None
) -> Parts[T]:
    """Gathers everybody's object on every rank of a group, where each is made when it is first looked at.

    >>> parts = fsgather.all_gather_parts({"accuracy": 0.97})
    >>> parts[0]["accuracy"]
    0.97

    For large lists and dictionaries that not every rank looks through; :class:`fsgather.Parts` is used as a list is.

    Args:
        data: any object that can be pickled.
        group: a :class:`fsgather.Communicator`, a group of ``torch.distributed``, or ``None`` for all ranks.
        timeout: how long nothing may move, in seconds.
        tag: what the call is for; ranks that come to one line with different tags raise :class:`fsgather.DesyncError`, which has both.
        allow_pickle: ``False`` refuses objects that would have to be pickled.
    """
    return _communicator_of(group).all_gather_parts(data, timeout=timeout, tag=tag, allow_pickle=allow_pickle)


def all_gather_list(
    data: T,
    group: Any = ALL,
    max_size: int = 16384,
    *,
    timeout: Seconds = None,
    tag: Optional[str] = None,
    allow_pickle: Optional[bool] = None,
) -> list[T]:
    """Gathers everybody's small object on every rank, if each fits into ``max_size`` bytes.

    Always one entry for each rank.

    Raises:
        fsgather.TooLargeError: on every rank; ``rank`` is whose object does not fit, ``size`` what it needs.
    """
    communicator = _communicator_of(group)
    return communicator.all_gather_list(data, max_size=max_size, timeout=timeout, tag=tag, allow_pickle=allow_pickle)


def gather(tensor: Any, dim: int = 0, dst: Optional[int] = None, *, timeout: Seconds = None, tag: Optional[str] = None) -> Any:
    """Joins the tensors of all ranks along ``dim``, without padding.

    Args:
        tensor: a tensor of torch or an array of numpy, of any shape ``[..., n, ...]`` with at least one dimension; ``n``, along
            ``dim``, may differ between ranks and be 0, everything else may not.
        dim: the dimension; negative ones count from the end.
        dst: the rank that receives the result; ``None`` for all ranks.
        timeout: how long nothing may move, in seconds.

    Returns:
        The joined tensor where it is received, on the device of this rank's own, ``None`` elsewhere. In a world of one the
        tensor itself.

    Raises:
        fsgather.MismatchError: on every rank, with a table of what each rank has.
    """
    if dim is None or isinstance(dim, list):
        raise _torch_order.refusal("gather", "gather(tensor, list)")
    return _communicator_of(None).gather(tensor, dim, dst, timeout=timeout, tag=tag)


def gather_object(
    data: T,
    dst: int = 0,
    group: Any = ALL,
    *,
    timeout: Seconds = None,
    tag: Optional[str] = None,
    allow_pickle: Optional[bool] = None,
) -> Optional[list[T]]:
    """Gathers everybody's object on rank ``dst`` of a group.

    Returns:
        On ``dst`` one object for each rank, in rank order; ``None`` elsewhere.
    """
    if dst is None or isinstance(dst, list):
        raise _torch_order.refusal("gather_object", f"gather_object(obj, {'None' if dst is None else 'list'})")
    communicator = _communicator_of(group)
    if communicator.world_size == 1:
        communicator._check_call(dst, timeout=timeout, tag=tag, allow_pickle=allow_pickle)
        return [data]
    return communicator.gather_object(data, dst, timeout=timeout, tag=tag, allow_pickle=allow_pickle)


def gather_iter(
    data: T,
    dst: int = 0,
    group: Any = ALL,
    *,
    timeout: Seconds = None,
    tag: Optional[str] = None,
    allow_pickle: Optional[bool] = None,
) -> Gathering[T]:
    """Gathers everybody's object on rank ``dst`` of a group, which holds one rank's at a time.

    >>> import fsgather
    >>> for part in fsgather.gather_iter([0.97]):
    ...     print(part)
    [0.97]

    Returns:
        On ``dst`` an iterator in rank order, elsewhere an empty one.
    """
    return _communicator_of(group).gather_iter(data, dst, timeout=timeout, tag=tag, allow_pickle=allow_pickle)


def broadcast_object(
    data: T,
    src: int = 0,
    group: Any = ALL,
    *,
    timeout: Seconds = None,
    tag: Optional[str] = None,
    allow_pickle: Optional[bool] = None,
) -> T:
    """Hands rank ``src``'s object to every rank of a group; what the others pass in is not looked at."""
    return _communicator_of(group).broadcast_object(data, src, timeout=timeout, tag=tag, allow_pickle=allow_pickle)


def barrier(group: Any = ALL, *, timeout: Seconds = None, tag: Optional[str] = None) -> None:
    """Waits until every rank of a group has come here."""
    _communicator_of(group).barrier(timeout=timeout, tag=tag)


def start_all_gather(
    data: T, group: Any = ALL, *, timeout: Seconds = None, tag: Optional[str] = None, allow_pickle: Optional[bool] = None
) -> Pending[list[T]]:
    """Starts an :func:`all_gather_object` whose result is asked for later; ``wait()`` gives the list."""
    return _communicator_of(group).start_all_gather(data, timeout=timeout, tag=tag, allow_pickle=allow_pickle)


def start_gather(
    data: T,
    dst: int = 0,
    group: Any = ALL,
    *,
    timeout: Seconds = None,
    tag: Optional[str] = None,
    allow_pickle: Optional[bool] = None,
) -> Pending[Optional[list[T]]]:
    """Starts a :func:`gather_object` whose result is asked for later; ``wait()`` gives the list, or ``None``."""
    return _communicator_of(group).start_gather(data, dst, timeout=timeout, tag=tag, allow_pickle=allow_pickle)


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
