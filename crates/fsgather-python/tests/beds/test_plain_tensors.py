"""torch's tensors through the codec for plain data."""

import gc
import struct
import weakref

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_support import assert_as_pickle, assert_same, decode, encode, received, through

DTYPES = [
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "uint8", "int8", "int16", "int32",
    "int64", "uint16", "uint32", "uint64", "bool", "complex64", "complex128",
]  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3), (200, 300)])
def test_each_type_of_items(name, shape):
    tensor = (torch.randn(shape) * 5).to(getattr(torch, name))
    # Not compared with pickle: torch 2.15 cannot load its own pickles of float8 and of uint16 to uint64.
    value = [tensor, {"a": tensor}]
    assert_same(through(value), value)
    back = through(tensor)
    assert back.stride() == tensor.stride()


def test_what_is_no_number_keeps_its_bits():
    tensor = torch.tensor([0x7FC0_0001, -1, 0x7F80_0001], dtype=torch.int32).view(torch.float32)
    assert torch.equal(through(tensor).view(torch.int32), tensor.view(torch.int32))


def test_large_tensors_are_views_of_what_was_received():
    tensor = torch.arange(40_000, dtype=torch.float32).reshape(200, 200)
    for each in (tensor, tensor.t(), tensor.reshape(2, 2, 100, 100).to(memory_format=torch.channels_last)):
        stream, buffers = encode(each)
        assert len(stream) < 60
        assert [len(buffer) for buffer in buffers] == [160_000]
        memory = received(buffers)
        back = decode(stream, memory)
        assert_same(back, each)
        assert back.stride() == each.stride()
        before = bytes(memory[0])
        back.zero_()
        assert bytes(memory[0]) == bytes(160_000) != before


def test_small_tensors_can_be_resized():
    back = through(torch.ones(3))
    back.resize_(100)
    assert back[:3].tolist() == [1, 1, 1]


def test_a_view_carries_only_its_own_items():
    large = torch.arange(1 << 20)
    for view in (large[5:9], large[::4000], large.reshape(1024, 1024)[:, 7], large.reshape(1024, 1024)[3:7, 5:9].t()):
        stream, buffers = encode(view)
        assert len(stream) + sum(map(len, buffers)) < view.numel() * 8 + 100
        assert_as_pickle(view)


def test_repeated_items_are_carried_once():
    tensor = torch.ones(1).expand(1000, 1000)
    stream, _ = encode(tensor)
    assert len(stream) < 100
    assert_as_pickle(tensor)
    assert through(tensor).stride() == (0, 0)


@pytest.mark.parametrize("size", [100, 100_000])
def test_storage_that_is_shared_stays_shared(size):
    base = torch.arange(size, dtype=torch.float32)
    value = {"low": base[10:30], "bits": base.view(torch.int32)[11:14], "rows": base[20:40].reshape(4, 5).t(), "own": base[:50].clone()}
    stream, buffers = encode(value)
    assert len(stream) + sum(map(len, buffers)) < 700
    back = through(value)
    assert_same(back, value)
    back["low"][10] = 77
    assert back["rows"][0, 0] == 77
    back["low"][1] = 0
    assert back["bits"][0] == 0
    assert back["own"][20] == 20
    assert back["low"].untyped_storage().data_ptr() == back["bits"].untyped_storage().data_ptr()
    assert back["low"].untyped_storage().data_ptr() != back["own"].untyped_storage().data_ptr()


def test_large_storage_that_is_shared_stays_shared():
    base = torch.arange(100_000)
    value = [base, base[1:], base.reshape(100, 1000)[:, 3], base]
    back = through(value)
    assert_same(back, value)
    assert back[0] is back[3]
    back[0][1] = -1
    assert back[1][0] == -1
    assert back[2].stride() == (1000,)


def test_storages_of_several_sizes_at_one_address():
    array = numpy.arange(100)
    value = [torch.from_numpy(array[:10]), torch.from_numpy(array), torch.from_numpy(array[:3])]
    assert_same(through(value), value)


def test_gradients_are_asked_for_again():
    tensor = torch.ones(3, requires_grad=True)
    back = through([tensor, tensor.detach()])
    assert back[0].requires_grad
    assert back[0].is_leaf
    assert not back[1].requires_grad
    (back[0] * 2).sum().backward()
    assert back[0].grad.tolist() == [2, 2, 2]


def with_hook():
    tensor = torch.ones(2, requires_grad=True)
    tensor.register_hook(lambda grad: grad)
    return tensor


def with_attribute():
    tensor = torch.ones(2)
    tensor.note = 1
    return tensor


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: torch.nn.Parameter(torch.ones(2)), "torch.nn.parameter.Parameter"),
        (lambda: torch.ones(2, requires_grad=True) * 2, r"with a history \(grad_fn\)"),
        (with_hook, "with hooks"),
        (with_attribute, "with attributes of its own"),
        (lambda: torch.ones(2, 2).to_sparse(), "of layout torch.sparse_coo"),
        (lambda: torch.ones(2, device="meta"), "on device meta"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), "quantised"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), "conjugated"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, "negated"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested"),
        (lambda: torch._efficientzerotensor(2), "without memory"),
        pytest.param(
            lambda: torch.ones(2, 2, names=("a", "b")),
            "with names",
            marks=pytest.mark.skipif(not hasattr(torch.Tensor, "names"), reason="this torch has no names"),
        ),
        (lambda: torch.float32, "torch.dtype"),
        (lambda: torch.device("cpu"), "torch.device"),
        (lambda: torch.ones(2).untyped_storage(), "UntypedStorage"),
        (lambda: torch.Size([1]), "torch.Size"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_anything_else_is_refused(make, what):
    value = make()
    with pytest.raises(TypeError, match="not plain data: .*" + what + r".* at \[0\]\['a'\]"):
        encode([{"a": value}])


def test_what_is_borrowed_is_given_back():
    tensor = torch.ones(100_000)
    gone = weakref.ref(tensor)
    stream, buffers = encode(tensor)
    del tensor
    assert bytes(buffers[0][:4]) == struct.pack("<f", 1)
    del buffers
    gc.collect()
    assert gone() is None
    back = decode(stream, [bytearray(400_000)])
    assert back.sum() == 0


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_mutated_tensors_do_no_harm(data):
    base = torch.arange(20)
    stream = bytearray(encode([base[2:9], base[5:].reshape(3, 5), torch.ones((), dtype=torch.bool)])[0])
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        back = decode(bytes(stream))
    except ValueError as error:
        assert "bad plain data at byte" in str(error)
    else:
        for tensor in back if isinstance(back, list) else []:
            if isinstance(tensor, torch.Tensor) and tensor.numel() < 10_000:
                tensor.clone()


def test_truncated_tensors_are_refused():
    stream, _ = encode([torch.ones(3), 5])
    for length in range(len(stream)):
        with pytest.raises(ValueError, match="bad plain data at byte"):
            decode(stream[:length])


def table(tensor, body=b"\x21\x00"):
    storages = b"\x01\x00\x08" + bytes(8)
    start = 2 + len(body)
    return b"\x01\x01" + body + storages + b"\x01" + tensor + struct.pack("<Q", start)


@pytest.mark.parametrize(
    ("tensor", "what"),
    [
        (b"\x01\x05uint8\x00\x00\x00", "storage 1 of 1"),
        (b"\x00\x05uint8\x00\x09\x00", "beyond its storage"),
        (b"\x00\x05uint8\x00\x00\x01\x09\x01", "beyond its storage"),
        (b"\x00\x05int64\x00\x01\x00", "beyond its storage"),
        (b"\x00\x05uint8\x00\x00\x02\x02\x08\x02\x01", "beyond its storage"),
        (b"\x00\x05uint8\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01", "beyond its storage"),
        (b"\x00\x06quint8\x00\x00\x00", "has no type"),
        (b"\x00\x04load\x00\x00\x00", "has no type"),
        (b"\x00\x06_utils\x00\x00\x00", "has no type"),
        (b"\x00\x05a.b.c\x00\x00\x00", "no type of items"),
        (b"\x00\x05uint8\x02\x00\x00", "2 as a flag"),
        (b"\x00\x05uint8\x01\x00\x00", "floating point"),
        (b"\x00\x05uint8\x00\x00\x02" + (b"\xff" * 8 + b"\x3f\x00") * 2, ""),
    ],
)
def test_tables_that_nobody_encodes_are_refused(tensor, what):
    assert decode(table(b"\x00\x05uint8\x00\x00\x01\x08\x01")).tolist() == [0] * 8
    with pytest.raises(ValueError, match="bad plain data at byte") as raised:
        decode(table(tensor))
    assert what in str(raised.value)
    with pytest.raises(ValueError, match="tensor 5 is not there"):
        decode(table(b"\x00\x05uint8\x00\x00\x01\x08\x01", b"\x21\x05"))
