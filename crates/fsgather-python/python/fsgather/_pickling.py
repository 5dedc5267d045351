"""Objects that are not plain data: pickle protocol 5 with buffers out of band, and tensors by their elements."""

from __future__ import annotations

import gc
import io
import pickle
import sys
from typing import Any, Callable, Union

__all__ = ["PICKLE", "PICKLE_WITH_TENSORS", "dumps", "loads", "without_collector"]

Buffer = Union[bytes, bytearray, memoryview]

PICKLE = 2
"""A pickle and its buffers."""

PICKLE_WITH_TENSORS = 3
"""A pickle, its buffers, those of its tensors, and last of all the tensors as plain data, after the number of the pickle's
own buffers."""

OUT_OF_BAND = 64 * 1024
"""Buffers from this length on, in bytes, are not copied into the pickle."""


def dumps(value: Any) -> tuple[int, Buffer, list[Any]]:
    """The pickle of an object and the large buffers that it refers to, as they lie in memory, with their kind."""
    buffers: list[Any] = []

    def belongs_inside(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < OUT_OF_BAND:
            return True
        buffers.append(raw)
        return False

    file = io.BytesIO()
    if "torch" not in sys.modules:
        pickle.Pickler(file, protocol=5, buffer_callback=belongs_inside).dump(value)
        return PICKLE, file.getbuffer(), buffers
    from fsgather import _tensors

    pickler = _tensors.Pickler(file, belongs_inside)
    pickler.dump(value)
    if not pickler.tensors:
        return PICKLE, file.getbuffer(), buffers
    packed = _tensors.pack(pickler.tensors, len(buffers))
    if packed is None:
        file, buffers = io.BytesIO(), []
        pickle.Pickler(file, protocol=5).dump(value)
        return PICKLE, file.getbuffer(), buffers
    return PICKLE_WITH_TENSORS, file.getbuffer(), [*buffers, *packed]


def loads(kind: int, stream: Buffer, buffers: list[Any]) -> Any:
    """The object of a pickle; its large buffers stay where they are."""
    if kind == PICKLE:
        return without_collector(lambda: pickle.loads(stream, buffers=buffers))
    from fsgather import _tensors

    return without_collector(lambda: _tensors.unpickle(stream, buffers))


def without_collector(work: Callable[[], Any]) -> Any:
    """Does something that makes many objects at once, while the collector of cycles pauses."""
    if not gc.isenabled():
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
