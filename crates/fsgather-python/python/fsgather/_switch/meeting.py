"""The communicators that stand behind torch's process groups: one for each, made by the first call.

They are forgotten when torch destroys the group, and do nothing in a forked child.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Optional

from fsgather import _errors
from fsgather._switch import groups, notices
from fsgather._switch.introduction import GRACE, Introduction, mark_presence

if TYPE_CHECKING:
    from fsgather import Communicator

__all__ = ["Membership", "communicator_of", "forget_destroyed", "of", "say_present"]

#: torch's default for process groups that do not tell theirs.
_DEFAULT_PATIENCE = 1800.0

_lock = threading.Lock()
_memberships: dict[int, Membership] = {}
_is_present = False
"""Whether the other ranks have been told that functions are replaced here."""


class Membership:
    """This process's part in one process group, as ranks of ours."""

    def __init__(self, group: groups.Group) -> None:
        self.ranks = group.ranks
        """The number in the world of each member."""
        self.rank = group.rank
        """This process's place among them."""
        self._process_group = weakref.ref(group.process_group)
        self._lock = threading.Lock()
        # The store and the process group are torch's to end: kept until the ranks have met.
        self._group: Optional[groups.Group] = group
        self._communicator: Optional[Communicator] = None

    def is_of(self, process_group: Any) -> bool:
        """Whether it belongs to this very object, which has not been destroyed."""
        return self._process_group() is process_group and groups.exists(process_group)

    def place(self, rank: int) -> Optional[int]:
        """The place in the group of a rank of the world."""
        return self.ranks.index(rank) if rank in self.ranks else None

    def communicator(self) -> Communicator:
        """The communicator, which the first call makes together with the other ranks.

        Threads that use the same process group take turns in making it. After that they may call at the same time, as
        far as all ranks do so in the same order.
        """
        with self._lock:
            if self._communicator is None:
                if self._group is None:
                    raise _errors.Error("the process group was destroyed while another thread made a call on it")
                self._communicator = _meet(self._group)
                self._group = None
            return self._communicator

    def call(self, name: str, *arguments: Any, like: str = "pickle", **how: Any) -> Any:
        """Makes a collective call in the manner of torch, where an object that cannot be handed in does no lasting harm.

        The functions that this stands for pickle their objects, and results are as theirs; ``like="pickles"`` is for those that
        pickle each entry of a list. The exception is then the one that pickling it has raised, on other ranks :class:`fsgather.PeerFailed`, and the
        next call has all ranks meet anew.
        """
        communicator = self.communicator()
        try:
            return getattr(communicator, name)(*arguments, _like=like, **how)
        except (_errors.PeerFailed, _errors.TooLarge) as error:
            if _is_only_the_object(error):
                self._start_anew(communicator)
            if error.__cause__ is not None:
                raise error.__cause__ from error
            raise

    def _start_anew(self, failed: Communicator) -> None:
        described = groups.describe(self._process_group())
        with self._lock:
            if self._communicator is failed:
                self._communicator, self._group = None, described
        failed._member.leave(None)

    def leave(self) -> None:
        """Gives the communicator up, without waiting for the other ranks."""
        communicator, self._communicator, self._group = self._communicator, None, None
        if communicator is not None:
            communicator._member.leave(None)


def _is_only_the_object(error: _errors.Error) -> bool:
    """Whether a rank could not hand in its object, and goes on otherwise. All ranks have the same answer."""
    if not isinstance(error, _errors.PeerFailed):
        return True
    was_raised = f"failed ({error.reason})" in str(error)
    return was_raised and str(error.phase).startswith("publishing")


def of(group: Any = None) -> Optional[Membership]:
    """The membership that belongs to a process group, or ``None`` where torch's own functions are right: see
    :func:`groups.describe`."""
    process_group = groups.current(group)
    if process_group is None:
        return None
    with _lock:
        known = _memberships.get(id(process_group))
    if known is not None and known.is_of(process_group):
        return known
    forget_destroyed()
    described = groups.describe(process_group)
    if described is None:
        return None
    with _lock:
        known = _memberships.get(id(process_group))
        if known is None or not known.is_of(process_group):
            known = _memberships[id(process_group)] = Membership(described)
    return known


def forget_destroyed() -> None:
    """Leaves the communicators whose process groups torch has destroyed."""
    with _lock:
        gone = {
            key: membership
            for key, membership in _memberships.items()
            if not groups.exists(membership._process_group())
        }
        for key in gone:
            del _memberships[key]
    for membership in gone.values():
        membership.leave()


def say_present() -> None:
    """Leaves word for the other ranks of the default group that functions are replaced here, too."""
    global _is_present
    world = groups.describe(None)
    if world is not None:
        _is_present = True
        mark_presence(world.world_store, world.ranks[world.rank])


def communicator_of(group: Any = None) -> Communicator:
    """The communicator of a process group, for programs that call fsgather themselves.

    Raises:
        ValueError: this process is not a member of the group, or torch knows no such group.
    """
    from fsgather import Communicator

    membership = of(group)
    if membership is not None:
        return membership.communicator()
    process_group = groups.current(group)
    if process_group is None or not groups.exists(process_group):
        raise ValueError(f"group={group!r} is no process group of torch.distributed that this process is a member of")
    if process_group.size() == 1:
        return Communicator.solo()
    raise _errors.Config(
        f"the ranks of process group {process_group!r} cannot meet through its store, as backend "
        f"{groups.backend(process_group)} has none; make an fsgather.Communicator and hand that over as the group"
    )


def _meet(group: groups.Group) -> Communicator:
    from fsgather import Communicator

    limit = group.timeout()
    patience = limit.total_seconds() if limit is not None else _DEFAULT_PATIENCE
    # Where the program itself calls us, ranks that have not come yet are late, and nothing else.
    own = Introduction.of(group, patience, GRACE if _is_present else patience)
    # With FSGATHER_TIMEOUT set, that counts.
    timeout = None if os.environ.get("FSGATHER_TIMEOUT") else patience
    size = len(group.ranks)
    if group.rank == 0:
        nonces = own.gather_hellos()
        answered = False

        def publish(record: bytes) -> None:
            nonlocal answered
            own.welcome(nonces, record)
            answered = True

        try:
            communicator = Communicator.meet(0, size, publish, _not_asked, timeout=timeout)
        except BaseException as error:
            if not answered:
                rank = group.ranks[0]
                own.refuse(nonces, f"rank {rank} cannot let others join: {type(error).__name__}: {error}")
            raise
    else:
        record = own.fetch_record()
        communicator = Communicator.meet(group.rank, size, _not_asked, lambda _seconds: record, timeout=timeout)
    if _is_present and group.ranks[group.rank] == 0:
        patched = os.environ.get("FSGATHER_PATCH", "").strip()
        why = f"FSGATHER_PATCH={patched}" if patched else f"backend {group.backend}"
        notices.once(f"object collectives of this job go through fsgather ({why}); the first is one of {size} ranks")
    return communicator


def _not_asked(*_arguments: Any) -> Any:
    raise AssertionError("rank 0 publishes its record, the others fetch it")


def _after_fork() -> None:
    # Torch's groups are of no use in a forked child, and these belong to the parent. The child may make its own.
    global _lock
    _lock = threading.Lock()
    # Kept alive: what ends a communicator belongs to the parent, too.
    _inherited.append(dict(_memberships))
    _memberships.clear()


_inherited: list[Any] = []

if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)
