"""What a rank that waits for others at their first call can know of them: :class:`Lookout`.

From the world that all ranks of the job make when its default group is made, as soon as it is there: rank 0 of it is told by
the connections who is lost, has failed or has left, and how long nobody has come. Before, and beside it, from the marks that
ranks have left in the store.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from fsgather import _errors
from fsgather._switch.groups import Group
from fsgather._switch.presence import Mark, Presence, text_of

if TYPE_CHECKING:
    from fsgather._switch.formation import Formation

__all__ = ["Arriving", "Lookout"]

#: How often it is looked for those who will not come, in seconds.
LOOK_EVERY = 0.5

#: How long it takes until the others know why the rank with the store has gone, in seconds.
LAST_WORDS = 2.0

#: Up to how many ranks each looks for all others, and not only for those of its host.
MANY = 64


class Lookout:
    """What one rank can know of those that it waits for in one meeting."""

    def __init__(
        self,
        group: Group,
        presence: Optional[Presence],
        formation: Optional[Formation],
        arrival: Optional[Arriving] = None,
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self._group = group
        self._presence = presence
        self._formation = formation
        self._arrival = arrival
        self._on_look = on_look
        self._own_host = _own_host(group)

    @property
    def is_connected(self) -> bool:
        """Whether connections tell of the others."""
        return self._arrival is not None and self._arrival.has_begun

    def await_world(self) -> None:
        """Gives the world that is being made a moment, so that the group can have a part of it."""
        formation = self._formation
        if formation is None:
            return
        while formation.is_young():
            formation.wait(0.25)
            if not formation.has_ended():
                self._look_at_marks(lambda: list(range(len(self._group.ranks))))

    def look(self, absent: Callable[[], list[int]]) -> None:
        """Looks whether one of the members that are absent, given by their places, will never come.

        Raises:
            fsgather.Error: says so.
        """
        self._on_look()
        self.look_at_world()
        if not self.is_connected:
            self._look_at_marks(absent)

    def _look_at_marks(self, absent: Callable[[], list[int]]) -> None:
        if self._presence is None:
            return
        if len(self._group.ranks) <= MANY:
            ranks = [self._group.ranks[place] for place in absent()]
        else:
            # So many questions of so many ranks would be too much for a store.
            ranks = [rank for rank in self._own_host if rank in self._group.ranks]
        try:
            self._presence.look_for_ended(ranks)
        except _errors.PeerFailed:
            if self._group.ranks[self._group.rank] == 0:
                # Its end may be that of the store, where the others are just about to look.
                time.sleep(LOOK_EVERY)
            raise

    def look_at_world(self) -> None:
        """Tells the world of all ranks that this one has come, if there is one, and looks whether the others will."""
        ground = self._formation.ground if self._formation is not None else None
        if ground is None or self._arrival is None:
            return
        try:
            self._arrival.look(ground, self._group)
        except _errors.Error as error:
            # What has become of others is nothing to this group.
            if error.rank is None or error.rank in self._group.ranks:
                raise
            self._arrival.give_up()

    def say_come(self) -> None:
        """Tells the world that this rank has come, if it has not been told yet."""
        try:
            self.look_at_world()
        except _errors.Error:
            # The next call tells.
            pass

    def explain(self, broken: BaseException) -> _errors.Error:
        """Why the store cannot be reached any more."""
        until = time.monotonic() + LAST_WORDS
        while time.monotonic() < until:
            try:
                self.look_at_world()
            except _errors.Error as error:
                return error
            if not self.is_connected:
                break
            time.sleep(0.05)
        return _errors.Rendezvous(
            f"the store of process group {self._group.name!r}, through which its ranks meet, is gone ({broken}): the process "
            "that has it, in most jobs rank 0 or the launcher, has ended"
        )

    def mark(self, rank: int) -> Optional[Mark]:
        """What a rank of the world has left word of."""
        return None if self._presence is None else self._presence.of(rank)

    def unannounced(self, ranks: list[int]) -> list[int]:
        """Those of these ranks that have left no word, where ranks do when functions are replaced."""
        return [] if self._presence is None else [rank for rank in ranks if self._presence.of(rank) is None]

    def where(self, rank: int) -> str:
        """Where a rank of the world is, and how it is, as far as that is known."""
        mark = self.mark(rank)
        if mark is None:
            return ""
        state = "stopped by a signal" if mark.is_stopped() else "computing"
        return f"{text_of(rank, mark)}: {mark.problem or state}, in the job since {mark.since()}"


class Arriving:
    """This rank's word to the world that it waits at the first call of a group. It outlives waiting that was interrupted."""

    def __init__(self, number: int, timeout: Optional[float], site: str) -> None:
        self._number = number
        self._how = {"site": site, "timeout": timeout}
        self._arrival: Optional[Any] = None
        self.is_given_up = False

    @property
    def has_begun(self) -> bool:
        """Whether it was said."""
        return self._arrival is not None

    def look(self, ground: Any, group: Group) -> None:
        """Says it, and looks whether all will come."""
        if self.is_given_up:
            return
        if self._arrival is None:
            self._arrival = ground.arrive(group.ranks, self._number, self._how)
        self._arrival.have_all_come()

    def give_up(self) -> None:
        """Asks no more."""
        self._arrival = None
        self.is_given_up = True


def _own_host(group: Group) -> range:
    """The ranks of this host, as the launcher numbers them."""
    own = group.ranks[group.rank]
    try:
        place, count = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return range(own, own + 1)
    return range(own - place, own - place + count)
