"""The ranks of a world meet through the store by which torch introduced them: :class:`Introduction`.

Every rank leaves a **hello** with a nonce, and the first rank answers each nonce with a **welcome**: the record by which ranks
join the world, or a refusal. Keys outlive process groups, and torch gives the names of destroyed groups to new ones; a nonce is never
used twice, so no rank takes the welcome of an earlier meeting for its own. The first rank answers no hello twice: it may begin
the next meeting before others have read the answer in this one.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Callable, Optional

from fsgather import _errors, _fsgather
from fsgather._communicator import Communicator
from fsgather._switch import notices, stores
from fsgather._switch.ground import Ground
from fsgather._switch.groups import Group

__all__ = ["TAKE_LONGER", "Introduction", "Patience", "Refusal", "Wait", "listed", "refusal"]

WARN_INTERVAL = 30.0
"""How often a waiting rank says whom it waits for, in seconds."""

_LEAD = 5.0
"""How much longer other ranks wait than the first one, which knows best whom all wait for, in seconds."""

_FETCH_LIMIT = 2.0
"""How long the first rank waits until others have read a refusal, as the store may end with it, in seconds."""

TAKE_LONGER = "give init_process_group or new_group a longer timeout= if that is too short"
"""How ranks of a process group get more time."""

_PREFIX = "fsgather/v1"
_RECORD = b"+"
_REFUSAL = b"-"

Wait = Callable[[Callable[[], bool], Callable[[], list[int]]], None]
"""Returns once the first argument is true; the second returns the ranks that are waited for. Raises what keeps one of them."""


class Refusal(Exception):
    """A rank will not come to this call, but may come to the next one, which names the group."""


class Introduction:
    """The part of one rank in the meetings of the ranks of one world."""

    def __init__(self, store: Any, name: str, ranks: tuple[int, ...], place: int) -> None:
        self._store = store
        self._prefix = f"{_PREFIX}/{name}"
        self.ranks = ranks
        """The number in the job of each rank."""
        self._place = place
        self._answered: dict[int, str] = {}

    def meet(self, wait: Wait, timeout: float, **how: Any) -> Ground:
        """Meets the others, and returns the world.

        Raises:
            fsgather.Error: they have not met; the first rank has told the others why.
            RuntimeError: the store is gone.
        """
        nonce = secrets.token_hex(8)
        hello = self._hello(self._place)
        stores.put(self._store, hello, nonce)
        size = len(self.ranks)
        # Messages of this world, too, name ranks by their numbers in the job.
        how = {"timeout": timeout, "set_up_later": True, "numbers": self.ranks, **how}
        try:
            if self._place == 0:
                communicator = self._lead(size, wait, how)
            else:
                record = self._fetch(nonce, wait)
                communicator = Communicator._meet(self._place, size, _not_asked, lambda _seconds: record, **how)
        finally:
            stores.remove(self._store, hello)
        return Ground(self.ranks, communicator)

    def _lead(self, size: int, wait: Wait, how: dict[str, Any]) -> Communicator:
        hellos: dict[int, str] = {}
        keys = [self._hello(place) for place in range(1, size)]

        def have_all_come() -> bool:
            # A rank that gives up takes its hello back.
            return stores.holds(self._store, keys) and not absent()

        def absent() -> list[int]:
            heard = {place: self._heard(place) for place in range(1, size)}
            hellos.clear()
            hellos.update({place: nonce for place, nonce in heard.items() if nonce is not None})
            return [self.ranks[place] for place, nonce in heard.items() if nonce is None]

        # The world keeps what publishes its record for as long as it lives, but must not keep the store.
        answer: list[Callable[[bytes], object]] = [lambda record: self._answer(hellos, _RECORD + record)]
        try:
            wait(have_all_come, absent)
            return Communicator._meet(0, size, lambda record: answer.pop()(record), _not_asked, **how)
        except BaseException as error:
            # Every rank finds a refusal in the store, and those that have said hello come to another call.
            if answer and not isinstance(error, Refusal):
                absent()
                said = f"rank {self.ranks[0]} cannot let others join: {type(error).__name__}: {error}"
                told = error if isinstance(error, _errors.Error) else _errors.RendezvousError(said)
                self._refuse(hellos, told)
            raise
        finally:
            answer.clear()

    def _refuse(self, hellos: dict[int, str], error: _errors.Error) -> None:
        keys = self._answer(hellos, _REFUSAL + _errors._packed(error))
        stores.wait_until(lambda: not any(stores.holds(self._store, [key]) for key in keys), time.monotonic() + _FETCH_LIMIT)

    def _fetch(self, nonce: str, wait: Wait) -> bytes:
        key = self._welcome(self._place, nonce)
        wait(lambda: stores.holds(self._store, [key]), self._unheard)
        answer = bytes(self._store.get(key))
        stores.remove(self._store, key)
        if answer[:1] == _REFUSAL:
            # Any process can write into a store of torch.
            raise _errors._unpacked(answer[1:], _fsgather.plain_text)
        return answer[1:]

    def _unheard(self) -> list[int]:
        """Returns the ranks that have left no hello; only the first rank knows which hellos are new."""
        return [
            rank
            for place, rank in enumerate(self.ranks)
            if place != self._place and not stores.holds(self._store, [self._hello(place)])
        ]

    def _heard(self, place: int) -> Optional[str]:
        nonce = stores.peek(self._store, self._hello(place))
        return nonce if nonce and self._answered.get(place) != nonce else None

    def _answer(self, hellos: dict[int, str], answer: bytes) -> list[str]:
        keys = []
        for place, nonce in hellos.items():
            self._answered[place] = nonce
            keys.append(self._welcome(place, nonce))
            stores.put(self._store, keys[-1], answer)
        return keys

    def _hello(self, place: int) -> str:
        return f"{self._prefix}/hello/{place}"

    def _welcome(self, place: int, nonce: str) -> str:
        return f"{self._prefix}/welcome/{place}/{nonce}"


class Patience:
    """How long a first call waits for ranks of which nothing else is known, and what it reports meanwhile; ``refusal`` is the key where a rank
    leaves the reason why it will not come."""

    def __init__(self, group: Group, refusal: Optional[str] = None) -> None:
        self._group = group
        self._refusal = refusal
        self._began = time.monotonic()
        self._warn_at = WARN_INTERVAL
        # The first rank knows best whom all wait for.
        self._limit = group.timeout + (_LEAD if group.rank else 0.0)

    def wait(self, is_so: Callable[[], bool], absent: Callable[[], list[int]]) -> None:
        """Waits until something holds of the store.

        Raises:
            Refusal: a rank has left one.
            fsgather.TimeoutError: names the ranks that have not come.
        """
        while not stores.wait_until(lambda: self._heed_refusal() or is_so(), self._began + min(self._warn_at, self._limit)):
            group, waited = self._group, time.monotonic() - self._began
            missing = absent() or [group.ranks[0]]
            named = f"{listed(missing)} of process group {group.name!r} ({len(group.ranks)} ranks)"
            if waited >= self._limit:
                error = _errors.TimeoutError(
                    f"{named} did not come to its first call within {group.timeout:g} s, the time-out of the process group; {TAKE_LONGER}"
                )
                error.missing, error.timeout, error.during = tuple(missing), group.timeout, "meeting"
                raise error
            self._warn_at += WARN_INTERVAL
            # The first of those that wait reports it.
            if next(rank for rank in group.ranks if rank not in missing) == group.ranks[group.rank]:
                notices.once(
                    f"still waiting, for {waited:.0f} s now, for {named} to come to its first call; is FSGATHER_PATCH set to the same "
                    f"there? It times out in {self._limit - waited:.0f} s, by the time-out of the process group, {group.timeout:g} s"
                )


    def _heed_refusal(self) -> bool:
        if self._refusal is not None and stores.holds(self._group.store, [self._refusal]):
            raise Refusal(stores.text(self._group.store.get(self._refusal)))
        return False


def refusal(rank: int, problem: str) -> str:
    """Returns the text that ranks raise if another one has refused a call without a group."""
    return f"rank {rank} of torch.distributed refused the call: {problem}"


def listed(ranks: list[int]) -> str:
    """Returns ranks as messages name them."""
    more = f" and {len(ranks) - 16} more" if len(ranks) > 16 else ""
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks[:16]))}{more}"


def _not_asked(*_arguments: Any) -> Any:
    raise AssertionError("the first rank publishes its record, the others fetch it")
