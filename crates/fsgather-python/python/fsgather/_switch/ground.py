"""Worlds of ranks of this job, of which process groups are channels: :class:`Ground`.

A process group is a channel of a world that its own first rank leads: that takes neither connections nor threads, and the group does
not depend on a rank outside of it. Torch's groups do not, either, and any rank may end before the others.
"""

from __future__ import annotations

import collections
import hashlib
import threading
from typing import TYPE_CHECKING, Any, Optional, Sequence

from fsgather import _trust

if TYPE_CHECKING:
    from fsgather import Communicator

__all__ = ["Ground"]


class Ground:
    """One world."""

    def __init__(self, ranks: tuple[int, ...], communicator: Communicator) -> None:
        self.ranks = ranks
        """The number in the job of each of its ranks."""
        self.own_rank = ranks[communicator.rank]
        """The number in the job of this one."""
        self._communicator = communicator
        self._lock = threading.Lock()
        self._uses: collections.Counter[str] = collections.Counter()

    @property
    def failed(self) -> bool:
        """Whether this rank knows that another one was lost or has failed."""
        return self._communicator.failed

    def can_carry(self, ranks: Sequence[int]) -> bool:
        """Whether a group of these ranks can be a channel of it."""
        return not self._communicator.closed and ranks[0] == self.ranks[0] and set(ranks) <= set(self.ranks)

    def channel(self, ranks: Sequence[int], name: str, timeout: float) -> Communicator:
        """Returns a communicator of these ranks; ``name`` is that of their process group.

        All of them make it, and equally often: the calls on a channel end alike on all of its ranks.
        """
        from fsgather import Communicator

        member = self._communicator._member.group_agreed_on(self._places(ranks), self._number(f"group {name}"))
        channel = Communicator._of(member, _trust.allows_pickle(None, is_introduced=True))
        channel._timeout = timeout
        return channel

    def arrive(self, ranks: Sequence[int], name: str, site: str, timeout: float) -> Any:
        """Reports to the others of these ranks that this one waits for them, and returns what tells whether they will come."""
        how = self._communicator._how({"site": site, "timeout": timeout})
        return self._communicator._member.arrive(self._places(ranks), self._number(f"arrival {name}"), how)

    def leave(self, failure: Optional[str]) -> None:
        """Leaves without waiting for the others; ``failure`` is what they are told, if this rank fails."""
        self._communicator._member.leave(failure)

    def _places(self, ranks: Sequence[int]) -> list[int]:
        return [self.ranks.index(rank) for rank in ranks]

    def _number(self, name: str) -> int:
        """Returns the number of the next use of a name: the same on all ranks, without a message between them."""
        with self._lock:
            self._uses[name] += 1
            use = self._uses[name]
        return int.from_bytes(hashlib.sha256(f"{use} {name}".encode()).digest()[:7], "big")
