"""How the ranks of a process group meet: through the store by which torch introduced them to each other.

Every rank says **hello** there with a nonce, and rank 0 of the group answers each nonce with its record, the
**welcome**. Keys outlive process groups, and torch gives the names of destroyed groups to new ones; a nonce is
never used twice, so that nobody takes the record of an earlier meeting for this one's.

A rank in which nothing was replaced never says hello. To tell it from one that comes late, each rank leaves
word in the store of the default group as soon as that exists: :func:`mark_presence`.
"""

from __future__ import annotations

import os
import secrets
import time
from typing import Any, Callable, NamedTuple, Optional

from fsgather import _errors, _fsgather
from fsgather._switch.groups import Group
from fsgather._switch.notices import once

__all__ = ["GRACE", "Introduction", "mark_presence"]

#: Seconds after which it is said for whom this rank waits, again and again.
WARN_EVERY = 30.0

#: Seconds within which ranks without fsgather are found out.
GRACE = 60.0

_PREFIX = "fsgather/v1"
_WELCOME = b"+"
_REFUSAL = b"-"
_LATENESS = b"~"

#: Marks a key that is there, in stores that cannot be asked for one without waiting.
_THERE = "/there"


def mark_presence(store: Any, rank: int) -> None:
    """Leaves word that functions have been replaced in the process of this rank of the world."""
    _put(store, f"{_PREFIX}/presence/{rank}", str(os.getpid()))


class Introduction(NamedTuple):
    """One rank's part in one meeting."""

    group: Group
    patience: float
    """How long to wait for ranks of which it is known that they will come, in seconds."""
    grace: float
    """How long to wait for others, in seconds."""
    nonce: str

    @classmethod
    def of(cls, group: Group, patience: float, grace: float) -> Introduction:
        """The part of this process."""
        return cls(group, patience, min(grace, patience), secrets.token_hex(8))

    def gather_hellos(self) -> list[str]:
        """On rank 0: waits for the others, and returns the nonce of each. Whoever came is told of a failure."""
        store = self.group.store
        _put(store, self._hello(0), self.nonce)
        others = [self._hello(place) for place in range(1, len(self.group.ranks))]
        try:
            self._wait(others)
        except _errors.Error as error:
            for place, key in enumerate(others, start=1):
                if _holds(store, [key]):
                    kind = _LATENESS if isinstance(error, _errors.Timeout) else _REFUSAL
                    self._answer(place, _text(store.get(key)), kind + str(error).encode())
            raise
        finally:
            _remove(store, self._hello(0))
        return [_text(store.get(key)) for key in others]

    def welcome(self, nonces: list[str], record: bytes) -> None:
        """On rank 0: hands its record to the others."""
        for place, nonce in enumerate(nonces, start=1):
            self._answer(place, nonce, _WELCOME + record)

    def refuse(self, nonces: list[str], reason: str) -> None:
        """On rank 0: tells the others that there will be no record."""
        for place, nonce in enumerate(nonces, start=1):
            self._answer(place, nonce, _REFUSAL + reason.encode())

    def fetch_record(self) -> bytes:
        """Elsewhere: says hello, and waits for rank 0's record."""
        store = self.group.store
        place = self.group.rank
        answer_key = self._welcome(place, self.nonce)
        _put(store, self._hello(place), self.nonce)
        try:
            self._wait([answer_key])
            answer = bytes(store.get(answer_key))
        finally:
            _remove(store, self._hello(place))
        _remove(store, answer_key)
        kind, content = answer[:1], answer[1:]
        if kind == _WELCOME:
            return content
        # Everybody can write into a store of torch.
        reason = _fsgather.plain_text(content.decode("utf-8", "replace"))
        raise _errors.Timeout(reason) if kind == _LATENESS else _errors.Rendezvous(reason)

    def _hello(self, place: int) -> str:
        return f"{_PREFIX}/hello/{place}"

    def _welcome(self, place: int, nonce: str) -> str:
        return f"{_PREFIX}/welcome/{place}/{nonce}"

    def _answer(self, place: int, nonce: str, answer: bytes) -> None:
        _put(self.group.store, self._welcome(place, nonce), answer)

    def _wait(self, keys: list[str]) -> None:
        """Until the store has all ``keys``, or somebody is missing without whom it never will."""
        started = time.monotonic()
        grace = self.grace
        warn_at = started + WARN_EVERY
        while True:
            waited = time.monotonic() - started
            limit = grace if waited < grace else self.patience
            # Rank 0 knows best who is missing: it answers first, and the others give it the time for that.
            if self.group.rank != 0:
                limit += 5.0
            if _wait_for(self.group.store, keys, min(started + limit, warn_at)):
                return
            absent = self._absent()
            if time.monotonic() < started + limit:
                self._warn(absent, time.monotonic() - started)
                warn_at += WARN_EVERY
                continue
            waited = time.monotonic() - started
            silent = [place for place in absent if not self._is_present(place)]
            if silent and self.grace < self.patience:
                raise self._not_there(silent, waited)
            if waited >= self.patience:
                raise self._late(absent, waited)
            grace = 0.0

    def _absent(self) -> list[int]:
        """Who has not said hello."""
        places = range(len(self.group.ranks))
        return [
            place
            for place in places
            if place != self.group.rank and not _holds(self.group.store, [self._hello(place)])
        ]

    def _is_present(self, place: int) -> bool:
        return _holds(self.group.world_store, [f"{_PREFIX}/presence/{self.group.ranks[place]}"])

    def _not_there(self, places: list[int], waited: float) -> _errors.Error:
        return _errors.Rendezvous(
            f"{self._name(places)} did not say hello within {waited:.0f} s, and fsgather has not replaced functions "
            "there: is FSGATHER_PATCH set to the same on all ranks, fsgather installed, and "
            "TORCH_DEVICE_BACKEND_AUTOLOAD not 0?"
        )

    def _late(self, places: list[int], waited: float) -> _errors.Error:
        error = _errors.Timeout(
            f"{self._name(places)} did not come to its first call within {waited:.0f} s, the time-out of the "
            "process group; give init_process_group a longer one if that is too short"
        )
        error.missing = tuple(self.group.ranks[place] for place in places)
        error.patience = self.patience
        error.during = "meeting"
        return error

    def _warn(self, absent: list[int], waited: float) -> None:
        """Says for whom the ranks wait, on the first of those who do."""
        present = [place for place in range(len(self.group.ranks)) if place not in absent]
        if not absent or present[0] != self.group.rank:
            return
        once(
            f"fsgather: still waiting, for {waited:.0f} s now, for {self._name(absent)} to come to its first call; "
            f"the time-out of the process group is {self.patience:.0f} s"
        )

    def _name(self, places: list[int]) -> str:
        ranks = [self.group.ranks[place] for place in places]
        word = "rank" if len(ranks) == 1 else "ranks"
        listed = ", ".join(map(str, ranks)) or "0"
        return f"{word} {listed} of process group {self.group.name!r} ({len(self.group.ranks)} ranks)"


def _wait_for(store: Any, keys: list[str], until: float) -> bool:
    """Whether the store gets all ``keys`` in time.

    By asking again instead of ``wait``: that cannot be interrupted, and what its time-out leaves behind in the
    connection differs between versions.
    """
    pause = 0.001
    while not _holds(store, keys):
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, 0.05)
    return True


def _put(store: Any, key: str, value: Any) -> None:
    store.set(key, value)
    if not hasattr(store, "check"):
        store.add(key + _THERE, 1)


def _holds(store: Any, keys: list[str]) -> bool:
    """Whether the store has all these keys, without waiting for them.

    Before 2.0 only a number can be asked for so. A ``wait`` that is over leaves its late answer in the connection, where the next
    question takes it for its own.
    """
    check: Optional[Callable[[list[str]], bool]] = getattr(store, "check", None)
    if check is not None:
        return bool(check(keys))
    return all(store.add(key + _THERE, 0) > 0 for key in keys)


def _remove(store: Any, key: str) -> None:
    try:
        # The mark first: a key that is marked can be had.
        if not hasattr(store, "check"):
            store.delete_key(key + _THERE)
        store.delete_key(key)
    except (RuntimeError, NotImplementedError):
        # It costs a few bytes until the job ends; nobody takes it for a new one.
        pass


def _text(value: Any) -> str:
    return bytes(value).decode("ascii", "replace")
