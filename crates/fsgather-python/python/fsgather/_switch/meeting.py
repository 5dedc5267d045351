"""The communicators that stand behind torch's process groups: one for each, made by the first call.

They are forgotten when torch destroys the group, and do nothing in a forked child.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence

from fsgather import _errors, _leaving, _workers
from fsgather._switch import groups, notices
from fsgather._switch.ground import Ground
from fsgather._switch.introduction import GRACE, TAKE_LONGER, Hello, Introduction, OnGround, Publishing
from fsgather._switch.lookout import Arriving, Lookout
from fsgather._switch.presence import Presence

if TYPE_CHECKING:
    from fsgather import Communicator
    from fsgather._switch.formation import Formation

__all__ = ["Membership", "begin", "communicator_of", "forget_destroyed", "give_up_failed", "of"]

#: torch's default for process groups that do not tell theirs.
_DEFAULT_TIMEOUT = 1800.0

_lock = threading.Lock()
_memberships: dict[int, Membership] = {}
_presence: Optional[Presence] = None
"""By which ranks of the default group know of each other, if that was made when functions had been replaced here."""
_formation: Optional[Formation] = None
"""The world of all ranks of the default group."""
_was_in_a_job = False
"""Whether there was a default group in this process when functions had been replaced."""


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
        self._ground: Optional[Ground] = None
        self._meetings = 0
        """How often its ranks have met, or have found that they cannot."""
        self._arriving: Optional[Arriving] = None
        self._answered: dict[int, str] = {}

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
                before = self._ground
                try:
                    self._ground, self._communicator = self._meet(self._group)
                    self._group = None
                except _errors.Error:
                    self._begin_anew()
                    raise
                self._begin_anew()
                _give_back([] if before is None else [before])
            return self._communicator

    def call(self, name: str, *arguments: Any, like: str = "pickle", **how: Any) -> Any:
        """Makes a collective call in the manner of torch, where an object that cannot be handed in does no lasting harm.

        The functions that this stands for pickle their objects, and results are as theirs; ``like="pickles"`` is for those that
        pickle each entry of a list. The exception is then the one that pickling it has raised, on other ranks :class:`fsgather.PeerFailed`, and the
        next call has all ranks meet anew.
        """
        communicator: Optional[Communicator] = None
        began = time.time()
        _go_on()
        try:
            communicator = self.communicator()
            return communicator._call_like(like, name, *arguments, **how)
        except _errors.Timeout as error:
            raise _in_words_of_torch(error) from error.__cause__
        except (_errors.PeerFailed, _errors.TooLarge) as error:
            if communicator is not None and error.__cause__ is not None and _was_in_a_job:
                from fsgather._switch import elastic

                elastic.note_told(error.__cause__, error, began)
            if communicator is not None and _is_only_the_object(error):
                self._start_anew(communicator)
            if communicator is not None and error.__cause__ is not None:
                raise error.__cause__ from error
            raise

    def _start_anew(self, failed: Communicator) -> None:
        described = groups.describe(self._process_group())
        with self._lock:
            if self._communicator is failed:
                self._communicator, self._group = None, described
        failed._member.leave(None)

    def give_up_failed(self) -> None:
        """Gives the communicator up if it has failed: the next call has all ranks meet anew, as they all have to do this."""
        communicator = self._communicator
        if communicator is not None and communicator.failed and groups.exists(self._process_group()):
            self._start_anew(communicator)

    def leave(self, failure: Optional[str]) -> None:
        """Gives the communicator up, without waiting for the other ranks, and tells them by what failure if it was one."""
        communicator, self._communicator, self._group = self._communicator, None, None
        ground, self._ground = self._ground, None
        self._arriving = None
        if communicator is not None:
            communicator._member.leave(failure)
        _give_back([] if ground is None else [ground])

    def _begin_anew(self) -> None:
        """Ends this meeting: a later one is another."""
        self._meetings += 1
        self._arriving = None

    def _meet(self, group: groups.Group) -> tuple[Ground, Communicator]:
        limit = group.timeout()
        group_timeout = limit.total_seconds() if limit is not None else _DEFAULT_TIMEOUT
        if self._arriving is None:
            self._arriving = Arriving(_number(group.name, self._meetings), group_timeout, "torch.distributed")
        arriving, formation = self._arriving, _formation
        lookout = Lookout(group, _presence, formation, arriving)
        # Where the program itself calls us, ranks that have not come yet are late, and nothing else.
        own = Introduction(group, lookout, group_timeout, GRACE if _presence is not None else group_timeout, self._answered)
        try:
            lookout.await_world()
            lookout.look_at_world()
            ground, number = _meet_at_store(own, group_timeout)
        except RuntimeError as error:
            # What torch raises where its store has gone.
            raise lookout.explain(error) from error
        # So that it does not look as if this rank were still to come.
        lookout.say_come()
        # With FSGATHER_TIMEOUT set, that counts.
        timeout = None if os.environ.get("FSGATHER_TIMEOUT") else group_timeout
        communicator = ground.channel(group.ranks, number, timeout)
        if _presence is not None and group.ranks[group.rank] == 0:
            patched = os.environ.get("FSGATHER_PATCH", "").strip()
            why = f"FSGATHER_PATCH={patched}" if patched else f"backend {group.backend}"
            size = len(group.ranks)
            notices.first(f"object collectives of this job go through fsgather ({why}): {size} ranks")
        return ground, communicator


def _go_on() -> None:
    """The program has got over what it was told before, if that was something."""
    elastic = sys.modules.get("fsgather._switch.elastic")
    if elastic is not None:
        elastic.forget()


def _in_words_of_torch(error: _errors.Timeout) -> _errors.Timeout:
    """The same error, with the way out that jobs of torch have."""
    # What the ranks that are waited for are doing stands below.
    text, newline, below = str(error).partition("\n")
    for hint in ("set FSGATHER_TIMEOUT to wait longer", "give this call a longer time-out to wait longer"):
        if text.endswith(hint) and not os.environ.get("FSGATHER_TIMEOUT"):
            error.args = (text[: -len(hint)] + TAKE_LONGER + newline + below,)
    return error


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
    _workers.check_group(process_group, described.ranks[described.rank])
    with _lock:
        known = _memberships.get(id(process_group))
        if known is None or not known.is_of(process_group):
            known = _memberships[id(process_group)] = Membership(described)
    return known


def give_up_failed() -> None:
    """Gives up what has failed of all process groups, for programs that get over it."""
    with _lock:
        known = list(_memberships.values())
    for membership in known:
        membership.give_up_failed()


def begin(began: float, problem: str) -> None:
    """Tells the other ranks of the default group, which has just been made, that functions are replaced here, too, or why they
    are not; and has them make a world, in the background. ``began`` is when torch began to make the group."""
    global _presence, _formation, _was_in_a_job
    forget_destroyed()
    world = groups.describe(None)
    if world is None:
        return
    _workers.leave_mark(world.ranks[world.rank])
    presence = Presence(world.world_store, world.ranks[world.rank], began)
    presence.say(problem)
    _presence = presence
    _was_in_a_job = True
    if problem:
        return
    from fsgather._switch.formation import Formation

    limit = world.timeout()
    group_timeout = limit.total_seconds() if limit is not None else _DEFAULT_TIMEOUT
    timeout = None if os.environ.get("FSGATHER_TIMEOUT") else group_timeout
    formation = Formation(world, presence, group_timeout, timeout)
    _formation = formation
    formation.start()


def tell_of_never_imported(wanted: Iterable[Sequence[str]]) -> None:
    """Says at the end of a rank which modules its program has not imported, of each group of these not one: a name that is misspelt, or of
    something else than the job uses, replaces nothing. Processes that were in no job need none of them, and what ends by an exception has
    something else to say."""
    missing = sorted({" or ".join(names) for names in wanted if not any(name in sys.modules for name in names)})
    if missing and _was_in_a_job and _leaving.ended_by() is None:
        notices.warn(f"FSGATHER_PATCH: this job has never imported {', '.join(missing)}, so nothing of that was replaced")


def failing() -> Optional[str]:
    """What the program fails by at this moment: many destroy the process group in a ``finally``, which an exception goes through."""
    error = sys.exc_info()[1]
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return None
    from fsgather._switch import elastic

    elastic.note(error)
    return _leaving.text(error)


def forget_destroyed(failure: Optional[str] = None) -> None:
    """Leaves the communicators whose process groups torch has destroyed; ``failure`` says what the program did that by, if by one."""
    global _presence, _formation
    formation = None
    with _lock:
        gone = {
            key: membership
            for key, membership in _memberships.items()
            if not groups.exists(membership._process_group())
        }
        for key in gone:
            del _memberships[key]
        if _formation is not None and not _formation.is_of_a_group():
            formation, _formation, _presence = _formation, None, None
    if formation is not None:
        # Leaving may take a while, and the store is to go now: ranks that make another one at its port would find this one.
        formation.let_go_of_store()
    for membership in gone.values():
        membership.leave(failure)
    if formation is not None:
        formation.end(failure)


_grounds: list[Ground] = []
"""Worlds of process groups that had to meet by themselves."""


def _give_back(grounds: list[Ground]) -> None:
    """Notes that a process group has no part of these any more; those of which none has are left."""
    with _lock:
        for ground in grounds:
            ground.users -= 1
        unused = [ground for ground in _grounds if ground.users == 0]
        for ground in unused:
            _grounds.remove(ground)
    for ground in unused:
        ground.leave(None)


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


def _number(name: str, meetings: int) -> int:
    """What ranks that wait at a meeting call it: the same on all, without a word between them."""
    digest = hashlib.sha256(f"{name} {meetings}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _meet_at_store(own: Introduction, group_timeout: float) -> tuple[Ground, int]:
    """Has the ranks of a group meet; the world that it gets a part of, and which part."""
    ranks = own.group.ranks
    with _lock:
        all_ranks = _formation.ground if _formation is not None else None
        known = [*_grounds, *([] if all_ranks is None else [all_ranks])]
        offered = {ground.name: ground for ground in known if ground.can_carry(ranks)}
        for ground in offered.values():
            ground.users += 1
    chosen: Optional[Ground] = None
    try:
        chosen, number = _agree(own, offered, group_timeout)
    finally:
        _give_back([ground for ground in offered.values() if ground is not chosen])
    return chosen, number


def _agree(own: Introduction, offered: dict[str, Ground], group_timeout: float) -> tuple[Ground, int]:
    group = own.group
    if group.rank != 0:
        welcome = own.fetch_welcome(frozenset(offered))
        if isinstance(welcome, OnGround):
            return offered[welcome.ground], welcome.number
        record = welcome.record
        return _join(group, welcome.ground, group_timeout, lambda _seconds: record), welcome.number
    hellos = own.gather_hellos(frozenset(offered))
    common = frozenset(offered).intersection(*(hello.grounds for hello in hellos))
    number = secrets.randbits(62)
    if common:
        # The world of all ranks, if it is one of them.
        name = max(common, key=lambda name: len(offered[name].ranks))
        own.welcome(hellos, OnGround(name, number))
        return offered[name], number
    return _found(own, hellos, number, group_timeout), number


def _found(own: Introduction, hellos: list[Hello], number: int, group_timeout: float) -> Ground:
    """On rank 0: lets the others into a new world."""
    publish = Publishing(own, hellos, number)
    try:
        return _join(own.group, own.nonce, group_timeout, publish=publish)
    except BaseException as error:
        if not publish.has_answered:
            rank = own.group.ranks[0]
            said = f"rank {rank} cannot let others join: {type(error).__name__}: {error}"
            own.refuse_all(hellos, _errors.Rendezvous(said))
        raise
    finally:
        publish.end()


def _join(group: groups.Group, name: str, group_timeout: float, fetch: Any = None, publish: Any = None) -> Ground:
    from fsgather import Communicator

    timeout = None if os.environ.get("FSGATHER_TIMEOUT") else group_timeout
    # Whoever reads what goes wrong there knows its ranks by their numbers in the job.
    how = {"timeout": timeout, "_set_up_later": True, "_numbers": group.ranks}
    communicator = Communicator.meet(group.rank, len(group.ranks), publish or _not_asked, fetch or _not_asked, **how)
    ground = Ground(name, group.ranks, communicator)
    ground.users = 1
    with _lock:
        _grounds.append(ground)
    return ground


def _not_asked(*_arguments: Any) -> Any:
    raise AssertionError("rank 0 publishes its record, the others fetch it")


def end_of_process() -> None:
    """Leaves the world of all ranks, and says why if this process ends by an exception, to the launcher as well. Once."""
    atexit.unregister(end_of_process)
    error = _leaving.ended_by()
    formation = _formation
    if formation is None and (error is None or not _was_in_a_job):
        return
    from fsgather._switch import elastic

    # Before anybody can hear of it.
    if error is None:
        elastic.leave_word_of_end()
    elif _was_in_a_job:
        elastic.leave_word(error)
    if formation is None:
        return
    if error is None:
        formation.end(None)
        return
    words, ground = _leaving.last_words(error, os.environ.get("RANK")), formation.ground
    if ground is not None:
        from fsgather._switch.blame import name_lost

        known = name_lost(error, ground)
        # By that others know that this rank is not the first.
        words += f"; {known}" if known else ""
    formation.end(words)


def _after_fork() -> None:
    # Torch's groups are of no use in a forked child, and these belong to the parent. The child may make its own.
    global _lock, _presence, _formation, _was_in_a_job
    _lock = threading.Lock()
    # Kept alive: what ends a communicator belongs to the parent, too.
    _inherited.append((dict(_memberships), list(_grounds), _formation, _presence))
    _memberships.clear()
    _grounds.clear()
    _formation = _presence = None
    _was_in_a_job = False


_inherited: list[Any] = []

if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(end_of_process)
