"""How the ranks of a process group meet: through the store by which torch introduced them to each other.

Every rank says **hello** there with a nonce, and rank 0 of the group answers each nonce with a **welcome**. Keys outlive
process groups, and torch gives the names of destroyed groups to new ones; a nonce is never used twice, so that nobody takes
the welcome of an earlier meeting for this one's. Nor does rank 0 take a hello that it has answered for another one: it may have come to
the next meeting before others have fetched what it answered in this one.

With its hello a rank says which worlds it is in already (:mod:`fsgather._switch.ground`). Where all of them are in one, the
welcome names it, and nothing else has to be connected; else it is the record by which they join a new one.
"""

from __future__ import annotations

import secrets
import time
from typing import Callable, NamedTuple, Optional, Union

from fsgather import _errors, _fsgather
from fsgather._switch import stores
from fsgather._switch.groups import Group
from fsgather._switch.lookout import LOOK_EVERY, Lookout
from fsgather._switch.notices import once

__all__ = ["GRACE", "Hello", "Introduction", "OnGround", "Publishing", "Record"]

#: Seconds after which it is said for whom this rank waits, again and again.
WARN_EVERY = 30.0

#: Seconds within which ranks without fsgather are found out.
GRACE = 60.0

_PREFIX = "fsgather/v1"
_RECORD = b"+"
_ON_GROUND = b"="
_REFUSAL = b"-"


class Hello(NamedTuple):
    """What a rank says when it comes."""

    nonce: str
    grounds: frozenset[str]
    """The worlds that it is in already and that this group could use."""


class Record(NamedTuple):
    """A welcome into a new world."""

    record: bytes
    """What has to be known to join it."""
    ground: str
    number: int


class OnGround(NamedTuple):
    """A welcome onto a world in which all are already."""

    ground: str
    """What it is called."""
    number: int
    """Which channel of it this group gets."""


Welcome = Union[Record, OnGround]


class Publishing:
    """What hands a new world's record to those who have said hello. A world keeps it for as long as it lives, but not the store."""

    def __init__(self, own: Introduction, hellos: list[Hello], number: int) -> None:
        self._parts: Optional[tuple[Introduction, list[Hello], int]] = (own, hellos, number)
        self.has_answered = False

    def __call__(self, record: bytes) -> None:
        if self._parts is not None:
            own, hellos, number = self._parts
            own.welcome(hellos, Record(record, own.nonce, number))
            self.has_answered = True

    def end(self) -> None:
        """Lets go of the store."""
        self._parts = None


class Introduction:
    """One rank's part in one meeting."""

    def __init__(
        self,
        group: Group,
        lookout: Lookout,
        group_timeout: float,
        grace: float,
        answered: dict[int, str],
        prefix: str = "",
        pause: Optional[Callable[[float], object]] = None,
    ) -> None:
        self.group = group
        self.lookout = lookout
        self.group_timeout = group_timeout
        """How long to wait for ranks of which it is known that they will come, in seconds."""
        self.grace = min(grace, group_timeout)
        """How long to wait for others, in seconds."""
        self.nonce = secrets.token_hex(8)
        self._answered = answered
        """On rank 0: the nonce of each place that was answered last, in all meetings of the process group."""
        self._prefix = f"{_PREFIX}/{prefix}"
        self._came = time.monotonic()
        self._is_silent = pause is not None
        self._pause = pause or time.sleep

    def gather_hellos(self, grounds: frozenset[str]) -> list[Hello]:
        """On rank 0: waits for the others, and returns what each has said. Whoever came is told of a failure."""
        store = self.group.store
        stores.put(store, self._hello(0), self._say(grounds))
        others = range(1, len(self.group.ranks))
        keys = [self._hello(place) for place in others]
        found: list[Hello] = []

        def have_all_come() -> bool:
            found.clear()
            if not stores.holds(store, keys):
                return False
            for place in others:
                hello = self._heard(place)
                # Whoever gives up meanwhile takes its word back.
                if hello is None:
                    return False
                found.append(hello)
            return True

        try:
            self._wait(have_all_come)
            return found
        except _errors.Error as error:
            for place in others:
                hello = self._heard(place)
                if hello is not None:
                    self.refuse(place, hello, error)
            raise
        finally:
            stores.remove(store, self._hello(0))

    def _heard(self, place: int) -> Optional[Hello]:
        """On rank 0: what a rank has said that has not been answered."""
        text = stores.peek(self.group.store, self._hello(place))
        if not text:
            return None
        nonce, *grounds = text.split(" ")
        return None if self._answered.get(place) == nonce else Hello(nonce, frozenset(grounds))

    def welcome(self, hellos: list[Hello], welcome: Welcome) -> None:
        """On rank 0: lets the others in."""
        where = f"{welcome.ground} {welcome.number} ".encode()
        answer = _RECORD + where + welcome.record if isinstance(welcome, Record) else _ON_GROUND + where
        for place, hello in enumerate(hellos, start=1):
            self._answer(place, hello, answer)

    def refuse_all(self, hellos: list[Hello], error: _errors.Error) -> None:
        """On rank 0: tells the others that nothing comes of it."""
        for place, hello in enumerate(hellos, start=1):
            self.refuse(place, hello, error)

    def refuse(self, place: int, hello: Hello, error: _errors.Error) -> None:
        """The same for one of them."""
        self._answer(place, hello, _REFUSAL + _errors._packed(error))

    def fetch_welcome(self, grounds: frozenset[str]) -> Welcome:
        """Elsewhere: says hello, and waits for rank 0's answer."""
        store = self.group.store
        place = self.group.rank
        answer_key = self._welcome(place, self.nonce)
        stores.put(store, self._hello(place), self._say(grounds))
        try:
            self._wait(lambda: stores.holds(store, [answer_key]))
            answer = bytes(store.get(answer_key))
        finally:
            stores.remove(store, self._hello(place))
        stores.remove(store, answer_key)
        kind, content = answer[:1], answer[1:]
        if kind == _REFUSAL:
            # Everybody can write into a store of torch.
            raise _errors._unpacked(content, _fsgather.plain_text)
        ground, number, record = content.split(b" ", 2)
        name = stores.text(ground)
        return Record(record, name, int(number)) if kind == _RECORD else OnGround(name, int(number))

    def _say(self, grounds: frozenset[str]) -> str:
        return " ".join([self.nonce, *sorted(grounds)])

    def _hello(self, place: int) -> str:
        return f"{self._prefix}hello/{place}"

    def _welcome(self, place: int, nonce: str) -> str:
        return f"{self._prefix}welcome/{place}/{nonce}"

    def _answer(self, place: int, hello: Hello, answer: bytes) -> None:
        self._answered[place] = hello.nonce
        stores.put(self.group.store, self._welcome(place, hello.nonce), answer)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        """Until this holds of the store, or somebody is missing without whom it never will."""
        started = self._came
        grace = self.grace
        warn_at = started + WARN_EVERY
        while True:
            waited = time.monotonic() - started
            # Rank 0 knows best who is missing: it answers first, and the others give it the time for that. What ranks that
            # have met already know of each other goes before what can be seen in a store.
            more = (5.0 if self.group.rank != 0 else 0.0) + (5.0 if self.lookout.is_connected else 0.0)
            limit = more + (grace if waited < grace + more else self.group_timeout)
            until = min(started + limit, warn_at)
            look_at = time.monotonic() + self._until_look(waited)
            if stores.wait_until(is_so, min(until, look_at), self._pauses(waited), self._pause):
                return
            self.lookout.look(self._absent)
            if time.monotonic() < until:
                continue
            absent = self._absent()
            if time.monotonic() < started + limit:
                self._warn(absent, time.monotonic() - started)
                warn_at += WARN_EVERY
                continue
            waited = time.monotonic() - started
            silent = [place for place in absent if self.lookout.mark(self.group.ranks[place]) is None]
            if silent and self.grace < self.group_timeout:
                raise self._not_there(silent, waited)
            if waited >= self.group_timeout:
                raise self._late(absent)
            grace = 0.0

    def _until_look(self, waited: float) -> float:
        """How long until it is looked for those who will not come. What connections tell costs no question to the store."""
        if self.lookout.is_connected:
            return LOOK_EVERY / 5
        return LOOK_EVERY if waited < 10 or not self._is_silent else 4 * LOOK_EVERY

    def _pauses(self, waited: float) -> tuple[float, float]:
        """The shortest and the longest pause between two questions to the store: nobody waits for what goes on in silence."""
        if waited < 1:
            return 0.001, 0.05
        return (0.5, 1.0) if self._is_silent else (0.05, 0.05)

    def _absent(self) -> list[int]:
        """Who has not said hello; only rank 0 knows who has said no new one."""
        others = (place for place in range(len(self.group.ranks)) if place != self.group.rank)
        if self.group.rank == 0:
            return [place for place in others if self._heard(place) is None]
        return [place for place in others if not stores.holds(self.group.store, [self._hello(place)])]

    def _not_there(self, places: list[int], waited: float) -> _errors.Error:
        return _errors.Rendezvous(
            f"{self._name(places)} did not say hello within {waited:.0f} s, and fsgather has not replaced functions "
            "there: is FSGATHER_PATCH set to the same on all ranks, fsgather installed, and "
            "TORCH_DEVICE_BACKEND_AUTOLOAD not 0?"
        )

    def _late(self, places: list[int]) -> _errors.Error:
        # Some have waited a few seconds longer, to hear it of others.
        error = _errors.Timeout(
            f"{self._name(places)} did not come to its first call within {self.group_timeout:g} s, the time-out of the "
            f"process group; {TAKE_LONGER}"
        )
        error.missing = tuple(self.group.ranks[place] for place in places)
        error.timeout = self.group_timeout
        error.during = "meeting"
        return error

    def _warn(self, absent: list[int], waited: float) -> None:
        """Says for whom the ranks wait, on the first of those who do."""
        present = [place for place in range(len(self.group.ranks)) if place not in absent]
        if self._is_silent or not absent or present[0] != self.group.rank:
            return
        named = [self.group.ranks[place] for place in absent[:16]]
        unannounced = self.lookout.unannounced(named)
        is_set = f"is FSGATHER_PATCH set on {_ranks(unannounced)}?" if unannounced else ""
        where = "; ".join(filter(None, (*map(self.lookout.where, named), is_set)))
        once(
            f"still waiting, for {waited:.0f} s now, for {self._name(absent)} to come to its first call"
            f"{f' ({where})' if where else ''}; the time-out of the process group is {self.group_timeout:g} s"
        )

    def _name(self, places: list[int]) -> str:
        ranks = [self.group.ranks[place] for place in places] or [0]
        return f"{_ranks(ranks)} of process group {self.group.name!r} ({len(self.group.ranks)} ranks)"


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"


#: How ranks of a process group get more time.
TAKE_LONGER = "give init_process_group or new_group a longer timeout= if that is too short"
