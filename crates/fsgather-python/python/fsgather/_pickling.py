"""Objects that are not plain data: as pickles, with large contents beside them.

``like`` says whose promises hold. By default they are ours: pickle protocol 5, whose large buffers lie beside the pickle.
``"pickle"`` is what torch's object functions make, down to what can only be seen of it later: the default protocol, by which
arrays lose their order of bytes, and tensors come back on the device where they were. ``"pickles"`` is that for each entry of
a list by itself.
"""

from __future__ import annotations

import copyreg
import gc
import io
import pickle
import struct
import sys
import threading
from typing import Any, Callable, Optional, Union

from fsgather import _fsgather

__all__ = ["PICKLE", "PICKLE_WITH_CONTENTS", "dumps", "loads", "without_collector"]

Buffer = Union[bytes, bytearray, memoryview]

PICKLE = 2
"""A pickle and its buffers."""

PICKLE_WITH_CONTENTS = 3
"""A pickle, its buffers, those of the arrays and tensors that it has numbers for, and last of all a list of these as plain data,
after the number of the pickle's own buffers."""

OUT_OF_BAND = 64 * 1024
"""Buffers from this length on, in bytes, are not copied into the pickle."""

_COUNT = struct.Struct("<Q")


def dumps(value: Any, like: Optional[str] = None) -> tuple[int, Buffer, list[Any]]:
    """The pickle of an object and the large buffers that it refers to, as they lie in memory, with their kind."""
    buffers: list[Any] = []
    contents: list[Any] = []
    stream = _stream(value, like, buffers, contents)
    if not contents:
        return PICKLE, stream, buffers
    packed = _pack(contents, len(buffers), like)
    if packed is None:
        return PICKLE, _stream(value, like, None, None), []
    return PICKLE_WITH_CONTENTS, stream, [*buffers, *packed]


def _stream(value: Any, like: Optional[str], buffers: Optional[list[Any]], contents: Optional[list[Any]]) -> Buffer:
    """The pickle itself; without ``contents`` everything is in it."""
    if like == "pickles" and type(value) is list:
        entries = [bytes(_stream(entry, "pickle", buffers, contents)) for entry in value]
        return pickle.dumps(_Entries(entries), protocol=4)
    file = io.BytesIO()
    options: dict[str, Any] = {"protocol": 5 if like is None else pickle.DEFAULT_PROTOCOL}
    if like is None and buffers is not None:
        options["buffer_callback"] = _taking(buffers)
    pickler = pickle.Pickler(file, **options) if contents is None else _pickler(like)(file, contents, options)
    pickler.dump(value)
    return file.getbuffer()


def _taking(buffers: list[Any]) -> Callable[[pickle.PickleBuffer], bool]:
    def belongs_inside(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < OUT_OF_BAND:
            return True
        buffers.append(raw)
        return False

    return belongs_inside


def _pickler(like: Optional[str]) -> Any:
    """What makes a pickle that leaves large contents out."""
    if "torch" in sys.modules:
        from fsgather import _tensors

        return _tensors.Pickler if like is None else _tensors.LikePickler
    return _Unchanged if like is None else LikePickler


class _Unchanged(pickle.Pickler):
    def __init__(self, file: io.BytesIO, _contents: list[Any], options: dict[str, Any]) -> None:
        super().__init__(file, **options)


class LikePickler(pickle.Pickler):
    """Leaves large arrays out of a pickle of the default protocol. In the pickle each is a number."""

    def __init__(self, file: io.BytesIO, contents: list[Any], options: dict[str, Any]) -> None:
        super().__init__(file, **options)
        self.contents = contents
        self._protocol = options["protocol"]
        numpy = sys.modules.get("numpy")
        array = getattr(numpy, "ndarray", None)
        self._array = None if array in copyreg.dispatch_table else array

    def reducer_override(self, value: Any) -> Any:
        """What pickle asks about each object that it does not know itself."""
        if type(value) is not self._array or value.nbytes < OUT_OF_BAND or not self._is_items(value):
            return NotImplemented
        self.contents.append(value)
        return numbered, (len(self.contents) - 1,)

    def _is_items(self, array: Any) -> bool:
        kind = array.dtype
        is_plain = kind.kind in "biufcSUmM" and kind.isnative and kind.metadata is None
        # Before 5 the protocol forgets that an array was not to be written to.
        return is_plain and (self._protocol < 5 or array.flags.writeable)


def _pack(contents: list[Any], own: int, like: Optional[str]) -> Optional[list[Any]]:
    """The arrays and tensors as buffers that follow the pickle's ``own`` ones; ``None`` if one of them is no plain data."""
    try:
        stream, buffers = _fsgather._plain_encode(contents, like=like)
    except TypeError:
        return None
    return [*buffers, _COUNT.pack(own) + stream]


class _Current(threading.local):
    contents: list[Any] = []


_current = _Current()


def numbered(index: int) -> Any:
    """The array or tensor of this number in the object that is being unpickled."""
    return _current.contents[index]


class _Entries:
    """A list of pickles; unpickled it is the list of what was pickled."""

    def __init__(self, pickles: list[bytes]) -> None:
        self._pickles = pickles

    def __reduce__(self) -> Any:
        return _load_each, (self._pickles,)


def _load_each(pickles: list[bytes]) -> list[Any]:
    return [pickle.loads(each) for each in pickles]


def loads(kind: int, stream: Buffer, buffers: list[Any]) -> Any:
    """The object of a pickle; its large buffers stay where they are."""
    if kind == PICKLE:
        return without_collector(lambda: pickle.loads(stream, buffers=buffers))
    return without_collector(lambda: _loads_with_contents(stream, buffers))


def _loads_with_contents(stream: Buffer, buffers: list[Any]) -> Any:
    packed = memoryview(buffers[-1])
    (own,) = _COUNT.unpack_from(packed)
    outer = _current.contents
    _current.contents = _fsgather._plain_decode(bytes(packed[_COUNT.size :]), buffers[own:-1])
    try:
        return pickle.loads(stream, buffers=buffers[:own])
    finally:
        _current.contents = outer


def without_collector(work: Callable[[], Any]) -> Any:
    """Does something that makes many objects at once, while the collector of cycles pauses."""
    if not gc.isenabled():
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
