"""Public functions as programs see them: :func:`shorten` has each traceback of a failed call end in one frame, which names the function."""

from __future__ import annotations

import ast
import functools
import inspect
import logging
from types import FunctionType, TracebackType
from typing import Any, Callable, Collection, Iterable, Optional, TypeVar

from fsgather import _arguments, _torch_order
from fsgather._errors import ConfigError, Error

__all__ = ["public", "shorten", "shortened", "without_our_frames"]

E = TypeVar("E", bound=BaseException)

_PACKAGE = __name__.partition(".")[0]

_WRAPPER = """
def wrap(function, name, known):
    def call(*arguments, **named):
        try:
            if known is not None and not named.keys() <= known:
                raise unknown_argument(function, named, known)
            return function(*arguments, **named)
        except Exception as error:
            raise exception_of(error, name)
    return call
"""


def without_our_frames(error: E) -> E:
    """Returns an exception that is raised anew, without the frames by which it has come through us. The debug level keeps them."""
    if not logging.getLogger(_PACKAGE).isEnabledFor(logging.DEBUG):
        seen: set[int] = set()
        cause: Optional[BaseException] = error
        # Exceptions may be causes of each other.
        while cause is not None and id(cause) not in seen:
            cause.__traceback__ = _of_others(cause.__traceback__)
            seen.add(id(cause))
            cause = cause.__cause__
    return error


def shortened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose exceptions have one frame of ours, with its name, file and line, and whose wrong arguments are ours to refuse.

    Its signature lists the keyword arguments of a ``TypedDict`` one by one.
    """
    signature = _listed_options(inspect.signature(function))
    call: FunctionType = _wrap(function, function.__name__, signature and signature.parameters.keys())
    own = function.__code__
    call.__code__ = call.__code__.replace(co_filename=own.co_filename, co_name=own.co_name, co_firstlineno=own.co_firstlineno)
    functools.update_wrapper(call, function)
    if signature is not None:
        call.__dict__["__signature__"] = signature
    return call


def _listed_options(signature: inspect.Signature) -> Optional[inspect.Signature]:
    """Returns the same signature with keyword arguments in place of a ``TypedDict`` of them, if it has one."""
    parameters = dict(signature.parameters)
    annotation = str(parameters.popitem()[1].annotation) if parameters else ""
    if not annotation.startswith("Unpack["):
        return None
    for name, annotation in getattr(_arguments, annotation[len("Unpack[") : -1]).__annotations__.items():
        kind = getattr(annotation, "__forward_arg__", annotation)
        parameters[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    return signature.replace(parameters=list(parameters.values()))


def _unknown_argument(function: Callable[..., Any], named: dict[str, Any], known: Collection[str]) -> TypeError:
    name = next(name for name in named if name not in known)
    return TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}")


def shorten(place: Any, names: Iterable[str]) -> None:
    """Replaces functions of a module or class by those."""
    for name in names:
        function = vars(place)[name]
        if isinstance(function, classmethod):
            setattr(place, name, classmethod(shortened(function.__func__)))
        elif callable(function):
            setattr(place, name, shortened(function))


def public(place: type) -> list[str]:
    """Returns the names of a class's own methods that programs call."""
    return [name for name in vars(place) if not name.startswith("_")]


def _exception_of(error: Exception, name: str) -> Exception:
    """Returns the exception that a program gets. A call with arguments that the function does not have is a wrong argument too."""
    frame = error.__traceback__
    if isinstance(error, TypeError) and not isinstance(error, Error) and frame is not None and frame.tb_next is None:
        refused = ConfigError(str(error) + _torch_order.hint(name))
        refused.__suppress_context__ = True
        error = refused
    return without_our_frames(error)


def _of_others(traceback: Optional[TracebackType]) -> Optional[TracebackType]:
    """Returns what follows the frames of ours that a traceback begins with."""
    while traceback is not None and str(traceback.tb_frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        traceback = traceback.tb_next
    return traceback


def _make_wrap() -> Any:
    """Returns a function that wraps another one by code of one line, without columns, so that its line can be that of the other."""
    tree = ast.parse(_WRAPPER)
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            vars(node).update(lineno=1, end_lineno=1, col_offset=-1, end_col_offset=-1)
    made: dict[str, Any] = {"__name__": __name__, "exception_of": _exception_of, "unknown_argument": _unknown_argument}
    exec(compile(tree, __file__, "exec"), made)
    return made["wrap"]


_wrap = _make_wrap()
