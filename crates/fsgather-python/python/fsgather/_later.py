"""Calls whose results are read, made or waited for later: :class:`LaterResults`."""

from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar

from fsgather import _fsgather, _tracebacks
from fsgather._arguments import Seconds
from fsgather._results import Gathering, Parts, Pending

__all__ = ["LaterResults"]

T = TypeVar("T")


class LaterResults:
    """These calls of :class:`fsgather.Communicator`, which says how they are made."""

    _member: _fsgather.Communicator
    _size: int

    _rank: Callable[[str, Any], int]
    _how: Callable[..., dict[str, Any]]

    def all_gather_parts(
        self,
        data: T,
        *,
        timeout: Seconds = None,
        tag: Optional[str] = None,
        site: Optional[str] = None,
        allow_pickle: Optional[bool] = None,
    ) -> Parts[T]:
        """Gathers everybody's object on every rank, where each is made when it is first looked at.

        For large lists and dictionaries that not every rank looks through: a rank that looks at none spends no time on making them, and no
        memory but for what arrived, which ranks of a host share if there is room.

        Returns:
            A sequence of one object for each rank, in rank order.
        """
        how = self._how(site, timeout, tag=tag, allow_pickle=allow_pickle)
        return Parts(self._member.all_gather_payloads(data, how))

    def gather_iter(
        self,
        data: T,
        dst: int = 0,
        *,
        timeout: Seconds = None,
        tag: Optional[str] = None,
        site: Optional[str] = None,
        allow_pickle: Optional[bool] = None,
    ) -> Gathering[T]:
        """Gathers everybody's object on rank ``dst``, which looks at one rank's at a time.

        The others go on as soon as all have handed in; what is handed over waits in files.

        Returns:
            On ``dst`` an iterator over one object for each rank, in rank order, each read when it is asked for;
            elsewhere one that is empty.
        """
        how = self._how(site, timeout, tag=tag, allow_pickle=allow_pickle)
        return Gathering(self._member.gather(data, self._rank("dst", dst), how), self._size)

    def start_all_gather(
        self,
        data: T,
        *,
        timeout: Seconds = None,
        tag: Optional[str] = None,
        site: Optional[str] = None,
        allow_pickle: Optional[bool] = None,
    ) -> Pending[list[T]]:
        """Starts an :meth:`all_gather` whose result is asked for later.

        ``data`` has been published and announced when it returns, so that this rank can go on computing, and need
        not keep it. All ranks start their calls in the same order, and wait for them in any.
        """
        how = self._how(site, timeout, tag=tag, allow_pickle=allow_pickle)
        call = self._member.start_all_gather(data, how)
        return Pending(call, as_list=False, name=f"all_gather at {how['site']}")

    def start_gather(
        self,
        data: T,
        dst: int = 0,
        *,
        timeout: Seconds = None,
        tag: Optional[str] = None,
        site: Optional[str] = None,
        allow_pickle: Optional[bool] = None,
    ) -> Pending[Optional[list[T]]]:
        """Starts a :meth:`gather_object` whose result is asked for later, like :meth:`start_all_gather`."""
        how = self._how(site, timeout, tag=tag, allow_pickle=allow_pickle)
        call = self._member.start_gather(data, self._rank("dst", dst), how)
        return Pending(call, as_list=True, name=f"gather to rank {dst} at {how['site']}")


_tracebacks.shorten(LaterResults, _tracebacks.public(LaterResults))
