"""The world that all ranks of a job make as soon as torch's default group is there: :class:`Formation`.

From then on each of them is told within seconds who is lost, has failed or has left, whether or not anybody has called an
object function. A thread in the background brings it together. ``init_process_group`` waits for it, but not for long: who is killed
before it is there, alone on its host, is missed by nobody. Where nothing comes of it process groups meet by themselves when they are
first used.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Optional

# The thread must hold no lock of an import when the program forks: everything is imported before it runs.
from fsgather import _errors, _fsgather
from fsgather._communicator import Communicator
from fsgather._switch import groups, notices
from fsgather._switch.ground import Ground
from fsgather._switch.groups import Group
from fsgather._switch.introduction import Introduction, Publishing, Record
from fsgather._switch.lookout import Lookout
from fsgather._switch.presence import LEFT, Presence, text_of

__all__ = ["Formation"]

#: How long ``init_process_group``, and a first call soon after it, wait for the world, in seconds. It takes a fraction of one where all
#: ranks are there.
AT_ONCE = 5.0

#: After how many seconds ranks are named in which nothing is replaced.
NAME_AFTER = 10.0

#: How long the end of a process waits for what it leaves behind in the background, in seconds.
LAST_WORDS = 0.5


class Formation:
    """The world of all ranks, and how it comes about."""

    def __init__(self, group: Group, presence: Presence, group_timeout: float, timeout: Optional[float]) -> None:
        # The process group and its store are torch's to end, which a program may wait for: a later store at the same port is
        # another one. They are kept until the ranks have met, and by nothing that refers to itself.
        self._process_group = weakref.ref(group.process_group)
        self._presence: Optional[Presence] = presence
        self.ground: Optional[Ground] = None
        """The world, once it has formed."""
        self._group_timeout = group_timeout
        self._timeout = timeout
        self._began = time.monotonic()
        self._are_absent_named = False
        self._rank = group.rank
        self._ranks = group.ranks
        self._ended = threading.Event()
        self._is_over = threading.Event()
        self._stop = _fsgather.Stop()
        self._lock = threading.Lock()
        lookout = Lookout(group, presence, None, on_look=self._look)
        own = Introduction(group, lookout, group_timeout, group_timeout, {}, prefix="world/", pause=self._is_over.wait)
        self._thread = threading.Thread(target=self._run, args=(own,), name="fsgather-world", daemon=True)

    def start(self) -> None:
        """Begins, in the background, and waits for a moment, in which most worlds are made."""
        self._thread.start()
        self.wait(min(AT_ONCE, self._group_timeout))

    def is_of_a_group(self) -> bool:
        """Whether its process group has not been destroyed."""
        return groups.exists(self._process_group())

    def let_go_of_store(self) -> None:
        """Uses the store no more, once the ranks have met."""
        if self.has_ended():
            self._presence = None

    def has_ended(self) -> bool:
        """Whether it is known what has come of it."""
        return self._ended.is_set()

    def is_young(self) -> bool:
        """Whether it is not known yet, and may soon be."""
        return not self.has_ended() and time.monotonic() < self._began + AT_ONCE

    def wait(self, seconds: float) -> None:
        """Waits until that is known, but not for long."""
        self._ended.wait(seconds)

    def end(self, failure: Optional[str] = None) -> None:
        """Leaves the world, or gives it up; ``failure`` says what this process ends by. Waits for nobody."""
        with self._lock:
            self._is_over.set()
            ground, self.ground = self.ground, None
        if ground is not None:
            ground.leave(failure)
            return
        is_forming = not self.has_ended()
        if is_forming:
            self._stop.end("the process group ends")
            self._thread.join(LAST_WORDS)
        if not is_forming and failure is None:
            # Others have ended before it could form, and perhaps the one with the store.
            return
        # There is no connection by which the others would learn of it.
        what = LEFT if failure is None else f"failed ({failure})"
        last = threading.Thread(target=self._say_end, args=(what,), daemon=True)
        try:
            last.start()
        except RuntimeError:
            # Some versions of Python start no thread while they end.
            self._say_end(what)
        else:
            last.join(LAST_WORDS)

    def _say_end(self, what: str) -> None:
        try:
            if self._presence is not None:
                self._presence.say_own_end(what)
        except RuntimeError:
            # The store has gone before.
            pass

    def _run(self, own: Introduction) -> None:
        try:
            ground = self._meet(own)
            with self._lock:
                if not self._is_over.is_set():
                    self.ground = ground
                    return
            ground.leave(None)
        except Exception as error:
            # Process groups meet by themselves, and tell what they meet.
            notices.debug(f"the world of all ranks has not formed: {error!r}")
        finally:
            self._ended.set()

    def _meet(self, own: Introduction) -> Ground:
        group = own.group
        size = len(group.ranks)
        # The thread is ours; this is what the program has called.
        how = {"timeout": self._timeout, "_set_up_later": True, "_stop": self._stop, "_site": "init_process_group"}
        if group.rank == 0:
            hellos = own.gather_hellos(frozenset())
            name = own.nonce
            publish = Publishing(own, hellos, 0)
            try:
                communicator = Communicator.meet(0, size, publish, _not_asked, **how)
            except _errors.Error as error:
                if not publish.has_answered:
                    own.refuse_all(hellos, error)
                raise
            finally:
                publish.end()
        else:
            welcome = own.fetch_welcome(frozenset())
            assert isinstance(welcome, Record)
            name, record = welcome.ground, welcome.record
            communicator = Communicator.meet(group.rank, size, _not_asked, lambda _seconds: record, **how)
        return Ground(name, group.ranks, communicator)

    def _look(self) -> None:
        """Looks around while others are waited for: the first rank that is there, for those in which nothing is replaced."""
        if self._is_over.is_set():
            raise _errors.Error("the process group ends")
        if self._are_absent_named or time.monotonic() < self._began + NAME_AFTER:
            return
        self._are_absent_named = True
        presence = self._presence
        if presence is None or any(presence.of(rank) is not None for rank in self._ranks[: self._rank]):
            return
        marks = {rank: presence.of(rank) for rank in self._ranks[:1000]}
        absent = [rank for rank, mark in marks.items() if mark is None]
        if absent:
            listed = ", ".join(map(str, absent[:16])) + (f" and {len(absent) - 16} more" if len(absent) > 16 else "")
            notices.once(
                f"nothing is replaced on rank{'s' * (len(absent) > 1)} {listed}, as far as is known "
                f"{NAME_AFTER:.0f} s after init_process_group; is FSGATHER_PATCH set to the same on all ranks, fsgather "
                "installed there, and TORCH_DEVICE_BACKEND_AUTOLOAD not 0? Object functions will fail"
            )
        for rank, mark in marks.items():
            if mark is not None and mark.problem:
                notices.once(f"nothing is replaced on {text_of(rank, mark)}: {_fsgather.plain_text(mark.problem)}")


def _not_asked(*_arguments: object) -> bytes:
    raise AssertionError("rank 0 publishes its record, the others fetch it")
