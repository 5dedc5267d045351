"""Replacing functions of modules that are not torch's: only where they are what we take them for."""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any, Callable, Mapping, NamedTuple

from fsgather import _errors
from fsgather._tracebacks import without_our_frames
from fsgather._switch import callers, notices
from fsgather._switch.selection import Selection

__all__ = ["Call", "Replacement", "check", "parameters", "replace"]


class Call(NamedTuple):
    """One call of a replaced function."""

    original: Callable[[], Any]
    """What was replaced, with the arguments of this call."""
    site: str
    """The place in the program."""


#: Takes the call, and its arguments by their names.
Replacement = Callable[..., Any]


def parameters(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters, in order; none of what is no function."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def check(module: ModuleType, expected: Mapping[str, tuple[tuple[str, ...], ...]]) -> list[str]:
    """Which of the functions are there with one of the signatures they are known to have.

    What is missing or looks different is left alone. That is said once, by one process of the job.
    """
    fitting = []
    for name, shapes in expected.items():
        function = getattr(module, name, None)
        found = parameters(function)
        if function is not None and found in shapes:
            fitting.append(name)
        elif function is not None:
            known = " or ".join(f"({', '.join(shape)})" for shape in shapes)
            notices.warn(
                f"{module.__name__}.{name} takes ({', '.join(found)}), and not {known}, so that fsgather does not know "
                "what it does; it is left as it is"
            )
    if not any(hasattr(module, name) for name in expected):
        notices.warn(f"{module.__name__} has none of {', '.join(expected)}; it is left as it is")
    return fitting


def replace(module: ModuleType, name: str, selection: Selection, ours: Replacement) -> None:
    """Puts ``ours(call, **arguments)`` in the place of a function. Doing so twice changes nothing more."""
    original = getattr(module, name)
    if hasattr(original, "__fsgather_original__"):
        return
    signature = inspect.signature(original)

    @functools.wraps(original)
    def replacement(*arguments: Any, **named: Any) -> Any:
        if selection.problem:
            raise _errors.ConfigError(selection.problem)
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        call = Call(functools.partial(original, *arguments, **named), callers.site(1))
        try:
            return ours(call, **bound.arguments)
        except Exception as error:
            raise without_our_frames(error)

    replacement.__dict__["__fsgather_original__"] = original
    setattr(module, name, replacement)
