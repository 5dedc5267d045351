"""The world that all ranks of a job make as soon as torch's default group exists: :class:`World`.

From then on each rank is told within seconds which rank is lost, has failed or has left, whether or not the program calls an object
function, and groups of these ranks are channels of it. A thread in the background brings it together. ``init_process_group`` waits for
that, but not for long: a rank that is killed before, alone on its host, is missed by none. If it does not form, object functions fail.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Callable, Optional

# The thread must hold no lock of an import when the program forks: everything is imported before it runs.
from fsgather import _errors, _fsgather
from fsgather._switch import groups, notices, stores
from fsgather._switch.ground import Ground
from fsgather._switch.groups import Group
from fsgather._switch.introduction import TAKE_LONGER, Introduction, listed
from fsgather._switch.marks import LEFT, Marks, text_of

__all__ = ["World"]

AT_ONCE = 5.0
"""How long ``init_process_group`` waits for the world, in seconds. It takes a fraction of one if all ranks are there."""

GRACE = 60.0
"""How long a first call waits for ranks in which nothing is replaced, in seconds."""

_LOOK_INTERVAL = 0.5
"""How often a rank looks for others that have ended, in seconds."""

NAME_AFTER = 10.0
"""After how many seconds ranks are named in which nothing is replaced."""

LAST_WORDS = 0.5
"""How long the end of a process waits for what it leaves in the store, in seconds."""


class World:
    """The world of all ranks, and how it forms."""

    def __init__(self, group: Group, marks: Marks) -> None:
        # The process group and its store are torch's to end, which a program may wait for: a later store at the same port is
        # another one. They are kept until the ranks have met, and by nothing that refers to itself.
        self._process_group = weakref.ref(group.process_group)
        self.marks: Optional[Marks] = marks
        self.ground: Optional[Ground] = None
        """The world, once it has formed."""
        self._error: Optional[Exception] = None
        self._ranks = group.ranks
        self._rank = group.rank
        self._timeout = group.timeout
        self._began = time.monotonic()
        self._are_absent_named = False
        self._ended = threading.Event()
        self._is_over = threading.Event()
        self._stop = _fsgather.Stop()
        self._lock = threading.Lock()
        own = Introduction(group.store, "world", group.ranks, group.rank)
        self._thread = threading.Thread(target=self._run, args=(own,), name="fsgather-world", daemon=True)

    def start(self) -> None:
        """Begins, in the background, and waits for a moment, in which most worlds form."""
        self._thread.start()
        self.wait(min(AT_ONCE, self._timeout))

    def wait(self, seconds: float) -> None:
        """Waits until it is known whether it forms, but not for longer."""
        self._ended.wait(seconds)

    def is_of_a_group(self) -> bool:
        """Whether its process group has not been destroyed."""
        return groups.exists(self._process_group())

    def await_ground(self, timeout: float) -> Ground:
        """Returns the world once it has formed; ``timeout`` is that of the process group that needs it.

        Raises:
            fsgather.Error: it does not form.
        """
        began = time.monotonic()
        while not self._ended.wait(_LOOK_INTERVAL):
            waited, marks = time.monotonic() - began, self.marks
            if waited < min(GRACE, timeout) or marks is None:
                continue
            absent = [rank for rank in self._ranks if marks.of(rank) is None]
            if absent:
                raise _errors.RendezvousError(
                    f"{listed(absent)} did not say hello within {waited:.0f} s, and fsgather has not replaced functions there: is "
                    "FSGATHER_PATCH set to the same on all ranks, fsgather installed, and TORCH_DEVICE_BACKEND_AUTOLOAD not 0?"
                )
            if waited >= timeout:
                raise _errors.TimeoutError(
                    f"the {len(self._ranks)} ranks of this job did not meet within {timeout:g} s, the time-out of the process group; "
                    f"{TAKE_LONGER}"
                )
        if self.ground is None:
            raise self._error or _errors.Error("the process group ends")
        return self.ground

    def let_go_of_store(self) -> None:
        """Uses the store no more, once the ranks have met."""
        if self._ended.is_set():
            self.marks = None

    def end(self, failure: Optional[str] = None) -> None:
        """Leaves the world, or gives it up; ``failure`` is what the other ranks are told. Waits for none of them."""
        is_forming = not self._ended.is_set()
        with self._lock:
            self._is_over.set()
            ground, self.ground = self.ground, None
        if ground is not None:
            ground.leave(failure)
            return
        if is_forming:
            self._stop.end("the process group ends")
            self._thread.join(LAST_WORDS)
        elif failure is None:
            # Others have ended before it could form, and perhaps the one with the store.
            return
        # There is no connection by which the others would learn of it.
        what = LEFT if failure is None else f"failed ({failure})"
        last = threading.Thread(target=self._leave_end, args=(what,), daemon=True)
        try:
            last.start()
        except RuntimeError:
            # Some versions of Python start no thread while they end.
            self._leave_end(what)
        else:
            last.join(LAST_WORDS)

    def _leave_end(self, what: str) -> None:
        try:
            if self.marks is not None:
                self.marks.leave_end(what)
        except RuntimeError:
            # The store has gone before.
            pass

    def _run(self, own: Introduction) -> None:
        try:
            # The thread is ours; the program has called this.
            ground = own.meet(self._wait, self._timeout, stop=self._stop, site="init_process_group")
            with self._lock:
                if not self._is_over.is_set():
                    self.ground = ground
                    return
            ground.leave(None)
        except Exception as error:
            # The next call raises it.
            notices.debug(f"the world of all ranks has not formed: {error!r}")
            self._error = error
        finally:
            self._ended.set()

    def _wait(self, is_so: Callable[[], bool], _absent: Callable[[], list[int]]) -> None:
        """Waits until something holds of the store: quickly at first, and rarely later, as no program waits for it then."""
        while True:
            waited = time.monotonic() - self._began
            pauses = (0.001, 0.05) if waited < 1 else (0.25, 0.5)
            until = time.monotonic() + _LOOK_INTERVAL * (1 if waited < NAME_AFTER else 4)
            if stores.wait_until(is_so, until, pauses, self._is_over.wait):
                return
            marks = self.marks
            if self._is_over.is_set() or marks is None:
                raise _errors.Error("the process group ends")
            if waited > self._timeout:
                raise _errors.RendezvousError(f"the {len(self._ranks)} ranks of this job did not meet within {waited:.0f} s")
            marks.check(self._ranks[0], len(self._ranks))
            if waited >= NAME_AFTER and not self._are_absent_named:
                self._are_absent_named = True
                self._name_absent(marks)

    def _name_absent(self, marks: Marks) -> None:
        """Names the ranks in which nothing is replaced, on the first of the others."""
        if any(marks.of(rank) is not None for rank in self._ranks[: self._rank]):
            return
        found = {rank: marks.of(rank) for rank in self._ranks[:1000]}
        absent = [rank for rank, mark in found.items() if mark is None]
        if absent:
            notices.once(
                f"nothing is replaced on {listed(absent)}, as far as is known {NAME_AFTER:.0f} s after init_process_group; is "
                "FSGATHER_PATCH set to the same on all ranks, fsgather installed there, and TORCH_DEVICE_BACKEND_AUTOLOAD not 0? "
                "Object functions will fail"
            )
        for rank, mark in found.items():
            if mark is not None and mark.problem:
                notices.once(f"nothing is replaced on {text_of(rank, mark)}: {_fsgather.plain_text(mark.problem)}")
