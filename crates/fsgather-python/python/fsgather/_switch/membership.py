"""This process's part in one of torch's process groups: :class:`Membership`."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional

from fsgather import _errors
from fsgather._switch import groups
from fsgather._switch.introduction import TAKE_LONGER

if TYPE_CHECKING:
    from fsgather import Communicator
    from fsgather._switch.ground import Ground

__all__ = ["Membership"]


class Membership:
    """This process's part in one process group; its first call makes a communicator together with the other ranks."""

    def __init__(self, group: groups.Group, find_ground: Callable[[groups.Group, str, bool], Ground]) -> None:
        self.ranks = group.ranks
        """The number in the job of each member."""
        self.rank = group.rank
        """This process's place among them."""
        self._process_group = weakref.ref(group.process_group)
        self._find_ground = find_ground
        self._lock = threading.Lock()
        # The store and the process group are torch's to end: kept until the ranks have met.
        self._group: Optional[groups.Group] = group
        self._communicator: Optional[Communicator] = None
        self._has_worked = False
        """Whether a call on the communicator has succeeded."""

    def is_of(self, process_group: Any) -> bool:
        """Whether it belongs to this very object, which has not been destroyed."""
        return self._process_group() is process_group and groups.exists(process_group)

    def exists(self) -> bool:
        """Whether its process group has not been destroyed."""
        return groups.exists(self._process_group())

    @property
    def has_communicator(self) -> bool:
        """Whether a call has made the communicator."""
        return self._communicator is not None

    def place(self, rank: int) -> Optional[int]:
        """Returns the place in the group of a rank of the job."""
        return self.ranks.index(rank) if rank in self.ranks else None

    def communicator(self, site: str, can_be_refused: bool = False) -> Communicator:
        """Returns the communicator; ``site`` is the place of the call that needs it, ``can_be_refused`` whether it names no group.

        Threads that use the same process group take turns in making it. After that they may call at the same time, if
        all ranks do so in the same order.
        """
        with self._lock:
            if self._communicator is None:
                group = self._group
                if group is None:
                    raise _errors.Error("the process group was destroyed while another thread made a call on it")
                ground = self._find_ground(group, site, can_be_refused)
                self._communicator = ground.channel(group.ranks, group.name, group.timeout)
                self._group, self._has_worked = None, False
            return self._communicator

    def call(self, name: str, *arguments: Any, site: str, like: str = "pickle", **how: Any) -> Any:
        """Makes a collective call in the manner of torch, where an object that cannot be handed in does no lasting harm.

        The functions that this stands for pickle their objects, and results are as theirs; ``like="pickles"`` is for those that
        pickle each entry of a list. The exception is then the one that pickling it has raised, on other ranks :class:`fsgather.PeerFailedError`, and the
        next call has all ranks begin anew.
        """
        communicator: Optional[Communicator] = None
        began = time.time()
        _continue()
        try:
            communicator = self.communicator(site)
            result = communicator._call_like(like, name, *arguments, site=site, **how)
            self._has_worked = True
            return result
        except _errors.TimeoutError as error:
            if communicator is not None and not self._has_worked:
                self._begin_anew(communicator)
            raise _in_words_of_torch(error) from error.__cause__
        except _errors.PeerFailedError as error:
            if communicator is not None and error.__cause__ is not None:
                from fsgather._switch import elastic

                elastic.note_told(error.__cause__, error, began)
            if communicator is not None and error._has_no_object:
                self._begin_anew(communicator)
            if communicator is not None and error.__cause__ is not None:
                raise error.__cause__ from error
            raise

    def give_up_failed(self) -> None:
        """Gives the communicator up if it has failed: the next call has all ranks begin anew, as they all have to do this."""
        communicator = self._communicator
        if communicator is not None and communicator.failed and self.exists():
            self._begin_anew(communicator)

    def leave(self, failure: Optional[str]) -> None:
        """Gives the communicator up, without waiting for the other ranks; ``failure`` is what they are told, if this rank fails."""
        communicator, self._communicator, self._group = self._communicator, None, None
        if communicator is not None:
            communicator._member.leave(failure)

    def _begin_anew(self, failed: Communicator) -> None:
        described = groups.describe(self._process_group())
        with self._lock:
            if self._communicator is failed:
                self._communicator, self._group = None, described
        failed._member.leave(None)


def _continue() -> None:
    """The program has handled the failure that it was told before, if there was one."""
    elastic = sys.modules.get("fsgather._switch.elastic")
    if elastic is not None:
        elastic.forget()


def _in_words_of_torch(error: _errors.TimeoutError) -> _errors.TimeoutError:
    """Returns the same error, with the way out that jobs of torch have."""
    # Below is what the ranks that are waited for are doing.
    text, newline, below = str(error).partition("\n")
    for hint in ("set FSGATHER_TIMEOUT to wait longer", "give this call a longer time-out to wait longer"):
        if text.endswith(hint):
            error.args = (text[: -len(hint)] + TAKE_LONGER + newline + below,)
    return error
