"""What tests of the codec for plain data compare with: pickle's result, down to types, order and identity."""

import datetime
import pickle
import struct
from typing import Any, Dict, List, Optional, Tuple

from fsgather import _fsgather


def encode(value: Any) -> Tuple[bytes, List[memoryview]]:
    """The stream and the buffers beside it."""
    return _fsgather._plain_encode(value)


def received(buffers: List[memoryview]) -> List[Any]:
    """The same content in memory of its own, as a gather hands it over."""
    return [_fsgather._memory(bytes(buffer), [(0, len(buffer))])[0] for buffer in buffers]


def decode(stream: bytes, buffers: Optional[List[Any]] = None) -> Any:
    """The value."""
    return _fsgather._plain_decode(stream, buffers or [])


def through(value: Any) -> Any:
    """There and back."""
    stream, buffers = encode(value)
    return decode(stream, received(buffers))


def _float_bits(value: float) -> bytes:
    return struct.pack("<d", value)


def assert_same(left: Any, right: Any) -> None:
    """Both have the same types, contents, order, and references within themselves."""
    _Comparison().compare(left, right, "value")


# Small ones of these are the same objects everywhere, and pickle copies the others.
_VALUES = (type(None), bool, int, float, complex, str, bytes)


class _Comparison:
    def __init__(self) -> None:
        self.known: Dict[int, int] = {}
        self.known_back: Dict[int, int] = {}
        self.held: List[Any] = []

    def met(self, left: Any, right: Any, place: str) -> bool:
        """Whether this pair was met before, in which case it is the same object on both sides."""
        for known, one, other in (
            (self.known, left, right),
            (self.known_back, right, left),
        ):
            if id(one) in known:
                assert known[id(one)] == id(other), f"{place}: shared on one side only"
        again = id(left) in self.known
        self.known[id(left)] = id(right)
        self.known_back[id(right)] = id(left)
        self.held += [left, right]
        return again

    def compare(self, left: Any, right: Any, place: str) -> None:
        kind = type(left)
        assert kind is type(right), f"{place}: {kind} and {type(right)}"
        if kind is float:
            assert _float_bits(left) == _float_bits(right), place
        elif kind is complex:
            self.compare(left.real, right.real, place + ".real")
            self.compare(left.imag, right.imag, place + ".imag")
        elif kind in _VALUES:
            assert left == right, place
        elif kind in (tuple, frozenset) and not left:
            assert not right, place
        elif not self.met(left, right, place):
            self.contents(left, right, place)

    def contents(self, left: Any, right: Any, place: str) -> None:
        if isinstance(left, (list, tuple, set, frozenset)):
            assert len(left) == len(right), place
            for index, (one, other) in enumerate(zip(left, right)):
                self.compare(one, other, f"{place}[{index}]")
        elif isinstance(left, dict):
            assert len(left) == len(right), place
            for (key, one), (other_key, other) in zip(left.items(), right.items()):
                self.compare(key, other_key, f"{place} key {key!r}")
                self.compare(one, other, f"{place}[{key!r}]")
        elif isinstance(left, (datetime.time, datetime.datetime)):
            assert left.replace(tzinfo=None) == right.replace(tzinfo=None), place
            assert left.fold == right.fold, place
            self.compare(left.tzinfo, right.tzinfo, place + ".tzinfo")
        elif isinstance(left, datetime.timezone):
            assert repr(left) == repr(right), place
        elif isinstance(left, (bytearray, datetime.date, datetime.timedelta)):
            assert left == right, place
        elif type(left).__module__ == "numpy":
            self.arrays(left, right, place)
        else:
            self.tensors(left, right, place)

    def arrays(self, left: Any, right: Any, place: str) -> None:
        assert left.dtype == right.dtype, place
        assert left.dtype.str == right.dtype.str, place
        assert left.shape == right.shape, place
        assert left.tobytes() == right.tobytes(), place
        if hasattr(left, "flags"):
            for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS"):
                assert left.flags[flag] == right.flags[flag], f"{place}: {flag}"

    def tensors(self, left: Any, right: Any, place: str) -> None:
        import torch

        assert left.dtype == right.dtype, place
        assert left.shape == right.shape, place
        assert left.requires_grad == right.requires_grad, place
        one, other = (
            each.detach().contiguous().reshape(-1).view(torch.uint8) for each in (left, right)
        )
        assert torch.equal(one, other), place


def assert_as_pickle(value: Any) -> None:
    """What comes back is what pickle gives back."""
    assert_same(through(value), pickle.loads(pickle.dumps(value, protocol=5)))
