"""What each rank of a job leaves in the store of the default group: who it is, and later what has become of it.

The ranks of a world that has formed know each other by its connections. Until then, marks show which ranks have fsgather, where
a rank is, and, on the same host, whether its process still exists.

Stores outlive process groups. A mark of an earlier process group therefore counts for no more than a name.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any, NamedTuple, Optional

from fsgather import _errors, _fsgather
from fsgather._switch import stores
from fsgather._workers import state_and_start

__all__ = ["LEFT", "Mark", "Marks", "boot", "clock", "text_of"]

_PREFIX = "fsgather/v1/mark"

LEFT = "had already left"

_GONE = "was lost (its process has ended)"


class Mark(NamedTuple):
    """One rank as it has presented itself."""

    host: str
    pid: int
    started: int
    """When the process began, by the clock of its host; 0 if unknown."""
    boot: str
    """The boot of its host."""
    namespace: str
    """The namespace of its process id."""
    written: float
    """When it was left, by the clock of its host."""
    problem: str = ""
    """Why nothing is replaced there, although that was requested."""
    end: str = ""
    """What has become of the rank."""
    end_number: int = 0
    """Counts the ends that were left in this store."""

    @classmethod
    def own(cls, problem: str) -> Mark:
        """Returns that of this process."""
        pid = os.getpid()
        found = state_and_start(pid)
        return cls(socket.gethostname(), pid, found[1] if found else 0, boot(), _namespace(), clock(), problem)

    def is_visible(self) -> bool:
        """Whether this process can see whether that one still exists."""
        return self.boot != "" and self.boot == boot() and self.namespace != "" and self.namespace == _namespace()

    def has_ended(self, since: float) -> bool:
        """Whether that process has certainly ended; for marks that were left after ``since``."""
        if not self.started or self.written < since or not self.is_visible():
            return False
        found = state_and_start(self.pid)
        if found is None:
            return not os.path.exists(f"/proc/{self.pid}") and os.path.exists("/proc/self/stat")
        state, started = found
        return started != self.started or state in "ZX"


class Marks:
    """The marks in the store of one default group."""

    def __init__(self, store: Any, rank: int, began: float) -> None:
        self._store = store
        self._rank = rank
        self._began = began
        self._ends = f"{_PREFIX}/ends"
        self._ends_before = int(store.add(self._ends, 0))
        self._own: Optional[Mark] = None

    def leave(self, problem: str) -> None:
        """Leaves the mark of this rank."""
        self._own = Mark.own(problem)
        self._put(self._rank, self._own)

    def leave_end(self, what: str) -> None:
        """Adds to it what becomes of this rank."""
        if self._own is not None and stores.is_there(self._store):
            self._add_end(self._rank, self._own, what)

    def of(self, rank: int) -> Optional[Mark]:
        """Returns the mark of a rank, if there is one."""
        text = stores.peek(self._store, f"{_PREFIX}/{rank}")
        return None if text is None else _parse(text)

    def check(self, leader: int, size: int) -> None:
        """Looks whether a rank has ended: each rank at the first one and those of its host, and the first one at all.

        Raises:
            fsgather.PeerFailedError: names it, and says what has become of it.
        """
        for rank in range(size) if self._rank == leader else {leader, *_ranks_of_this_host(self._rank, size)}:
            mark = self.of(rank) if rank != self._rank else None
            if mark is None:
                continue
            if not self._is_end(mark) and mark.has_ended(self._began):
                # Its own last words may have arrived just now.
                mark = self.of(rank) or mark
                if not self._is_end(mark):
                    mark = self._add_end(rank, mark, _GONE)
            if self._is_end(mark):
                raise _peer_failed(rank, mark)

    def _is_end(self, mark: Mark) -> bool:
        return mark.end_number > self._ends_before

    def _add_end(self, rank: int, mark: Mark, what: str) -> Mark:
        ended = mark._replace(end=what, end_number=int(self._store.add(self._ends, 1)))
        self._put(rank, ended)
        return ended

    def _put(self, rank: int, mark: Mark) -> None:
        stores.put(self._store, f"{_PREFIX}/{rank}", json.dumps(mark))


def clock() -> float:
    """Returns the time with which marks are compared."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def text_of(rank: int, mark: Optional[Mark]) -> str:
    """Returns a rank as messages name it."""
    if mark is None:
        return f"rank {rank}"
    return f"rank {rank} on {_fsgather.plain_line(mark.host)} (pid {mark.pid})"


def _peer_failed(rank: int, mark: Mark) -> _errors.PeerFailedError:
    """Returns the error for a rank that will not reach its first call."""
    what = _fsgather.plain_text(mark.end)
    meanwhile = "" if what == LEFT else " while computing"
    error = _errors.PeerFailedError(f"{text_of(rank, mark)} {what}{meanwhile} before its first call")
    error.rank, error.host, error.pid = rank, mark.host, mark.pid
    error.phase = "computing"
    error.reason = what
    error.is_transient = True
    return error


def _parse(text: str) -> Optional[Mark]:
    """Reads a mark; any process can write into a store of torch."""
    try:
        host, pid, started, boot, namespace, written, problem, end, number = json.loads(text)
        return Mark(str(host), int(pid), int(started), str(boot), str(namespace), float(written), str(problem), str(end), int(number))
    except (TypeError, ValueError, OverflowError):
        return None


def _ranks_of_this_host(own: int, size: int) -> range:
    """Returns the ranks of this host, as the launcher numbers them."""
    try:
        place, count = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return range(own, own + 1)
    return range(max(own - place, 0), min(own - place + count, size))


def boot() -> str:
    """Returns the id of this boot of the host; empty if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
