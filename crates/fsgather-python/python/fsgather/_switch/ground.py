"""Worlds in which ranks of this job are together, and of which process groups get a part: :class:`Ground`.

A process group is a channel of a world that its own rank 0 leads, if there is one of which all its members are; it takes
neither connections nor threads of its own then. Who leads the world is in the group, so that no group depends on a rank that is
not a member: torch's groups do not, either, and any rank may end before the others do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

from fsgather import _trust

if TYPE_CHECKING:
    from fsgather import Communicator

__all__ = ["Ground"]


class Ground:
    """One world."""

    def __init__(self, name: str, ranks: tuple[int, ...], communicator: Communicator) -> None:
        self.name = name
        """What its members call it; no other is called so."""
        self.ranks = ranks
        """The number in the job of each of its ranks."""
        self.users = 0
        """How many process groups have a part of it, or may be about to."""
        self._communicator = communicator
        self.own_rank = ranks[communicator.rank]
        """The number in the job of this one."""

    def can_carry(self, ranks: Sequence[int]) -> bool:
        """Whether a group of these ranks of the job can be a channel of it."""
        return not self._communicator.closed and ranks[0] == self.ranks[0] and set(ranks) <= set(self.ranks)

    def channel(self, ranks: Sequence[int], number: int, timeout: Optional[float]) -> Communicator:
        """A communicator of these ranks of the job, which all of them make under the same number."""
        from fsgather import Communicator

        member = self._communicator._member.group_agreed_on(self._places(ranks), number)
        channel = Communicator._of(member, _trust.allows_pickle(None, is_introduced=True))
        channel._timeout = timeout
        return channel

    def arrive(self, ranks: Sequence[int], number: int, how: dict[str, Any]) -> Any:
        """Tells the others of these ranks that this one waits for them."""
        return self._communicator._member.arrive(self._places(ranks), number, self._communicator._how(**how))

    def leave(self, failure: Optional[str]) -> None:
        """Gives it up, without waiting for the others, and tells them by what failure if it was one."""
        self._communicator._member.leave(failure)

    def _places(self, ranks: Sequence[int]) -> list[int]:
        return [self.ranks.index(rank) for rank in ranks]
