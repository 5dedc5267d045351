"""The communicators behind torch's process groups, and the worlds in which they are: from the default group to the end of the process.

They are left when torch destroys the group, and do nothing in a forked child.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from fsgather import _errors, _leaving, _workers
from fsgather._sites import caller
from fsgather._switch import groups, notices
from fsgather._switch.introduction import refusal
from fsgather._switch.marks import Marks
from fsgather._switch.membership import Membership

if TYPE_CHECKING:
    from fsgather import Communicator
    from fsgather._switch.ground import Ground
    from fsgather._switch.own_world import OwnWorld
    from fsgather._switch.world import World

__all__ = ["Membership", "begin", "communicator_of", "forget_destroyed", "give_up_failed", "of", "refuse"]

_lock = threading.Lock()
_memberships: dict[int, Membership] = {}
_world: Optional[World] = None
"""The world of all ranks of the default group, if that was made when functions had been replaced here."""
_own_worlds: dict[tuple[int, tuple[int, ...]], OwnWorld] = {}
_was_in_a_job = False
"""Whether there was a default group in this process when functions had been replaced."""


def of(group: Any = None) -> Optional[Membership]:
    """Returns the membership that belongs to a process group, or ``None`` if torch's own functions are right: see
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
            known = _memberships[id(process_group)] = Membership(described, _find_ground)
    return known


def _own_world(group: groups.Group) -> OwnWorld:
    """Returns the world of its own of a group."""
    from fsgather._switch.own_world import OwnWorld

    key = (id(group.home), group.ranks)
    with _lock:
        if key not in _own_worlds:
            _own_worlds[key] = OwnWorld(group)
        return _own_worlds[key]


def _find_ground(group: groups.Group, site: str, can_be_refused: bool) -> Ground:
    """Returns the world of which a group becomes a channel: that of all ranks, or one of its own."""
    world = _world if group.is_of_world else None
    try:
        ground = all_ranks = None if world is None else world.await_ground(group.timeout)
        if ground is None or not ground.can_carry(group.ranks):
            ground = _own_world(group).ground_for(group, all_ranks, site, can_be_refused)
    except RuntimeError as error:
        if isinstance(error, _errors.Error):
            raise
        # Torch raises this if its store is gone.
        raise _errors.RendezvousError(
            f"the store of process group {group.name!r}, through which its ranks meet, is gone ({error}): the process "
            "that has it, in most jobs rank 0 or the launcher, has ended"
        ) from None
    if world is not None and group.ranks[group.rank] == 0:
        patched = os.environ.get("FSGATHER_PATCH", "").strip()
        why = f"FSGATHER_PATCH={patched}" if patched else f"backend {group.backend}"
        notices.first(f"object collectives of this job go through fsgather ({why}): {len(group.ranks)} ranks")
    return ground


def give_up_failed() -> None:
    """Gives up what has failed of all process groups, for programs that handle it."""
    with _lock:
        known = list(_memberships.values())
    for membership in known:
        membership.give_up_failed()


def begin(began: float, problem: str) -> None:
    """Leaves word for the other ranks of the default group, which has just been made, that functions are replaced here, too, or why they
    are not; and has them make a world, in the background. ``began`` is when torch began to make the group."""
    global _world, _was_in_a_job
    forget_destroyed()
    group = groups.describe(None)
    if group is None:
        return
    rank = group.ranks[group.rank]
    _workers.leave_mark(rank)
    marks = Marks(group.store, rank, began)
    marks.leave(problem)
    _was_in_a_job = True
    if problem:
        return
    from fsgather._switch.world import World

    _world = World(group, marks)
    _world.start()


def tell_of_never_imported(wanted: Iterable[Sequence[str]]) -> None:
    """Names at the end of a rank the modules that its program has not imported, of each group of these not one: a name that is misspelt, or of
    something else than the job uses, replaces nothing. Processes that were in no job need none of them, and what ends by an exception has
    something else to say."""
    missing = sorted({" or ".join(names) for names in wanted if not any(name in sys.modules for name in names)})
    if missing and _was_in_a_job and _leaving.ended_by() is None:
        notices.warn(f"FSGATHER_PATCH: this job has never imported {', '.join(missing)}, so nothing of that was replaced")


def last_words() -> Optional[str]:
    """Returns what the other ranks are told when the default group is destroyed, if this rank fails. Many programs destroy it in a
    ``finally``, which an exception passes through, or after they have caught one.

    Logs the rank that was lost, if the failure is that of one of torch's own collectives.
    """
    error = sys.exc_info()[1]
    if error is None or (isinstance(error, SystemExit) and not error.code):
        _name_lost(None)
        return None
    from fsgather._switch import elastic

    elastic.note(error)
    known = _name_lost(error)
    return _leaving.text(error) + (f"; {known}" if known else "")


def _name_lost(error: Optional[BaseException]) -> Optional[str]:
    from fsgather._switch import blame

    ground = None if _world is None else _world.ground
    return None if ground is None else blame.name_lost(error, ground)


def forget_destroyed(failure: Optional[str] = None) -> None:
    """Leaves the communicators whose process groups torch has destroyed; ``failure`` is what the other ranks are told, if this one fails."""
    global _world
    world = None
    with _lock:
        memberships = [key for key, membership in _memberships.items() if not membership.exists()]
        own_worlds = [key for key, own in _own_worlds.items() if not own.is_of_a_group()]
        gone: list[Union[Membership, OwnWorld]] = [*map(_memberships.pop, memberships), *map(_own_worlds.pop, own_worlds)]
        if _world is not None and not _world.is_of_a_group():
            world, _world = _world, None
    if world is not None:
        # Leaving may take a while, and the store must go now: ranks that make another one at its port would find this one.
        world.let_go_of_store()
    for each in gone:
        each.leave(failure)
    if world is not None:
        world.end(failure)


def refuse(problem: str) -> None:
    """Has the ranks of the default group raise the error with which this rank refuses a call without a group, instead of waiting for it."""
    membership = of(None)
    if membership is None:
        return
    if _have_met(membership):
        # The error of this rank matters more than one of the others.
        with contextlib.suppress(_errors.Error):
            membership.communicator(caller()).all_gather(problem)
    else:
        group = groups.describe(None)
        if group is not None:
            _own_world(group).refuse(group, problem)


def _have_met(membership: Membership) -> bool:
    """Whether the ranks of the default group need no meeting of a first call, where a rank could leave a refusal."""
    return membership.has_communicator or _world is not None


def communicator_of(group: Any = None, can_be_refused: bool = False) -> Communicator:
    """Returns the communicator of a process group, for programs that call fsgather themselves.

    ``can_be_refused`` is for the first call without a group, which all ranks make.

    Raises:
        fsgather.ConfigError: ``can_be_refused``, and another rank has refused.
        ValueError: this process is not a member of the group, or torch knows no such group.
    """
    from fsgather import Communicator

    membership = of(group)
    if membership is not None:
        have_met = _have_met(membership)
        communicator = membership.communicator(caller(), can_be_refused)
        if can_be_refused and have_met:
            refused = [(rank, problem) for rank, problem in zip(membership.ranks, communicator.all_gather("")) if problem]
            if refused:
                raise _errors.ConfigError(refusal(*refused[0]))
        return communicator
    process_group = groups.current(group)
    if process_group is None or not groups.exists(process_group):
        raise ValueError(f"group={group!r} is no process group of torch.distributed that this process is a member of")
    if process_group.size() == 1:
        return Communicator.solo()
    raise _errors.ConfigError(
        f"the ranks of process group {process_group!r} cannot meet through its store, as backend "
        f"{groups.backend(process_group)} has none; make an fsgather.Communicator and hand that over as the group"
    )


def end_of_process() -> None:
    """Leaves the world of all ranks; if this process ends by an exception, the other ranks and the launcher are told. Once."""
    atexit.unregister(end_of_process)
    error = _leaving.ended_by()
    world = _world
    if world is None and (error is None or not _was_in_a_job):
        return
    from fsgather._switch import elastic

    # Before another rank can hear of it.
    if error is None:
        elastic.leave_word_of_end()
    elif _was_in_a_job:
        elastic.leave_word(error)
    if world is None:
        return
    known = _name_lost(error)
    if error is None:
        world.end(None)
        return
    # By what it knows of another one the others see that this rank is not the first.
    words = _leaving.last_words(error, os.environ.get("RANK"))
    world.end(words + (f"; {known}" if known else ""))


def _after_fork() -> None:
    # Torch's groups are of no use in a forked child, and these belong to the parent. The child may make its own.
    global _lock, _world, _was_in_a_job
    _lock = threading.Lock()
    # Kept alive: what ends a communicator belongs to the parent, too.
    _inherited.append((dict(_memberships), dict(_own_worlds), _world))
    _memberships.clear()
    _own_worlds.clear()
    _world = None
    _was_in_a_job = False


_inherited: list[Any] = []

if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(end_of_process)
