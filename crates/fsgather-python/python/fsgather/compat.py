"""The functions of existing jobs, by their names and with their arguments: only the import changes.

>>> from fsgather.compat import all_gather, all_gather_via_filesys
>>> all_gather({"accuracy": 0.97}, force_cpu=True)
[{'accuracy': 0.97}]

``all_gather`` and ``all_gather_via_filesys`` are those of SAM and MDETR, ``all_gather_list`` that of DPR, ``all_gather_object`` that of
MMEngine. They also take the options that :mod:`fsgather` describes. New programs use the functions of :mod:`fsgather`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from fsgather import _arguments, _fsgather, _functions, _tracebacks
from fsgather._communicator import Communicator
from fsgather._functions import gather
from fsgather._torch_order import ALL

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fsgather._arguments import CallOptions, PathLike

__all__ = ["all_gather", "all_gather_list", "all_gather_object", "all_gather_via_filesys", "gather"]

T = TypeVar("T")


def all_gather(
    data: T,
    force_cpu: bool = False,
    force_filesys: bool = False,
    filesys_save_dir: Optional[PathLike] = None,
    **options: Unpack[CallOptions],
) -> list[T]:
    """Gathers all ranks' objects on every rank, by the path that the arguments or the variables of :func:`fsgather.all_gather` choose.

    Args:
        data: any object that can be pickled.
        force_cpu: through memory rather than files, unless a variable says otherwise.
        force_filesys: through files of the shared directory, unless rank 0 alone gets the list.
        filesys_save_dir: the shared directory; by default ``FSGATHER_DIR``, ``EXP_DIR``, or one of this host.
    """
    return _by_path(_functions.default_communicator, data, force_cpu, force_filesys, filesys_save_dir, options)


def _by_path(
    find: Callable[[], Communicator],
    data: T,
    force_cpu: bool,
    force_filesys: bool,
    filesys_save_dir: Optional[PathLike],
    options: CallOptions,
) -> list[T]:
    """Makes a call of :func:`all_gather` on the communicator that ``find`` returns, after a look at the arguments."""
    directory = _arguments.path("filesys_save_dir", filesys_save_dir)
    by_memory, by_files = _arguments.switch("force_cpu", force_cpu), _arguments.switch("force_filesys", force_filesys)
    communicator = find()
    path = _fsgather.choose_path(communicator._member, by_memory, by_files)
    return _functions.gather_by_path(communicator, path, data, directory, options)


def all_gather_via_filesys(
    data: T, filesys_save_dir: Optional[PathLike] = None, gather_to_rank_0_only: bool = False, **options: Unpack[CallOptions]
) -> list[T]:
    """Gathers all ranks' objects through files of a shared directory; with ``gather_to_rank_0_only`` other ranks get an empty list.

    Objects that fit into the control messages make no file; a world of one rank touches none.

    Raises:
        fsgather.NotSharedError: ranks do not see one directory.
    """
    return _by_files(_functions.default_communicator, data, filesys_save_dir, gather_to_rank_0_only, options)


def _by_files(
    find: Callable[[], Communicator], data: T, filesys_save_dir: Optional[PathLike], gather_to_rank_0_only: bool, options: CallOptions
) -> list[T]:
    """Makes a call of :func:`all_gather_via_filesys` on the communicator that ``find`` returns."""
    directory = _arguments.path("filesys_save_dir", filesys_save_dir)
    communicator = find()
    path = "solo" if communicator.world_size == 1 else "filesys_root_only" if gather_to_rank_0_only else "filesys"
    return _functions.gather_by_path(communicator, path, data, directory, options)


def all_gather_list(data: T, group: Any = ALL, max_size: int = 16384, **options: Unpack[CallOptions]) -> list[T]:
    """Gathers all ranks' small objects on every rank of a group.

    Raises:
        fsgather.TooLargeError: on every rank, if the object of one needs more than ``max_size`` bytes.
    """
    return _functions.communicator_for("all_gather_list", data, group).all_gather(data, max_size=max_size, **options)


def all_gather_object(data: T, group: Any = ALL, **options: Unpack[CallOptions]) -> list[T]:
    """Gathers all ranks' objects on every rank of a group, in the order of the group; variables of other projects do not count."""
    communicator = _functions.communicator_for("all_gather_object", data, group)
    path = "solo" if communicator.world_size == 1 else "auto"
    return _functions.gather_by_path(communicator, path, data, None, options)


_tracebacks.shorten(sys.modules[__name__], [name for name in __all__ if name != "gather"])
