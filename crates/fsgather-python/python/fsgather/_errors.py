"""The exceptions: one class for each kind of failure, with its facts as attributes."""

from __future__ import annotations

import json
import sys
from typing import Any, Callable, NamedTuple, Optional

__all__ = [
    "Config",
    "Corrupt",
    "Desync",
    "Error",
    "Incompatible",
    "Mismatch",
    "Missing",
    "NotShared",
    "PeerFailed",
    "Poisoned",
    "Rendezvous",
    "Stack",
    "Storage",
    "Timeout",
    "TooLarge",
]


class Missing(NamedTuple):
    """A rank that others waited for in vain."""

    rank: int
    """The rank."""
    host: Optional[str]
    """Where it runs; ``None`` when it never joined."""
    pid: Optional[int]
    """Its process id there."""
    last_seen: Optional[str]
    """What it was last known to be doing."""
    seconds_ago: Optional[float]
    """How long ago it said so."""


class Stack(NamedTuple):
    """What ranks were doing for which others waited in vain; those that did the same are together."""

    ranks: tuple[int, ...]
    """The ranks."""
    text: str
    """What they did, in one line."""
    frames: tuple[tuple[str, Optional[int], str], ...]
    """File, line and name of the Python functions that they were in, the innermost last; empty if another thread held the interpreter's lock."""
    state: Optional[str]
    """What the kernel did with that thread: ``"running"``, ``"waiting, in read on /data/x.h5"``, ``"stopped"``."""
    answered: bool
    """Whether they said so themselves; else another process of their host has looked."""


class Error(Exception):
    """Why a collective call, or the meeting before it, failed.

    Every rank that can hear rank 0 raises the same error with the same text. ``is_transient`` says whether
    starting the job again, unchanged, may succeed.
    """

    is_transient: bool = False
    rank: Optional[int] = None
    """The rank concerned, where there is one."""
    host: Optional[str] = None
    """Where that rank runs."""
    pid: Optional[int] = None
    """Its process id."""
    phase: Optional[str] = None
    """What it was doing: ``"publishing"``, ``"waiting"``, ..."""

    def __reduce__(self) -> Any:
        # Exceptions of subprocesses and of other ranks are often handed on pickled.
        return (_remake, (type(self), self.args, self.__dict__))


def _remake(kind: type[Error], args: tuple[Any, ...], fields: dict[str, Any]) -> Error:
    error = kind(*args)
    error.__dict__.update(fields)
    return error


class Config(Error, ValueError, TypeError):
    """A setting, an argument, or a combination of them is wrong; the text says which and what would be right.

    Wrong arguments of Python functions are either a ``ValueError`` or a ``TypeError``; this is both.
    """


class Rendezvous(Error):
    """The ranks did not find each other; the text says where this rank looked and what to set."""


class Timeout(Error, TimeoutError):
    """Nothing moved for as long as the time-out allows."""

    missing: tuple[int, ...] = ()
    """All ranks that were waited for."""
    missing_peers: tuple[Missing, ...] = ()
    """The same with all that is known of them."""
    stacks: tuple[Stack, ...] = ()
    """What they were doing, where that is known."""
    during: str = ""
    """The call, or the stage of meeting."""
    timeout: float = 0.0
    """How long nothing moved, in seconds."""


class PeerFailed(Error):
    """A rank was lost, has left, or raised an error of its own; ``rank``, ``host``, ``pid`` and ``phase`` say which."""

    reason: str = ""
    """What happened to it."""
    _has_no_object: bool = False
    """Whether it has raised an error while it handed in its object, and continues otherwise."""


def heard(error: BaseException, own: Any) -> Optional[PeerFailed]:
    """What another rank than ``own`` has ended by, if an exception was raised because of that."""
    chain: Optional[BaseException] = error
    seen: set[int] = set()
    # Exceptions may be causes of each other.
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        if isinstance(chain, PeerFailed) and str(chain.rank) != str(own):
            return chain
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return None


class Desync(Error):
    """Two ranks entered different collective calls; nothing was moved."""

    ranks: tuple[int, int] = (0, 0)
    """The two ranks."""
    calls: tuple[str, str] = ("", "")
    """What each of them called, and where."""
    stacks: tuple[Stack, ...] = ()
    """What the ranks in that call were called from, where that is known."""


class Storage(Error):
    """A file operation failed: no space, no permission, not there."""

    path: str = ""
    """The file or directory."""
    operation: str = ""
    """What was tried."""
    errno: Optional[int] = None
    """The operating system's number for the cause, if it gave one."""


class NotShared(Error):
    """The directory is not the same directory on all hosts."""

    path: str = ""
    """The directory."""
    hosts: tuple[str, ...] = ()
    """Hosts that do not see what the others see."""


class Corrupt(Error):
    """Data that was announced is not what was found, and asking again did not help; ``rank`` wrote it."""

    path: str = ""
    """The file."""


class TooLarge(Error, ValueError):
    """The payload of ``rank`` exceeds the bound of the call; nothing was moved."""

    size: int = 0
    """How many bytes it needs."""
    bound: int = 0
    """How many the call allows."""


class Incomplete(Error):
    """Samples are missing, have failed, or have results that differ."""

    results: Any = None
    """The :class:`fsgather.SampleResults` that there are, on ranks that would have received them."""


def _incomplete(message: str, results: Any) -> Incomplete:
    """What the extension module calls when samples are incomplete."""
    from fsgather._samples import SampleResults

    error = Incomplete(message)
    error.results = None if results is None else SampleResults(results)
    return error


class Mismatch(Error, ValueError):
    """What the ranks handed in does not fit together."""

    table: dict[int, str] = {}
    """Each rank and what it has."""


class Incompatible(Error):
    """Ranks run builds of fsgather that do not understand each other."""


class Poisoned(Error):
    """An earlier call on this communicator failed, and it cannot be used any more; ``__cause__`` is that failure."""


def name_writer(error: BaseException, rank: int) -> None:
    """Has an exception that reading an object has raised say which rank handed that object in."""
    text = f"while reading the object that rank {rank} handed in"
    if sys.version_info >= (3, 11):
        error.add_note(text)
    elif error.__cause__ is None:
        error.__cause__ = Error(text)


def _make(kind: str, message: str, fields: dict[str, Any]) -> Error:
    """What the extension module calls with the facts of a failure."""
    error: Error = globals().get(kind, Error)(message)
    cause = fields.pop("cause", None)
    missing = fields.pop("missing", None)
    if missing is not None:
        fields["missing_peers"] = tuple(Missing(*peer) for peer in missing)
        fields["missing"] = tuple(peer[0] for peer in missing)
    if "stacks" in fields:
        fields["stacks"] = tuple(Stack(*stack) for stack in fields["stacks"])
    error.__dict__.update(fields)
    if cause is not None:
        error.__cause__ = cause
    return error


_PACKED = ("is_transient", "rank", "host", "pid", "phase", "reason", "during", "timeout")


def _packed(error: Error) -> bytes:
    """An error for other ranks, to go through a store."""
    fields = {name: value for name in _PACKED if (value := getattr(error, name, None)) is not None}
    return json.dumps([type(error).__name__, str(error), fields, list(getattr(error, "missing", ()))]).encode()


def _unpacked(packed: bytes, plain: Callable[[str], str]) -> Error:
    """What another rank has packed; ``plain`` makes its texts plain."""
    try:
        kind, text, fields, missing = json.loads(packed)
        error: Error = {"Timeout": Timeout, "PeerFailed": PeerFailed}.get(kind, Rendezvous)(plain(str(text)))
        for name in _PACKED:
            if name in fields and hasattr(error, name):
                value = fields[name]
                setattr(error, name, plain(value) if isinstance(value, str) else value)
        if isinstance(error, Timeout):
            error.missing = tuple(int(rank) for rank in missing)
    except (AttributeError, TypeError, ValueError):
        return Rendezvous("rank 0 of the process group has refused, in words that this version does not understand")
    return error


for _class in (Error, Config, Rendezvous, Timeout, PeerFailed, Desync, Storage):
    _class.__module__ = "fsgather"
for _class in (NotShared, Corrupt, TooLarge, Mismatch, Incompatible, Incomplete, Poisoned):
    _class.__module__ = "fsgather"
