"""Gathers that give parts as ranks finish, or what is there at a deadline: :class:`EarlyGathers`."""

from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar

from fsgather import _arguments, _fsgather
from fsgather._arguments import PathLike, Seconds, Transport
from fsgather._errors import Missing
from fsgather._results import Completed, Partial

__all__ = ["EarlyGathers"]

T = TypeVar("T")


class EarlyGathers:
    """These calls of :class:`fsgather.Communicator`, which says how they are made."""

    _member: _fsgather.Communicator

    _rank: Callable[[str, Any], int]
    _how: Callable[..., dict[str, Any]]

    def gather_as_completed(
        self,
        data: T,
        dst: int = 0,
        *,
        deadline: Seconds = None,
        timeout: Seconds = None,
        tag: Optional[str] = None,
        site: Optional[str] = None,
        allow_pickle: Optional[bool] = None,
        transport: Optional[Transport] = None,
        directory: Optional[PathLike] = None,
    ) -> Completed[T]:
        """Gathers everybody's object on rank ``dst``, which gets each as soon as its rank has handed it in.

        The others return when all have handed in.

        Args:
            data: any object.
            dst: who receives.
            deadline: after how many seconds, counted from when ``dst`` has come, it ends with what is there. All ranks give one;
                that of ``dst`` counts.
            timeout: how long nothing may move, in seconds; by default the communicator's.
            tag: what the call is for; ranks that come to one line with different tags raise :class:`fsgather.Desync`, which has both.
            site: what messages call the place of the call; by default the caller's file and line.
            allow_pickle: ``False`` refuses objects that would have to be pickled, on both sides.
            transport: how a large object travels in this call: ``"auto"``, ``"filesys"``, ``"memory"``.
            directory: the shared directory of this call.

        Returns:
            On ``dst`` an iterator over pairs of a rank and its object; elsewhere one that is empty. Its ``missing`` names those who were
            not in at the deadline. A failure is raised after what was in before it and can still be read.
        """
        how = self._how(site, timeout, tag=tag, allow_pickle=allow_pickle, transport=transport, directory=directory)
        how["deadline"] = _arguments.seconds("deadline", deadline)
        completed = self._member.gather_as_completed(data, self._rank("dst", dst), how)
        return Completed(completed, deadline is not None)

    def gather_partial(
        self,
        data: T,
        dst: int = 0,
        *,
        deadline: Seconds,
        timeout: Seconds = None,
        tag: Optional[str] = None,
        site: Optional[str] = None,
        allow_pickle: Optional[bool] = None,
        transport: Optional[Transport] = None,
        directory: Optional[PathLike] = None,
    ) -> Partial[T]:
        """Gathers on rank ``dst`` the objects of those who have handed in when a deadline passes, and tells all who had not.

        A rank that comes later is told so at once, hands nothing in, and goes on with its next call. A rank that is lost, or fails, is an
        error as in any call.

        Args:
            data: any object.
            dst: who receives.
            deadline: after how many seconds, counted from when ``dst`` has come, it ends with what is there; that of ``dst`` counts.
            timeout: how long ``dst`` may be waited for, in seconds; by default as long as the communicator waits.
            tag: what the call is for; ranks that come to one line with different tags raise :class:`fsgather.Desync`, which has both.
            site: what messages call the place of the call; by default the caller's file and line.
            allow_pickle: ``False`` refuses objects that would have to be pickled, on both sides.
            transport: how a large object travels in this call: ``"auto"``, ``"filesys"``, ``"memory"``.
            directory: the shared directory of this call.

        Returns:
            On every rank who is ``missing``; on ``dst`` the ``parts`` of the others as well.
        """
        how = self._how(site, timeout, tag=tag, allow_pickle=allow_pickle, transport=transport, directory=directory)
        how["deadline"] = _arguments.seconds("deadline", deadline)
        parts, missing = self._member.gather_partial(data, self._rank("dst", dst), how)
        return Partial(None if parts is None else dict(parts), tuple(Missing(*peer) for peer in missing))
