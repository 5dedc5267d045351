"""What the ranks of a job leave word of in the store of its default group as soon as that exists: :class:`Presence`.

Each leaves a :class:`Mark`: which process it is, and whether it was asked to replace something and cannot. By it the others
know where a rank is that they wait for, and, on the same host, whether it is still there. That counts until the ranks have
met; from then on their connections tell.

Stores outlive process groups, and keep what earlier ones have written. So whoever takes a process for ended by its mark
believes only those that were left since this process group was made.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any, NamedTuple, Optional

from fsgather import _errors, _fsgather
from fsgather._switch import stores

__all__ = ["Mark", "Presence", "peer_failed", "text_of"]

_PREFIX = "fsgather/v1/presence"

#: What is said of a process that is not there any more, in the words of the library.
GONE = "was lost (its process has ended)"

LEFT = "had already left"


class Mark(NamedTuple):
    """One rank as it has presented itself."""

    host: str
    pid: int
    started: int
    """When the process began, by the clock of its host; 0 if that is not known."""
    boot: str
    """Which run of which host."""
    namespace: str
    """The numbers of whose processes these are."""
    written: float
    """When it was left, by the clock of its host."""
    time: float
    """The same for people, in seconds since 1970."""
    problem: str = ""
    """Why nothing is replaced there, although that was asked for."""

    @classmethod
    def own(cls, problem: str) -> Mark:
        """That of this process."""
        pid = os.getpid()
        found = _state_and_start(pid)
        return cls(socket.gethostname(), pid, found[1] if found else 0, _boot(), _namespace(), _clock(), time.time(), problem)

    def is_seen_from_here(self) -> bool:
        """Whether this process can look whether that one is still there."""
        return self.boot != "" and self.boot == _boot() and self.namespace != "" and self.namespace == _namespace()

    def has_ended(self, since: float) -> bool:
        """Whether that process is certainly not there any more; for marks that were left after ``since``."""
        if not self.started or self.written < since or not self.is_seen_from_here():
            return False
        found = _state_and_start(self.pid)
        if found is None:
            return not os.path.exists(f"/proc/{self.pid}") and os.path.exists("/proc/self/stat")
        state, started = found
        return started != self.started or state in "ZX"

    def since(self) -> str:
        """When it was left, as people say it."""
        return time.strftime("%H:%M:%S", time.localtime(self.time))

    def is_stopped(self) -> bool:
        """Whether that process has been stopped by a signal, as far as can be seen from here."""
        found = _state_and_start(self.pid) if self.is_seen_from_here() else None
        return found is not None and found[1] == self.started and found[0] in "Tt"


class Presence:
    """What ranks have left word of in the store of one default group."""

    def __init__(self, store: Any, rank: int, began: float) -> None:
        self._store = store
        self._rank = rank
        self._began = began
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._ends = f"{_PREFIX}/ends/{attempt}"
        self._ends_before = int(store.add(self._ends, 0))
        self._own: Optional[Mark] = None

    @classmethod
    def clock(cls) -> float:
        """What marks are compared with."""
        return _clock()

    def say(self, problem: str) -> None:
        """Leaves this rank's mark."""
        self._own = Mark.own(problem)
        stores.put(self._store, f"{_PREFIX}/{self._rank}", json.dumps(self._own))

    def of(self, rank: int) -> Optional[Mark]:
        """The mark of a rank, if it has left one."""
        text = stores.peek(self._store, f"{_PREFIX}/{rank}")
        return None if text is None else _mark(text)

    def say_end(self, rank: int, mark: Mark, what: str) -> None:
        """Leaves word of what has become of a rank."""
        number = int(self._store.add(self._ends, 1))
        stores.put(self._store, f"{self._ends}/{number}", json.dumps([rank, *mark, what]))

    def say_own_end(self, what: str) -> None:
        """The same of this rank."""
        if self._own is not None and stores.is_there(self._store):
            self.say_end(self._rank, self._own, what)

    def look_for_ended(self, ranks: list[int]) -> None:
        """Looks whether one of these ranks, which have not come, will never come.

        Raises:
            fsgather.PeerFailed: names the first of them, and says what has become of it.
        """
        self._look_at_ends(ranks)
        for rank in ranks:
            mark = self.of(rank)
            if mark is not None and mark.has_ended(self._began):
                # Its own last words may have come just now.
                self._look_at_ends(ranks)
                self.say_end(rank, mark, GONE)
                raise peer_failed(rank, mark, GONE)

    def _look_at_ends(self, ranks: list[int]) -> None:
        """The same by what others have said, in the order in which they have."""
        said = int(self._store.add(self._ends, 0))
        for number in range(self._ends_before + 1, said + 1):
            try:
                rank, *of, what = json.loads(stores.peek(self._store, f"{self._ends}/{number}") or "")
                mark = _mark(json.dumps(of))
            except (TypeError, ValueError):
                # Everybody can write into a store of torch; and this may come a moment later.
                continue
            if rank in ranks and mark is not None and mark == self.of(rank):
                raise peer_failed(rank, mark, _fsgather.plain_text(str(what)))


def peer_failed(rank: int, mark: Mark, what: str) -> _errors.PeerFailed:
    """The error for a rank that has not come to its first call and will not."""
    meanwhile = "" if what == LEFT else " while computing"
    error = _errors.PeerFailed(f"{text_of(rank, mark)} {what}{meanwhile} before its first call")
    error.rank, error.host, error.pid = rank, mark.host, mark.pid
    error.phase = "computing"
    error.reason = what
    error.is_transient = True
    return error


def text_of(rank: int, mark: Optional[Mark]) -> str:
    """A rank, as messages call it."""
    if mark is None:
        return f"rank {rank}"
    return f"rank {rank} on {_fsgather.plain_line(mark.host)} (pid {mark.pid})"


def _mark(text: str) -> Optional[Mark]:
    """Everybody can write into a store of torch."""
    try:
        host, pid, started, boot, namespace, written, at, problem = json.loads(text)
        return Mark(str(host), int(pid), int(started), str(boot), str(namespace), float(written), min(max(float(at), 0), 4e9), str(problem))
    except (TypeError, ValueError, OverflowError):
        return None


def _state_and_start(pid: int) -> Optional[tuple[str, int]]:
    """The state of a process of this host, and when it began; ``None`` if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
            fields = source.read().rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id")


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return ""
