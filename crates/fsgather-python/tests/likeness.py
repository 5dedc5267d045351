"""What can be seen of an object, in words: two objects are alike if all of it is the same."""

from __future__ import annotations

import datetime
import enum
import functools
import re
import sys
import types
from typing import Any

__all__ = ["Aspects", "differences", "seen"]

#: What is seen, by aspect: a list of ``(place, text)`` each.
Aspects = "dict[str, list[tuple[str, str]]]"

#: Nobody can tell whether two of these are the same object, but by asking for just that.
_VALUES = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type, types.FunctionType, types.BuiltinFunctionType,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, enum.Enum, re.Pattern, type(...), type(NotImplemented),
)  # fmt: skip


def differences(left: Any, right: Any) -> dict[str, str]:
    """By aspect, where the first difference is; empty for objects that are alike."""
    one, other = seen(left), seen(right)
    found = {}
    for aspect in sorted({*one, *other}):
        pairs = zip([*one.get(aspect, []), None], [*other.get(aspect, []), None])
        found.update(next(({aspect: f"{a} and {b}"} for a, b in pairs if a != b), {}))
    return found


def seen(value: Any) -> Any:
    """All that can be seen of an object."""
    looking = _Looking()
    looking.at(value, "")
    looking.memory()
    return looking.aspects


class _Looking:
    def __init__(self) -> None:
        self.aspects: dict[str, list[tuple[str, str]]] = {}
        self.known: dict[int, str] = {}
        self.held: list[Any] = []
        #: Where arrays and tensors lie.
        self.ranges: list[tuple[str, int, int]] = []

    def note(self, aspect: str, place: str, what: Any) -> None:
        self.aspects.setdefault(aspect, []).append((place, what if isinstance(what, str) else repr(what)))

    def at(self, value: Any, place: str) -> None:
        kind = type(value)
        self.note("type", place, f"{kind.__module__}.{kind.__qualname__}")
        is_value = isinstance(value, _VALUES) or self._is_scalar(value)
        if not is_value and not (kind is tuple and not value):
            if id(value) in self.known:
                self.note("identity", place, f"the same as {self.known[id(value)]}")
                return
            self.known[id(value)] = place
            self.held.append(value)
            self.note("identity", place, "new")
        if is_value:
            self.value(value, place)
        elif not self.array(value, place) and not self.tensor(value, place):
            self.container(value, place)

    @staticmethod
    def _is_scalar(value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, numpy.generic) and type(value) is not numpy.void

    def value(self, value: Any, place: str) -> None:
        if self._is_scalar(value):
            self.note("value", place, f"{value.dtype.str} {value.tobytes().hex() if value.dtype != object else value!r}")
        elif isinstance(value, float):
            self.note("value", place, value.hex())
        elif isinstance(value, complex):
            self.note("value", place, f"{value.real.hex()} {value.imag.hex()}")
        elif isinstance(value, (type, types.FunctionType)):
            self.note("value", place, f"{value.__module__}.{value.__qualname__}")
        elif isinstance(value, types.BuiltinFunctionType):
            self.note("value", place, value.__qualname__)
        elif isinstance(value, datetime.tzinfo):
            self.note("value", place, f"{value.utcoffset(datetime.datetime(2024, 1, 1))} {value!r}".split(" at 0x")[0])
        elif isinstance(value, (datetime.datetime, datetime.time)):
            self.note("value", place, f"{value.replace(tzinfo=None)!r}")
            self.at(value.tzinfo, place + ".tzinfo")
        else:
            self.note("value", place, value)

    def container(self, value: Any, place: str) -> None:
        if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
            self.note("value", place, f"{len(value)} entries {getattr(value, 'maxlen', '')}")
            for index, entry in enumerate(value):
                self.at(entry, f"{place}[{index}]")
        elif isinstance(value, (set, frozenset)):
            self.note("value", place, f"{len(value)} entries")
            for entry in sorted(value, key=repr):
                self.at(entry, f"{place}{{{entry!r}}}")
        elif isinstance(value, dict):
            self.note("value", place, f"{len(value)} entries")
            for key, entry in value.items():
                self.at(key, f"{place} key {key!r}")
                self.at(entry, f"{place}[{key!r}]")
            if hasattr(value, "default_factory"):
                self.at(value.default_factory, place + ".default_factory")
        elif isinstance(value, functools.partial):
            self.at([value.func, value.args, value.keywords], place)
        elif isinstance(value, (bytearray,)) or type(value).__module__ in ("array", "decimal", "fractions", "pathlib", "uuid"):
            self.note("value", place, value)
        elif isinstance(value, BaseException):
            self.at(value.args, place + ".args")
        elif type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device", "layout", "memory_format"):
            self.note("value", place, value)
        elif type(value).__name__ == "UntypedStorage":
            self.note("value", place, bytes(value.tolist()).hex())
        elif type(value).__module__.startswith("PIL."):
            self.note("value", place, f"{value.mode} {value.size} {hash(value.tobytes())}")
        elif type(value).__module__.startswith("numpy.random"):
            self.at(value.bit_generator.state, place + ".state")
        elif type(value).__module__.startswith("numpy"):
            self.note("value", place, value)
        for name in getattr(type(value), "__slots__", ()):
            if isinstance(name, str) and hasattr(value, name) and not name.startswith("__"):
                self.at(getattr(value, name), f"{place}.{name}")
        for name, entry in sorted(getattr(value, "__dict__", {}).items()):
            # Numbers that a module draws for its hooks.
            if not re.search("hook|_version|_opt_called", name):
                self.at(entry, f"{place}.{name}")

    def array(self, value: Any, place: str) -> bool:
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, (numpy.ndarray, numpy.void)):
            return False
        self.note("value", place, f"{value.dtype.char} {value.shape}")
        self.note("byte order", place, f"{value.dtype.str} {value.dtype.metadata}")
        if value.dtype == object:
            self.at(value.tolist(), place + ".tolist()")
        else:
            native = numpy.ascontiguousarray(value.astype(value.dtype.newbyteorder("=")))
            self.note("value", place, f"{hash(native.tobytes())}")
        if isinstance(value, numpy.ndarray):
            self.note("strides", place, value.strides)
            flags = {name: bool(value.flags[name]) for name in ("C", "F", "WRITEABLE", "ALIGNED")}
            self.note("flags", place, flags)
            self.note("owns its memory", place, bool(value.flags.owndata))
            start = value.__array_interface__["data"][0]
            if value.size:
                low, high = numpy.lib.array_utils.byte_bounds(value) if hasattr(numpy.lib, "array_utils") else (start, start + 1)
                self.ranges.append((place, low, high))
        if isinstance(value, numpy.ma.MaskedArray):
            self.at(value.mask, place + ".mask")
        for name, entry in sorted(getattr(value, "__dict__", {}).items()):
            if not name.startswith("_"):
                self.at(entry, f"{place}.{name}")
        return True

    def tensor(self, value: Any, place: str) -> bool:
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "Tensor") or not isinstance(value, torch.Tensor):
            return False
        if value.is_nested:
            self.at(list(value.unbind()), place + ".unbind()")
            return True
        self.note("value", place, f"{value.dtype} {tuple(value.shape)} {value.layout}")
        self.note("device", place, value.device)
        self.note("flags", place, (value.requires_grad, value.is_leaf, value.is_conj(), value.is_neg(), value.is_quantized))
        self.note("inference", place, value.is_inference())
        self.note("gradient", place, value.grad is not None)
        if value.device.type != "meta":
            if value.layout is torch.strided:
                self.dense(value, place, torch)
            else:
                self.note("value", place, value.detach().clone().to_dense().tolist())
        for name, entry in sorted(value.__dict__.items()):
            self.at(entry, f"{place}.{name}")
        return True

    def dense(self, value: Any, place: str, torch: Any) -> None:
        storage = value.untyped_storage()
        self.note("strides", place, value.stride())
        self.note("storage", place, (value.storage_offset(), storage.nbytes()))
        self.note("can be made larger", place, storage.resizable())
        if storage.nbytes():
            self.ranges.append((place, storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        if value.is_quantized:
            self.note("value", place, f"{value.qscheme()} {value.dequantize().tolist()}")
            return
        with torch.no_grad():
            fresh = torch.empty(value.shape, dtype=value.dtype).copy_(value.detach())
            items = fresh.reshape(-1).view(torch.uint8)
            self.note("value", place, f"{hash(items.numpy().tobytes())}")

    def memory(self) -> None:
        """Which arrays and tensors lie in the same memory."""
        for index, (place, start, end) in enumerate(self.ranges):
            overlap = [other for other, low, high in self.ranges[:index] if low < end and start < high]
            self.note("sharing", place, overlap)
