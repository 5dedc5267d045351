"""Tensors of torch inside of pickles: by their elements, as plain data carries them.

Torch's own way into a pickle copies whole storages, also for a view of two elements. Here dense tensors become
numbers in the pickle, and travel beside it as a list of tensors, which is plain data: a view carries only its own
elements, what shares memory goes on sharing it, and everything comes back in place.
"""

from __future__ import annotations

import io
import pickle
import struct
import threading
from typing import Any, Callable, Optional

import torch

from fsgather import _fsgather

__all__ = ["Pickler", "pack", "unpickle"]

_COUNT = struct.Struct("<Q")


def _is_elements(tensor: torch.Tensor) -> bool:
    """Whether a tensor is dense elements and nothing more. Everything else is left to torch's own way."""
    return (
        type(tensor) is torch.Tensor
        and hasattr(tensor, "untyped_storage")  # not before 2.0
        and tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and tensor.is_leaf
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor._backward_hooks
        and not tensor.__dict__
        # Later versions of torch have no names, and no such method.
        and not getattr(tensor, "has_names", bool)()
    )


class Pickler(pickle.Pickler):
    """A pickler that leaves dense tensors out.

    In the pickle each is a number; ``tensors`` has them in this order when the pickle is finished.
    """

    def __init__(self, file: io.BytesIO, buffer_callback: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.tensors: list[torch.Tensor] = []

    def reducer_override(self, value: Any) -> Any:
        """What pickle asks about each object that it does not know itself."""
        if not isinstance(value, torch.Tensor) or not _is_elements(value):
            return NotImplemented
        self.tensors.append(value)
        return numbered, (len(self.tensors) - 1,)


def pack(tensors: list[torch.Tensor], own: int) -> Optional[list[Any]]:
    """The tensors as buffers that follow the pickle's ``own`` ones; ``None`` if one of them is no plain data."""
    try:
        stream, buffers = _fsgather._plain_encode(tensors)
    except TypeError:
        return None
    return [*buffers, _COUNT.pack(own) + stream]


class _Current(threading.local):
    tensors: list[torch.Tensor] = []


_current = _Current()


def numbered(index: int) -> torch.Tensor:
    """The tensor of this number in the object that is being unpickled."""
    return _current.tensors[index]


def unpickle(stream: Any, buffers: list[Any]) -> Any:
    """The object of a pickle that a :class:`Pickler` has made, with what :func:`pack` has added."""
    packed = memoryview(buffers[-1])
    (own,) = _COUNT.unpack_from(packed)
    outer = _current.tensors
    _current.tensors = _fsgather._plain_decode(bytes(packed[_COUNT.size :]), buffers[own:-1])
    try:
        return pickle.loads(stream, buffers=buffers[:own])
    finally:
        _current.tensors = outer
