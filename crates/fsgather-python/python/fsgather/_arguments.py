"""What callers pass in, checked before anything is sent: a wrong argument is an error of this rank alone.

Each function returns the argument as the extension module takes it, or raises :class:`fsgather.ConfigError`, which names
the argument, what was given and what is allowed.
"""

from __future__ import annotations

import datetime
import math
import operator
import os
import reprlib
from typing import Any, Literal, Optional, TypedDict, Union

from fsgather._errors import ConfigError

PathLike = Union[str, "os.PathLike[str]"]

Seconds = Union[float, datetime.timedelta, None]
"""A time: a number of seconds or a ``timedelta``; ``None`` where there is a default."""

Transport = Literal["auto", "filesys", "memory"]

Control = Literal["auto", "tcp", "markers"]

Verify = Literal["always", "host", "off"]


class JoinSettings(TypedDict, total=False):
    """Settings of a world; :class:`fsgather.Communicator` describes them."""

    directory: Optional[PathLike]
    transport: Optional[Transport]
    control: Optional[Control]
    timeout: Seconds
    join_timeout: Seconds
    inline_limit: Optional[int]
    verify: Optional[Verify]
    job: Optional[str]


class CallOptions(TypedDict, total=False):
    """Options of every collective call; the documentation of the package describes them."""

    timeout: Seconds
    tag: Optional[str]
    site: Optional[str]
    allow_pickle: Optional[bool]


LARGEST = 2**63 - 1
"""Larger numbers are none that anybody means."""

LONGEST = 1e19
"""What no clock counts to, in seconds."""

SHORTEST = 1e-9
"""What clocks can tell from nothing, in seconds."""


def whole(name: str, value: Any, low: int = 0, high: int = LARGEST) -> int:
    """A whole number, of any type that counts as one, but not ``True``."""
    number = _index(value)
    if number is None or not low <= number <= high:
        what = "is not a whole number; give one" if number is None else "is out of range; give a whole number"
        raise ConfigError(f"{name}={_shown(value)} {what} from {low} to {high}")
    return number


def _index(value: Any) -> Optional[int]:
    try:
        return None if _is_bool(value) else operator.index(value)
    except TypeError:
        return None


def rank(name: str, value: Any, world_size: int) -> int:
    """A rank of a world of this size."""
    number = _index(value)
    if number is None or not 0 <= number < world_size:
        allowed = "0" if world_size == 1 else f"0 to {world_size - 1}"
        raise ConfigError(f"{name}={_shown(value)} is not a rank of a world of {world_size}; give {allowed}")
    return number


def seconds(name: str, value: Any, low: float = SHORTEST) -> Optional[float]:
    """A time, or ``None``."""
    if value is None:
        return None
    number = math.nan
    if isinstance(value, datetime.timedelta):
        number = value.total_seconds()
    elif not isinstance(value, (str, bytes, bytearray)) and not _is_bool(value):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    if not low <= number < LONGEST:
        least = "0 or more" if low == 0 else "above 0"
        raise _wrong(name, value, f"a number of seconds {least} and below {LONGEST:g}, such as 1800")
    return number


def text(name: str, value: Any) -> Optional[str]:
    """A text, or ``None``."""
    if value is None:
        return None
    if is_text(value):
        text: str = value
        return text
    raise _wrong(name, value, "a text of valid characters")


def is_text(value: Any) -> bool:
    """Whether this is a text that can be encoded: one without surrogates."""
    try:
        return isinstance(value, str) and len(value.encode()) >= 0
    except UnicodeEncodeError:
        return False


def path(name: str, value: Any, right: str = "the path of a directory, such as '/shared/scratch'") -> Optional[str]:
    """A path, or ``None``."""
    if value is None:
        return None
    given: Union[str, bytes, None]
    try:
        given = os.fspath(value)
        os.fsencode(given)
    except (TypeError, UnicodeEncodeError):
        given = None
    if not isinstance(given, str) or not given or "\0" in given:
        raise _wrong(name, value, right)
    return given


def several(name: str, value: Any) -> list[Any]:
    """The entries of something that has several."""
    try:
        return list(value)
    except TypeError:
        raise _wrong(name, value, "a list of numbers, such as [0, 1]") from None


def switch(name: str, value: Any) -> bool:
    """``True`` or ``False``, also one of numpy or torch."""
    if _is_bool(value):
        return bool(value)
    raise _wrong(name, value, "True or False")


def _is_bool(value: Any) -> bool:
    """Whether a value is ``True`` or ``False``, also one of numpy or torch. Where a number is meant, that is a mistake."""
    kind = str(getattr(value, "dtype", "")).rpartition(".")[2]
    return isinstance(value, bool) or (kind == "bool" and getattr(value, "ndim", 0) == 0)


def _wrong(name: str, value: Any, right: str) -> ConfigError:
    return ConfigError(f"{name}={_shown(value)} is not {right}")


def _shown(value: Any) -> str:
    """What was given, shortened."""
    try:
        return reprlib.repr(value)
    except Exception:
        # Objects may refuse to be shown, and so do numbers of more than 4300 digits.
        return f"<{type(value).__name__}>"
