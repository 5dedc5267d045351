"""Arrays and tensors of all ranks joined along an axis: :func:`gather`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Optional

from fsgather import _arguments
from fsgather._errors import ConfigError, _make

if TYPE_CHECKING:
    from fsgather._communicator import Communicator


def gather(communicator: Communicator, array: Any, dim: int, dst: Optional[int], how: dict[str, Any]) -> Any:
    """Joins the arrays of all ranks along ``dim``, straight into the result."""
    problem: Optional[Exception] = None
    header: tuple[str, str, int, tuple[int, ...]]
    try:
        kind = _kind_of(array)
        header = (kind.name, kind.dtype(array), _axis(array, dim), tuple(array.shape))
        own = array if communicator.world_size == 1 else kind.to_host(array)
    except Exception as error:
        # The others get an error as well: they would wait for this rank.
        problem = error
        header = ("", str(error), 0, ())
    if communicator.world_size == 1:
        if problem is not None:
            raise problem
        return array
    member = communicator._member
    headers = member.all_gather(header, how)
    if problem is not None:
        raise problem
    _check(communicator, headers)
    axis = header[2]
    if dst is None:
        return _join(kind, array, headers, axis, member.all_gather(own, how))
    parts = member.gather(own, dst, how)
    return None if parts is None else _join(kind, array, headers, axis, parts)


def _axis(array: Any, dim: int) -> int:
    """The dimension, counted from the front."""
    count = len(array.shape)
    if count == 0:
        raise ConfigError("an array without dimensions cannot be joined with others; give it one: array.reshape(1)")
    return _arguments.whole("dim", dim, -count, count - 1) % count


def _check(communicator: Communicator, headers: list[Any]) -> None:
    """Refuses, on all ranks alike, what does not fit together."""
    fits = {
        (name, dtype, axis, shape[:axis] + shape[axis + 1 :], len(shape)) for name, dtype, axis, shape in headers
    }
    if len(fits) > 1:
        rows = {
            communicator._member.name_of(rank): f"{dtype} {list(shape)} along {axis}" if name else f"none ({dtype})"
            for rank, (name, dtype, axis, shape) in enumerate(headers)
        }
        table = "; ".join(f"rank {rank}: {row}" for rank, row in rows.items())
        raise _make("MismatchError", f"the arrays to be joined differ between ranks: {table}", {"table": rows})


def _join(kind: Any, array: Any, headers: list[Any], axis: int, parts: Any) -> Any:
    lengths = [shape[axis] for _, _, _, shape in headers]
    shape = list(headers[0][3])
    shape[axis] = sum(lengths)
    joined = kind.empty(array, shape)
    start = 0
    for length, part in zip(lengths, parts):
        place = (slice(None),) * axis + (slice(start, start + length),)
        joined[place] = part
        start += length
        del part
    return kind.back(joined, array)


class _Numpy:
    name = "numpy"

    @staticmethod
    def dtype(array: Any) -> str:
        return str(array.dtype)

    @staticmethod
    def to_host(array: Any) -> Any:
        return array

    @staticmethod
    def empty(array: Any, shape: list[int]) -> Any:
        import numpy

        return numpy.empty(shape, dtype=array.dtype)

    @staticmethod
    def back(joined: Any, array: Any) -> Any:
        return joined


class _Torch:
    name = "torch"

    @staticmethod
    def dtype(tensor: Any) -> str:
        return str(tensor.dtype)

    @staticmethod
    def to_host(tensor: Any) -> Any:
        return tensor.detach().cpu()

    @staticmethod
    def empty(tensor: Any, shape: list[int]) -> Any:
        import torch

        return torch.empty(shape, dtype=tensor.dtype, device="cpu")

    @staticmethod
    def back(joined: Any, tensor: Any) -> Any:
        return joined.to(tensor.device)


def _kind_of(array: Any) -> Any:
    """The kind of an array that can be joined with others, without losing anything."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.layout is not torch.strided or array.is_nested or array.is_meta:
            kind = "meta" if array.is_meta else "nested" if array.is_nested else str(array.layout)
            raise ConfigError(f"gather joins dense tensors, not {kind} ones; use gather_object, or make it dense: tensor.to_dense()")
        return _Torch
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        if type(array) not in (numpy.ndarray, numpy.memmap, numpy.matrix, numpy.recarray):
            raise ConfigError(
                f"gather joins plain arrays, and would lose what {type(array).__name__} adds to numpy.ndarray; use gather_object,"
                " or hand in its parts, such as data and mask"
            )
        return _Numpy
    raise ConfigError(
        f"gather joins arrays of numpy and tensors of torch, not {type(array).__name__}; use gather_object for other objects"
    )
