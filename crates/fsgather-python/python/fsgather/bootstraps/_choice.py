"""Which bootstrap introduces the ranks of a communicator: :func:`introducing`."""

from __future__ import annotations

import importlib
import os
import re
import reprlib
from typing import Any, Callable, Optional

from fsgather import _fsgather, _leaving, _workers
from fsgather._errors import ConfigError
from fsgather._logging import logger
from fsgather.bootstraps import _ORDER, Bootstrap, _limits, _runs

__all__ = ["carriers", "find", "introducing", "names"]

_ALIASES = {"mpi": "mpi4py"}

_TAKEN = {*_ORDER, *_ALIASES}
"""Names that another package cannot give."""

_told: set[str] = set()
"""What was told once."""

_GROUP = "fsgather.bootstraps"
_NAMED = re.compile(r"([A-Za-z0-9_.-]+):")


def names() -> list[str]:
    """All bootstraps that are there, in the order in which they are asked."""
    return [*_ORDER, *sorted(_announced())]


def find(name: Optional[str] = None, seconds: Optional[float] = None) -> Optional[Bootstrap]:
    """The bootstrap with this name; without one the first that finds this process to be a rank.

    One that fails to look is passed over with a warning, unless it is the one that is named. One of another package is ended that
    looks for more than so many seconds, by default ``FSGATHER_JOIN_TIMEOUT``.

    Raises:
        fsgather.ConfigError: there is none with this name, it fails, or it does not find this process to be a rank.
    """
    if name is None:
        # A variable that is wrong is no fault of a package.
        seconds = _fsgather.join_timeout() if seconds is None else seconds
        return next((found for found in (_first(other, seconds) for other in names()) if found is not None), None)
    name = _ALIASES.get(name, name)
    if name not in names():
        called = {full: short for short, full in _ALIASES.items()}
        known = ", ".join(f"{called.get(other, other)}:" for other in names())
        raise ConfigError(
            f"there is no bootstrap {name!r} (FSGATHER_RENDEZVOUS, rendezvous=); there are {known}; an installed package "
            f"adds one by an entry point of the group {_GROUP}"
        )
    found = _first(name, seconds, is_named=True)
    if found is None:
        raise ConfigError(f"{name}: was to introduce the ranks (FSGATHER_RENDEZVOUS, rendezvous=), but this process is none of its ranks")
    return found


def introducing(
    given: Any, comm: Any, rendezvous: Optional[str], may_look: bool, seconds: Optional[float] = None
) -> Optional[Bootstrap]:
    """What introduces the ranks of a communicator, if not a directory or an address.

    Args:
        given: a bootstrap that the program hands over.
        comm: a communicator of mpi4py instead.
        rendezvous: what the program says; it may name a bootstrap.
        may_look: whether to look for an engine where nobody names one; not where the program says its rank.
        seconds: how long an engine may look for its rank.

    Raises:
        fsgather.ConfigError: both are given, or one besides a rank or a rendezvous, or none is what it should be.
    """
    if given is not None and comm is not None:
        raise ConfigError("bootstrap= and comm= both introduce the ranks; give one of them")
    if (given is not None or comm is not None) and not (may_look and rendezvous is None):
        which = "comm=" if given is None else "bootstrap="
        raise ConfigError(f"{which} introduces the ranks and says which this is; leave out rank=, world_size= and rendezvous=")
    if comm is not None:
        from fsgather.bootstraps.mpi4py import Mpi

        return Mpi(comm)
    return _choose(rendezvous, may_look, seconds) if given is None else _checked(given)


def _choose(rendezvous: Optional[str], may_look: bool, seconds: Optional[float] = None) -> Optional[Bootstrap]:
    """The bootstrap that a rendezvous names; where nobody names one, and one ``may_look``, the one that finds this to be a rank."""
    text = rendezvous or os.environ.get("FSGATHER_RENDEZVOUS", "")
    named = _NAMED.fullmatch(text)
    if named is not None:
        return find(named.group(1), seconds)
    if text or not may_look:
        return None
    introduced = _runs.introduced()
    if introduced is not None or _workers.is_told_rank():
        return introduced
    found = find(None, seconds)
    unintroduced = _runs.unintroduced() if found is None else None
    if unintroduced is not None:
        _warn_once(unintroduced, "%s", unintroduced)
    return found


def _checked(given: Any) -> Bootstrap:
    wrong = _wrong_numbers(given)
    if wrong is not None:
        named = f'; rendezvous="{given}:" names one' if isinstance(given, str) else ""
        raise ConfigError(f"bootstrap={_plain(reprlib.repr(given))} is no bootstrap: {wrong}{named}")
    bootstrap: Bootstrap = given
    return bootstrap


def _wrong_numbers(bootstrap: Any) -> Optional[str]:
    numbers = [getattr(bootstrap, field, None) for field in ("rank", "world_size")]
    if all(type(number) is int for number in numbers):
        return None
    return f"rank {_plain(repr(numbers[0]))}, world_size {_plain(repr(numbers[1]))}, which are to be integers"


def _wrong(bootstrap: Any) -> Optional[str]:
    """Why what a package has found cannot introduce anybody."""
    wrong = _wrong_numbers(bootstrap)
    if wrong is None and not 0 <= bootstrap.rank < bootstrap.world_size:
        wrong = f"rank {bootstrap.rank} of a world of {bootstrap.world_size}"
    lacks = (name for name in ("publish", "fetch") if not callable(getattr(bootstrap, name, None)))
    return wrong or next((f"it has no method {name}" for name in lacks), None)


def _first(name: str, seconds: Optional[float], is_named: bool = False) -> Optional[Bootstrap]:
    """The first of this name that finds this process to be a rank; several packages may have it. One that fails is passed over.

    Raises:
        fsgather.ConfigError: the last of those that are asked for by name fails.
    """
    points = [None] if name in _ORDER else _announced()[name]
    for place, point in enumerate(points):
        try:
            found = _ask(name, point, seconds)
        except ConfigError as error:
            if is_named and place == len(points) - 1:
                raise
            logger().warning("%s; it is passed over", error)
        else:
            if found is not None:
                return found
    return None


def _ask(name: str, point: Any, seconds: Optional[float]) -> Optional[Bootstrap]:
    """Whether this process is a rank of an engine; whatever goes wrong there is a :class:`fsgather.ConfigError` that names it."""
    which = f"the bootstrap {name!r}" if point is None else f"the bootstrap {name!r} ({_whose(point)})"
    try:
        if point is None:
            bootstrap: Optional[Bootstrap] = importlib.import_module(f"{__package__}.{name}").find()
        else:
            limit = _fsgather.join_timeout() if seconds is None else seconds
            bootstrap = _limits.within(lambda: point.load()(), limit, f"find of {which}")
        wrong = None if bootstrap is None else _wrong(bootstrap)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigError(f"{which} fails: {_plain(_leaving.text(error))}; mend it, or remove that package") from error
    if wrong is not None:
        raise ConfigError(f"what {which} has found is no bootstrap: {wrong}; mend it, or remove that package")
    return bootstrap


def _announced() -> dict[str, list[Any]]:
    """What packages have announced: for each name the entry points that differ."""
    announced: dict[str, list[Any]] = {}
    for point in _points():
        same = announced.setdefault(point.name, [])
        if all(point.value != other.value for other in same):
            same.append(point)
    for name in _TAKEN & announced.keys():
        for point in announced.pop(name):
            text = "the bootstrap %r (%s) is never used, since fsgather has one of that name: its package has to announce it under another name"
            _warn_once(_whose(point), text, name, _whose(point))
    return announced


def _points() -> list[Any]:
    """The entry points of all packages but those that cannot be read."""
    # Reading what is installed takes a while, which most processes need not.
    from importlib import metadata

    try:
        points: Any = metadata.entry_points()
        # Python 3.9 has a dictionary.
        return list(points.select(group=_GROUP) if hasattr(points, "select") else points.get(_GROUP, ()))
    except Exception:
        # One package damages those of all.
        found: dict[str, list[Any]] = {}
        for package in metadata.distributions():
            name = str(package.metadata["Name"])
            try:
                found.setdefault(name, [point for point in package.entry_points if point.group == _GROUP])
            except Exception as error:
                found.setdefault(name, [])
                text = "the entry points of the package %s cannot be read: %s; they are passed over"
                _warn_once(name, text, _plain(name), _plain(_leaving.text(error)))
        return [point for points in found.values() for point in points]


def _warn_once(what: str, text: str, *about: str) -> None:
    if what not in _told:
        _told.add(what)
        logger().warning(text, *about)


def _whose(point: Any) -> str:
    """What an entry point names, and which package has announced it; Python 3.9 does not know that."""
    package = getattr(getattr(point, "dist", None), "name", None)
    return _plain(point.value if package is None else f"{point.value} of the package {package}")


def _plain(text: str) -> str:
    """One line that does nothing to a terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def carriers(bootstrap: Bootstrap, seconds: Optional[float] = None) -> tuple[Callable[[bytes], object], Callable[[float], bytes]]:
    """Its ``publish`` and ``fetch``, which are named once they take long, and left to themselves once they take too long.

    That is after the seconds that ``fetch`` is given, and so many for ``publish``, by default ``FSGATHER_JOIN_TIMEOUT``.

    Raises:
        fsgather.ConfigError: it has none.
    """
    whose = f"{type(bootstrap).__module__}.{type(bootstrap).__qualname__}"

    def carrier(name: str) -> Callable[[Any], Any]:
        call = getattr(bootstrap, name, None)
        if not callable(call):
            raise ConfigError(f"{whose} is no bootstrap: it has no method {name}")

        def limited(argument: Any) -> Any:
            limit = argument if name == "fetch" else _fsgather.join_timeout() if seconds is None else seconds
            why = " (rank 0 has not come yet, or has ended before it did)" if name == "fetch" else ""
            result = _limits.apart(lambda: call(argument), limit, f"{name} of the bootstrap {whose}", why)
            if name == "fetch" and not isinstance(result, (bytes, bytearray, memoryview)):
                raise ConfigError(f"fetch of the bootstrap {whose} gives {type(result).__name__}, not the bytes that rank 0 has published")
            return bytes(result) if name == "fetch" else result

        return limited

    return carrier("publish"), carrier("fetch")
