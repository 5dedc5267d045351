"""Worlds of groups that cannot be channels of the world of all ranks: :class:`OwnWorld`.

These are groups without the first rank of the job, groups that reach over several jobs, and all groups of a job in which nothing is
replaced, whose program calls fsgather itself.
Groups of the same ranks share one. It lasts as long as the process group in whose store its ranks met.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import threading
import time
import weakref
from typing import Optional

from fsgather import _errors
from fsgather._switch import groups, stores
from fsgather._switch.ground import Ground
from fsgather._switch.groups import Group
from fsgather._switch.introduction import Introduction, Patience, Refusal, refusal

__all__ = ["OwnWorld"]

_uses: collections.Counter[str] = collections.Counter()
"""How many worlds of the same ranks this process has taken part in: a store may outlive the process groups that meet through it."""


class OwnWorld:
    """The world of the ranks of a group, which the first call of such a group makes."""

    def __init__(self, group: Group) -> None:
        self._home = weakref.ref(group.home)
        self._lock = threading.Lock()
        self._name = hashlib.sha256(repr(group.ranks).encode()).hexdigest()[:16]
        _uses[self._name] += 1
        self._refusal = f"fsgather/v1/{self._name}/refusal/{_uses[self._name]}"
        # The store is torch's to end: it is kept until the ranks have met.
        self._introduction: Optional[Introduction] = Introduction(group.store, self._name, group.ranks, group.rank)
        self._ground: Optional[Ground] = None

    def is_of_a_group(self) -> bool:
        """Whether its process group has not been destroyed."""
        return groups.exists(self._home())

    def ground_for(self, group: Group, all_ranks: Optional[Ground], site: str, can_be_refused: bool) -> Ground:
        """Returns the world; ``all_ranks`` is that of all ranks, by whose connections members learn which of them will not come.

        Raises:
            fsgather.ConfigError: ``can_be_refused``, and one of them has refused.
            fsgather.Error: one of them will not come.
            RuntimeError: the store is gone.
        """
        with self._lock:
            if self._ground is None:
                introduction = self._introduction
                if introduction is None:
                    raise _errors.Error("the process group was destroyed while another thread made a call on it")
                if all_ranks is not None:
                    self._await_members(group, all_ranks, site)
                patience = Patience(group, self._refusal if can_be_refused else None)
                try:
                    self._ground = introduction.meet(patience.wait, group.timeout)
                except Refusal as refused:
                    raise _errors.ConfigError(str(refused)) from None
                self._introduction = None
            return self._ground

    def refuse(self, group: Group, problem: str) -> None:
        """Leaves an error for the ranks that wait for this one, or will."""
        with contextlib.suppress(RuntimeError):
            stores.put(group.store, self._refusal, refusal(group.ranks[group.rank], problem))

    def leave(self, failure: Optional[str]) -> None:
        """Leaves it without waiting for the others; ``failure`` is what they are told, if this rank fails."""
        self._introduction = None
        ground, self._ground = self._ground, None
        if ground is not None:
            ground.leave(failure)

    def _await_members(self, group: Group, all_ranks: Ground, site: str) -> None:
        """Waits until all members have come to their first call, and reports whom they wait for."""
        pause = 0.001
        try:
            arrival = all_ranks.arrive(group.ranks, self._name, site, group.timeout)
            while not arrival.have_all_come():
                time.sleep(pause)
                pause = min(pause * 1.5, 0.05)
        except _errors.Error as error:
            # The end of a rank outside of the group is no reason; the others see it, too.
            if error.rank is None or error.rank in group.ranks:
                raise
