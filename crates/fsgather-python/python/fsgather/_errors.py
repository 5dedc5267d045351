"""The exceptions: one class for each kind of failure, with its facts as attributes."""

from __future__ import annotations

import builtins
import json
import sys
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

if TYPE_CHECKING:
    from fsgather._samples import SampleResults

__all__ = [
    "ConfigError",
    "CorruptError",
    "DesyncError",
    "Error",
    "IncompatibleError",
    "IncompleteError",
    "MismatchError",
    "MissingRank",
    "NotSharedError",
    "PeerFailedError",
    "PoisonedError",
    "RendezvousError",
    "Stack",
    "StorageError",
    "TimeoutError",
    "TooLargeError",
]


class MissingRank(NamedTuple):
    """A rank that others waited for in vain.

    Attributes:
        rank: its number.
        host: where it runs; ``None`` if it never joined.
        pid: its process id there.
        last_seen: its last known activity.
        seconds_ago: when it reported that, in seconds before the error.
    """

    rank: int
    host: Optional[str]
    pid: Optional[int]
    last_seen: Optional[str]
    seconds_ago: Optional[float]


class Stack(NamedTuple):
    """The activity of ranks that others waited for in vain; ranks with the same activity share one.

    Attributes:
        ranks: these ranks.
        text: their activity in one line.
        frames: file, line and name of the Python functions, innermost last; empty if another thread held the interpreter's lock.
        state: what the kernel reports: ``"running"``, ``"waiting, in read on /data/x.h5"``, ``"stopped"``.
        answered: whether the ranks reported it themselves; otherwise another process of their host has inspected them.
    """

    ranks: tuple[int, ...]
    text: str
    frames: tuple[tuple[str, Optional[int], str], ...]
    state: Optional[str]
    answered: bool


class Error(Exception):
    """A collective call failed, or joining before it.

    Every rank that reaches rank 0 raises the same error with the same text.

    Attributes:
        is_transient: whether the same job, started again, may succeed.
        rank: the rank at fault, if there is one.
        host: where that rank runs.
        pid: its process id.
        phase: its activity: ``"publishing"``, ``"waiting"``, ...
    """

    is_transient: bool = False
    rank: Optional[int] = None
    host: Optional[str] = None
    pid: Optional[int] = None
    phase: Optional[str] = None

    def __reduce__(self) -> Any:
        # Exceptions of subprocesses and of other ranks are often handed on pickled.
        return (_remake, (type(self), self.args, self.__dict__))


def _remake(kind: type[Error], args: tuple[Any, ...], fields: dict[str, Any]) -> Error:
    error = kind(*args)
    error.__dict__.update(fields)
    return error


class ConfigError(Error, ValueError, TypeError):
    """A setting, an argument, or a combination of them is wrong; the text says which and what would be right.

    Wrong arguments of Python functions are either a ``ValueError`` or a ``TypeError``; this is both.
    """


class RendezvousError(Error):
    """The ranks did not find each other; the text says where this rank looked and what to set."""


class TimeoutError(Error, builtins.TimeoutError):
    """A call made no progress for as long as its time-out allows.

    Attributes:
        missing: all ranks that were waited for.
        missing_peers: a :class:`MissingRank` for each of them.
        stacks: their activities, as far as known: see :class:`Stack`.
        during: the call, or the stage of joining.
        timeout: the seconds without progress.
    """

    missing: tuple[int, ...] = ()
    missing_peers: tuple[MissingRank, ...] = ()
    stacks: tuple[Stack, ...] = ()
    during: str = ""
    timeout: float = 0.0


class PeerFailedError(Error):
    """A rank was lost, has left, or raised an error of its own: see ``rank``, ``host``, ``pid``, ``phase``, and ``reason``."""

    reason: str = ""
    _has_no_object: bool = False
    """Whether it has raised an error while it handed in its object, and continues otherwise."""


class DesyncError(Error):
    """Two ranks entered different collective calls; nothing was moved.

    Attributes:
        ranks: the two ranks.
        calls: the call of each, and its place in the program.
        stacks: the callers of these calls, as far as known: see :class:`Stack`.
    """

    ranks: tuple[int, int] = (0, 0)
    calls: tuple[str, str] = ("", "")
    stacks: tuple[Stack, ...] = ()


class StorageError(Error):
    """An operation on the file or directory ``path`` failed: no space, no permission, not found.

    ``operation`` names it, and ``errno`` is the operating system's number for the cause, if there is one.
    """

    path: str = ""
    operation: str = ""
    errno: Optional[int] = None


class NotSharedError(Error):
    """The directory ``path`` is not the same directory on all hosts: ``hosts`` do not see what the others see."""

    path: str = ""
    hosts: tuple[str, ...] = ()


class CorruptError(Error):
    """Data differs from its announcement, also when read again; ``rank`` wrote it, to the file ``path``."""

    path: str = ""


class TooLargeError(Error, ValueError):
    """The payload of ``rank`` needs ``size`` bytes, and the call allows ``bound``; nothing was moved."""

    size: int = 0
    bound: int = 0


class IncompleteError(Error):
    """Samples are missing, have failed, or have results that differ.

    ``results`` has the :class:`SampleResults` that there are, on ranks that would have received them.
    """

    results: Optional[SampleResults] = None


class MismatchError(Error, ValueError):
    """The arrays of the ranks do not fit together; ``table`` has each rank's."""

    table: dict[int, str] = {}


class IncompatibleError(Error):
    """Ranks run builds of fsgather that do not understand each other."""


class PoisonedError(Error):
    """An earlier call on this communicator failed, and it cannot be used any more; ``__cause__`` is that failure."""


def heard(error: BaseException, own: Any) -> Optional[PeerFailedError]:
    """What another rank than ``own`` has ended by, if an exception was raised because of that."""
    chain: Optional[BaseException] = error
    seen: set[int] = set()
    # Exceptions may be causes of each other.
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        if isinstance(chain, PeerFailedError) and str(chain.rank) != str(own):
            return chain
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return None


def _incomplete(message: str, results: Any) -> IncompleteError:
    """What the extension module calls when samples are incomplete."""
    from fsgather._samples import SampleResults

    error = IncompleteError(message)
    error.results = None if results is None else SampleResults(results)
    return error


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
        fields["missing_peers"] = tuple(MissingRank(*peer) for peer in missing)
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
        error: Error = {"TimeoutError": TimeoutError, "PeerFailedError": PeerFailedError}.get(kind, RendezvousError)(plain(str(text)))
        for name in _PACKED:
            if name in fields and hasattr(error, name):
                value = fields[name]
                setattr(error, name, plain(value) if isinstance(value, str) else value)
        if isinstance(error, TimeoutError):
            error.missing = tuple(int(rank) for rank in missing)
    except (AttributeError, TypeError, ValueError):
        return RendezvousError("rank 0 of the process group has refused, in words that this version does not understand")
    return error


for _name in __all__:
    globals()[_name].__module__ = "fsgather"
