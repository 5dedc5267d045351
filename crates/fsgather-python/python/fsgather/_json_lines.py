"""Results of samples as lines of JSON: :func:`write`, :func:`text_of`, :func:`file_to_write`."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from fsgather import _arguments
from fsgather._errors import ConfigError

MAX_SHOWN_DEPTH = 20
"""Maximum number of steps in the place of a part that cannot be written."""

KINDS = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


def file_to_write(name: str, path: str) -> str:
    """Follows links from a path to the file that is written or replaced, which must be a regular one if it is there."""
    target = os.path.realpath(path)
    if re.fullmatch(r"samples-a\d+-r\d+-[0-9a-f]+-p\d+", os.path.basename(target)):
        raise ConfigError(f"{name}={path!r} is a file of samples, whose results would be lost; give another name, such as 'results.jsonl'")
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return target
    except OSError as error:
        raise ConfigError(f"{name}={path!r} cannot be written: {error}") from None
    if stat.S_ISREG(mode):
        return target
    kind = next((kind for is_kind, kind in KINDS if is_kind(mode)), "not a file")
    raise ConfigError(f"{name}={path!r} is {kind}; give the path of a regular file, such as 'results.jsonl'")


def write(path: str, results: Iterable[tuple[Any, Any]]) -> None:
    """Writes a line for each id and result to a file that appears whole or not at all."""
    target = file_to_write("path", path)
    # Processes of two containers may have one pid.
    temporary = f"{target}.{os.urandom(8).hex()}.tmp"
    with open(temporary, "xb") as file:
        try:
            for sample, result in results:
                text = text_of(result, f"the result of sample {sample!r}")
                file.write(b'{"id": %b, "result": %b}\n' % (json.dumps(sample, ensure_ascii=False).encode(), text.encode()))
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


def text_of(result: Any, shown: str = "") -> str:
    """A result as JSON of valid characters; ``shown`` names it in errors."""
    try:
        return _text_of(result)
    except (TypeError, ValueError, RecursionError) as error:
        place, reason = _fault(result, error)
        raise ConfigError(f"{shown}{place} cannot be written as JSON: {reason}".lstrip()) from None


def _text_of(result: Any) -> str:
    text = json.dumps(_as_json(result), ensure_ascii=False)
    text.encode()
    return text


def _as_json(value: Any) -> Any:
    """A result as JSON has it."""
    if isinstance(value, dict):
        made = {key if isinstance(key, str) else str(key): _as_json(part) for key, part in value.items()}
        if len(made) < len(value):
            raise ValueError(f"keys of {_arguments._shown(value)} would be the same text")
        return made
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_as_json(part) for part in value]
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "tolist"):
        made = value.tolist()
        if type(made) is type(value):
            raise TypeError(f"JSON has no numbers of type {type(value).__name__}")
        return _as_json(made)
    return str(value)


def _fault(value: Any, error: Exception) -> tuple[str, str]:
    """The innermost part that cannot be written, by its place in ``value``, and why."""
    place = ""
    for _ in range(MAX_SHOWN_DEPTH):
        for step, part in _parts(value):
            try:
                _text_of(part)
            except (TypeError, ValueError, RecursionError) as inner:
                place, value, error = f"{place}[{step!r}]", part, inner
                break
        else:
            break
    if isinstance(error, RecursionError):
        return "", "it is nested too deep, or holds itself"
    if isinstance(error, UnicodeEncodeError):
        return place, f"{_arguments._shown(value)} has characters that are not valid"
    return place, str(error)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, (list, tuple)) else iter(())
