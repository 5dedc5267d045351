"""Objects of every kind that programs hand to a gather, made anew by each call; torch's only where torch is imported."""

from __future__ import annotations

import array
import collections
import copyreg
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid
from typing import Any, Callable, Iterator, NamedTuple

__all__ = ["UNPICKLABLE", "all_kinds", "numpy_kinds", "python_kinds", "torch_kinds"]

Kinds = Iterator["tuple[str, Any]"]


class Point(NamedTuple):
    """A tuple with names."""

    x: Any
    y: Any = 2


@dataclasses.dataclass
class Box:
    """Not plain data, so that pickle carries what is in it."""

    content: Any
    label: str = "box"


class Color(enum.Enum):
    """An enumeration."""

    RED = 1
    BLUE = "blue"


class Level(enum.IntFlag):
    """Numbers that are more than numbers."""

    LOW = 1
    HIGH = 2


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("one", "other")

    def __init__(self, one: Any) -> None:
        self.one = one


class Stateful:
    """Says itself what is kept of it."""

    def __init__(self) -> None:
        self.kept, self.dropped = [1, 2], lambda: None

    def __getstate__(self) -> Any:
        return {"kept": self.kept}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state, dropped="made anew")


class ByProtocol:
    """Tells by which protocol it was pickled."""

    protocol = 0

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _by_protocol, (int(protocol),)


def _by_protocol(protocol: int) -> ByProtocol:
    made = ByProtocol()
    made.protocol = protocol
    return made


class Text(str):
    """A subclass of a plain type."""


class Numbers(list):  # type: ignore[type-arg]
    """A list with an attribute."""


class Table(dict):  # type: ignore[type-arg]
    """A dictionary that is more."""

    def __missing__(self, key: Any) -> Any:
        return key


class Zone(datetime.tzinfo):
    """A time zone of the program's own."""

    def utcoffset(self, _when: Any) -> datetime.timedelta:
        return datetime.timedelta(hours=1)

    def dst(self, _when: Any) -> datetime.timedelta:
        return datetime.timedelta(0)


class Registered:
    """Pickled as the program has registered it."""

    def __init__(self, content: Any) -> None:
        self.content = content


copyreg.pickle(Registered, lambda value: (Registered, (["by copyreg", value.content],)))  # type: ignore[arg-type]


def python_kinds() -> Kinds:
    """Those of Python itself."""
    yield "None", None
    yield "bools", [True, False]
    yield "ints", [0, 1, -1, 255, -129, 2**31, -(2**63), 2**64, 10**50]
    yield "floats", [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 5e-324]
    yield "complex", [1 + 2j, complex("nan"), -0j]
    yield "str", ["", "a", "ü" * 70, "\udc80", "x" * 70_000, "a\0b"]
    yield "bytes", [b"", b"\0" * 3, bytes(range(256)), b"x" * 70_000]
    yield "bytearray", [bytearray(b"abc"), bytearray(70_000)]
    yield "array.array", array.array("d", [1.0, 2.0])
    yield "large array.array", array.array("d", [1.0]) * 20_000
    yield "tuples", [(), (1,), (1, (2, (3,)))]
    yield "sets", [{1, 2}, set(), frozenset({("a", 1)}), {frozenset({1})}]
    yield "dicts", [{}, {"a": 1, 2: "b", None: 3, (1, 2): 4}, {"a": {"a": {"a": []}}}]
    yield "dicts of one shape", [{"id": index, "score": index / 3} for index in range(50)]
    shared = [1, 2]
    yield "shared list", [shared, shared, {"again": shared}]
    yield "shared, within an object", [shared, Box(shared), Box([shared])]
    tuple_shared = ([],)
    yield "shared tuple", [tuple_shared, tuple_shared]
    loop: Any = [1]
    loop.append(loop)
    yield "list in itself", loop
    ring: Any = {"name": "ring"}
    ring["self"] = [ring]
    yield "dict in itself", ring
    box = Box(None)
    box.content = {"back": box}
    yield "object in itself", box
    inside: Any = ([],)
    inside[0].append(inside)
    yield "tuple in itself", inside
    deep: Any = []
    for _ in range(250):
        deep = [deep]
    yield "deep", deep
    yield "namedtuple", [Point(1), Point([1], {"a": 2})]
    yield "dataclass", Box([1, "two", 3.0])
    yield "slots", Slotted([1])
    yield "getstate", Stateful()
    yield "reduce_ex", ByProtocol()
    yield "registered", [Registered(1), Registered([2])]
    yield "enums", [Color.RED, Color.BLUE, Level.LOW | Level.HIGH]
    yield "subclass of str", Text("text")
    numbers = Numbers([1, 2])
    numbers.label = "with an attribute"  # type: ignore[attr-defined]
    yield "subclass of list", numbers
    yield "subclass of dict", Table(a=1)
    yield "defaultdict", collections.defaultdict(list, {"a": [1]})
    yield "OrderedDict", collections.OrderedDict([("b", 1), ("a", 2)])
    yield "Counter", collections.Counter("abca")
    yield "deque", collections.deque([1, 2], maxlen=3)
    yield "ChainMap", collections.ChainMap({"a": 1}, {"b": 2})
    yield "namespace", types.SimpleNamespace(a=1, b=[2])
    yield "ranges", [range(3), range(10, 0, -2), slice(1, None, 2), Ellipsis, NotImplemented]
    yield "paths", [pathlib.PurePosixPath("/a/b"), pathlib.Path("c")]
    yield "decimals", [decimal.Decimal("1.10"), decimal.Decimal("NaN"), fractions.Fraction(1, 3)]
    yield "uuid", uuid.UUID(int=7)
    yield "pattern", re.compile("a+", re.IGNORECASE)
    yield "functions", [len, python_kinds, functools.partial(max, 1), Box, int, str.upper, [].append]
    utc = datetime.timezone.utc
    east = datetime.timezone(datetime.timedelta(hours=5, minutes=30), "east")
    yield "dates", [datetime.date(2024, 2, 29), datetime.timedelta(-1, 5, 7), datetime.time(1, 2, 3, 4, fold=1)]
    yield "datetimes", [datetime.datetime(2024, 1, 1, tzinfo=utc), datetime.datetime(2024, 1, 1, 2, tzinfo=east), east]
    yield "datetime with a zone of its own", datetime.datetime(2024, 1, 1, tzinfo=Zone())
    error = ValueError("wrong", 3)
    yield "exceptions", [error, KeyError("missing")]
    yield "class and instance", [Box, Box(1)]
    yield "predictions", [
        {"image_id": index, "bbox": [0.5, 1.0, 2.0, 4.0], "score": index / 7, "segmentation": {"size": [4, 4], "counts": b"abc"}}
        for index in range(20)
    ]


def _structured(numpy: Any) -> Any:
    return numpy.array([(1, 2.5, b"ab")], dtype=[("a", "i4"), ("b", "f8"), ("c", "S2")])


class _Numpy:
    """Subclasses of numpy's types, made where numpy is."""

    array: Any = None
    number: Any = None


def numpy_kinds() -> Kinds:
    """Those of numpy."""
    import numpy

    if _Numpy.array is None:
        _Numpy.array = type("SubArray", (numpy.ndarray,), {"__module__": __name__})
        _Numpy.number = type("SubNumber", (numpy.float64,), {"__module__": __name__})
        globals().update(SubArray=_Numpy.array, SubNumber=_Numpy.number)
    for name in ("?", "b", "B", "h", "H", "i", "I", "l", "L", "e", "f", "d", "g", "F", "D", "G"):
        yield f"array of {name}", numpy.arange(6).reshape(2, 3).astype(name)
        yield f"scalar of {name}", numpy.ones(1, dtype=name)[0]
    yield "array of S", numpy.array([b"a", b"bcd"])
    yield "array of U", numpy.array(["a", "bücd"])
    yield "scalars of SU", [numpy.str_("text"), numpy.bytes_(b"bytes")]
    yield "array of M", numpy.array(["2024-01-01", "NaT"], dtype="M8[ns]")
    yield "array of m", numpy.array([1, 2], dtype="m8[25s]")
    yield "scalars of Mm", [numpy.datetime64("2024-01-01T01"), numpy.timedelta64(3, "D"), numpy.datetime64("NaT")]
    yield "array of objects", numpy.array([[1], None, "a"], dtype=object)
    yield "structured array", _structured(numpy)
    yield "structured scalar", _structured(numpy)[0]
    yield "array of V", numpy.zeros(2, "V5")
    yield "dtype", [numpy.dtype("f4"), _structured(numpy).dtype]
    yield "dtype with metadata", numpy.ones(2, numpy.dtype("i4", metadata={"unit": "m"}))
    for size in (5, 2_000, 20_000):
        whole = numpy.arange(float(size * 4)).reshape(4, size)
        yield f"array, {size}", whole.copy()
        yield f"Fortran array, {size}", numpy.asfortranarray(whole)
        yield f"array with gaps, {size}", whole[:, ::2]
        yield f"array backwards, {size}", whole[::-1]
        yield f"transposed array, {size}", whole.T
        yield f"3-d transposed array, {size}", whole.reshape(2, 2, size).transpose(1, 2, 0)
        yield f"broadcast array, {size}", numpy.broadcast_to(whole[0], (3, size))
        yield f"array of the other order, {size}", whole.astype(whole.dtype.newbyteorder("S"))
        yield f"ints of the other order, {size}", whole.astype(">i4")
        yield f"times of the other order, {size}", whole.astype("i8").view("M8[s]").astype(">M8[s]")
        fixed = whole.copy()
        fixed.setflags(write=False)
        yield f"array that cannot be written to, {size}", fixed
        yield f"the same within an object, {size}", Box([fixed, whole.T, whole.astype(">f8"), whole[:, 1:3]])
        yield f"array twice, {size}", [whole, whole, Box(whole)]
        yield f"arrays of one memory, {size}", [whole, whole[1:], whole.reshape(-1)]
        yield f"arrays of one memory within an object, {size}", Box([whole, whole[1:], whole.reshape(-1)])
        yield f"structured array, {size}", numpy.zeros(size, _structured(numpy).dtype)
        yield f"array in unaligned memory, {size}", numpy.zeros(size * 8 + 1, "u1")[1:].view("f8")
    yield "array of no dimension", numpy.array(7)
    yield "empty arrays", [numpy.zeros(0), numpy.zeros((2, 0, 3)), numpy.zeros((0, 5), order="F")]
    yield "masked array", numpy.ma.masked_array([1, 2, 3], mask=[0, 1, 0])
    yield "matrix", numpy.ones((2, 2)).view(numpy.matrix)
    yield "record array", numpy.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    yield "subclass of ndarray", numpy.ones(3).view(_Numpy.array)
    yield "subclass of float64", _Numpy.number(1.5)
    yield "memory of a file", _memmap(numpy)
    yield "polynomial", numpy.polynomial.Polynomial([1, 2])
    yield "random generator", numpy.random.default_rng(1)
    yield "ufunc", numpy.add


def _memmap(numpy: Any) -> Any:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        mapped = numpy.memmap(file.name, dtype="i4", mode="w+", shape=(5,))
    mapped[:] = 3
    return mapped


class _Torch:
    """Subclasses of torch's types, made where torch is."""

    tensor: Any = None
    parameter: Any = None
    module: Any = None


def _torch_types(torch: Any) -> None:
    if _Torch.tensor is None:
        _Torch.tensor = type("SubTensor", (torch.Tensor,), {"__module__": __name__})
        _Torch.parameter = type("SubParameter", (torch.nn.Parameter,), {"__module__": __name__})
        _Torch.module = type("SubModule", (torch.nn.Module,), {"__module__": __name__})
        globals().update(SubTensor=_Torch.tensor, SubParameter=_Torch.parameter, SubModule=_Torch.module)


TYPES = (
    "float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool", "complex64",
    "complex128", "complex32", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64",
)  # fmt: skip


def torch_kinds() -> Kinds:
    """Those of torch."""
    import torch

    _torch_types(torch)
    for name in TYPES:
        if hasattr(torch, name):
            yield f"tensor of {name}", torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    yield "tensor of no dimension", torch.tensor(7.5)
    yield "empty tensors", [torch.zeros(0), torch.zeros(2, 0, 3), torch.zeros(0, dtype=torch.int64)]
    yield "tensor twice", [(tensor := torch.ones(3)), tensor, {"again": tensor}, Box(tensor)]
    for size in (8, 40_000):
        base = torch.arange(float(size))
        yield f"tensor, {size}", base.clone()
        yield f"tensors of one memory, {size}", [base, base[2:5], base.view(2, -1)]
        yield f"tensors of one memory within an object, {size}", Box([base, base[2:5], base.view(2, -1)])
        yield f"tensor and its alias, {size}", [base, base.detach(), base.view_as(base)]
        yield f"view, {size}", base[3:7]
        yield f"view with gaps, {size}", base[::3]
        yield f"transposed, {size}", base.reshape(2, -1).clone().t()
        yield f"channels last, {size}", base.reshape(2, 2, 2, -1).clone().to(memory_format=torch.channels_last)
        yield f"with gradient, {size}", base.clone().requires_grad_()
        yield f"array and tensor of one memory, {size}", _one_memory(torch, size)
    yield "expanded", torch.arange(4.0).expand(3, 4)
    yield "expanded from one", torch.ones(1).expand(1000)
    yield "expanded from a view", torch.arange(50.0)[3:7].expand(3, 4)
    yield "overlapping", torch.arange(5.0).as_strided((3, 3), (1, 1))
    yield "transposed view", torch.arange(24.0).reshape(4, 6)[1:3, 1:4].t()
    yield "one of many rows", torch.arange(24.0).reshape(4, 6)[2]
    yield "conjugated", torch.tensor([1 + 2j]).conj()
    yield "negative", torch.tensor([1 + 2j]).conj().imag
    yield "real part", torch.tensor([1 + 2j]).real
    yield "not a number", torch.tensor([0x7FC0_0001, 0x7F80_0001], dtype=torch.int32).view(torch.float32)
    yield "parameter", torch.nn.Parameter(torch.ones(3))
    yield "parameter without gradient", torch.nn.Parameter(torch.ones(3), requires_grad=False)
    yield "buffer", torch.nn.Buffer(torch.ones(3)) if hasattr(torch.nn, "Buffer") else None
    result = torch.ones(3, requires_grad=True) * 2
    yield "detached result", result.detach()
    leaf = torch.ones(3, requires_grad=True)
    (leaf * 2).sum().backward()
    yield "with a gradient that was computed", leaf
    with torch.inference_mode():
        yield "inference tensor", torch.ones(3)
        yield "inference tensor, view", torch.ones(30)[3:9]
    attributed = torch.ones(3)
    attributed.label = {"a": [1]}
    yield "with an attribute", [attributed, torch.ones(2)]
    yield "subclass", torch.ones(3).as_subclass(_Torch.tensor)
    yield "subclass with an attribute", _attributed(torch.ones(3).as_subclass(_Torch.tensor))
    yield "subclass of a parameter", _Torch.parameter(torch.ones(2))
    yield "sparse", torch.eye(3).to_sparse()
    yield "sparse rows", torch.eye(3).to_sparse_csr()
    yield "quantized", torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.quint8)
    yield "quantized by channel", torch.quantize_per_channel(
        torch.ones(2, 2), torch.tensor([0.5, 0.25]), torch.tensor([0, 1]), 0, torch.qint8
    )
    yield "on no device", torch.ones(3, device="meta")
    yield "nested", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    yield "shared with children", torch.ones(5).share_memory_()
    yield "size", [torch.Size([1, 2]), torch.ones(2, 3).shape]
    yield "types", [torch.float32, torch.strided, torch.device("cpu"), torch.device("cuda", 3), torch.contiguous_format]
    yield "storages", [torch.ones(3).untyped_storage(), torch.ones(2).untyped_storage()]
    yield "tensor and its storage", [(kept := torch.arange(3.0)), kept.untyped_storage()]
    linear = torch.nn.Linear(2, 3)
    with torch.no_grad():
        linear.weight.fill_(0.5)
        linear.bias.fill_(1.5)
    yield "module", linear
    tied = torch.nn.ModuleList([linear, linear])
    yield "tied modules", tied
    yield "state of a module", linear.state_dict()
    yield "tied state", tied.state_dict()
    module = _Torch.module()
    module.register_buffer("count", torch.zeros(2))
    module.extra = {"of": ["its", "own"]}
    yield "module with a buffer", module
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
    yield "state of an optimizer", optimizer.state_dict()
    yield "flat parameters", _flat(torch)
    yield "predictions of a detector", [
        {"boxes": torch.arange(8.0).reshape(2, 4), "scores": torch.tensor([0.5, 0.25]), "labels": torch.tensor([1, 2])}
        for _ in range(5)
    ]
    batch = torch.arange(60_000.0).reshape(6, -1)
    yield "rows of a batch", [{"row": row, "index": index} for index, row in enumerate(batch)]
    yield "split of a batch", list(batch.split(2))
    yield "distribution", torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    yield "random state", torch.Generator().manual_seed(7).get_state()[:100].clone()
    yield "packed sequence", torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])


def _attributed(tensor: Any) -> Any:
    tensor.label = "of its own"
    return tensor


def _one_memory(torch: Any, size: int) -> Any:
    import numpy

    shared = numpy.arange(float(size))
    return [shared, torch.from_numpy(shared), torch.from_numpy(shared)[1:3]]


def _flat(torch: Any) -> Any:
    flat = torch.arange(30.0)
    return {"flat": flat, "weight": flat[:20].view(4, 5), "bias": flat[20:]}


def pillow_kinds() -> Kinds:
    """Those of Pillow, if it is there."""
    try:
        from PIL import Image
    except ImportError:
        return
    yield "image", Image.new("RGB", (30, 20), (1, 2, 3))
    yield "large image", Image.new("L", (300, 400), 7)


def all_kinds() -> Kinds:
    """All that can be made here."""
    import importlib.util

    yield from python_kinds()
    for module, kinds in (("numpy", numpy_kinds), ("torch", torch_kinds), ("PIL", pillow_kinds)):
        if importlib.util.find_spec(module) is not None:
            yield from kinds()


#: What no pickle can hold.
UNPICKLABLE: dict[str, Callable[[], Any]] = {
    "lambda": lambda: lambda: None,
    "generator": lambda: (number for number in range(3)),
    "file": lambda: open("/dev/null"),
    "module": lambda: [re],
    "within": lambda: Box([lambda: None]),
    "one of many": lambda: [1, [2.0, {"a": lambda: None}]],
}
