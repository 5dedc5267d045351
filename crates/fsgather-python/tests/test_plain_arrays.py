"""numpy's arrays and scalars through the codec for plain data."""

import datetime
import struct

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_support import assert_as_pickle, decode, encode, received, through

from hypothesis.extra import numpy as numpy_strategies  # noqa: E402

item_types = st.one_of(
    numpy_strategies.boolean_dtypes(),
    numpy_strategies.integer_dtypes(endianness="?"),
    numpy_strategies.unsigned_integer_dtypes(endianness="?"),
    numpy_strategies.floating_dtypes(endianness="?"),
    numpy_strategies.complex_number_dtypes(endianness="?"),
    numpy_strategies.datetime64_dtypes(endianness="?"),
    numpy_strategies.timedelta64_dtypes(endianness="?"),
    numpy_strategies.byte_string_dtypes(endianness="?", min_len=1),
    numpy_strategies.unicode_string_dtypes(endianness="?", min_len=1),
)
shapes = numpy_strategies.array_shapes(min_dims=0, min_side=0, max_dims=4, max_side=5)
arrays = item_types.flatmap(lambda dtype: numpy_strategies.arrays(dtype, shapes))


def laid_out(array):
    """The same items in other orders in memory."""
    yield array
    yield array.T
    yield numpy.asfortranarray(array)
    if array.ndim:
        yield array[::2]
        yield array[::-1]
    if array.ndim > 2:
        yield array.transpose(1, 0, *range(2, array.ndim))


def assert_as_array(array):
    """What comes back is what pickle gives back; releases of numpy differ in what that is for two kinds of arrays.

    Ours keeps the order of bytes, and puts items with gaps between them in C order.
    """
    in_order = array.flags.c_contiguous or array.flags.f_contiguous
    if array.dtype.isnative and in_order:
        assert_as_pickle([array, {"a": array}])
    back = through(array)
    assert in_order or back.flags.c_contiguous
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@settings(deadline=None, max_examples=300)
@given(arrays)
def test_arrays_come_back_as_from_pickle(array):
    for each in laid_out(array):
        assert_as_array(each)


@settings(deadline=None, max_examples=200)
@given(item_types, st.data())
def test_scalars_come_back_as_from_pickle(dtype, data):
    if dtype.kind in "SU":
        return
    array = data.draw(numpy_strategies.arrays(dtype, 2))
    assert_as_pickle([array[0], array[1], array[0]])


@pytest.mark.parametrize("name", ["g", "G", "q", "Q", "l", "p", "e", "?", "M8", "m8", "M8[25s]"])
def test_each_type_of_items(name):
    assert_as_pickle(numpy.ones((2, 3), dtype="i8").astype(name))


def test_large_arrays_are_views_of_what_was_received():
    for array in laid_out(numpy.arange(60_000, dtype="f4").reshape(200, 300)):
        assert_as_pickle(array)
        stream, buffers = encode(array)
        assert len(stream) < 30
        memory = received(buffers)
        back = decode(stream, memory)
        assert back.flags.writeable
        assert not back.flags.owndata
        whole = numpy.frombuffer(memory[0], dtype="f4")
        assert numpy.shares_memory(back, whole)
        back[0, 0] = 77
        assert whole[0] == 77 or array.strides[0] < 0


def test_large_times_lie_beside_the_stream():
    array = numpy.arange(20_000).astype("M8[s]").reshape(100, 200)
    for each in (array, array.T, array.astype(">M8[us]")):
        stream, buffers = encode(each)
        assert len(buffers) == 1
        assert len(stream) < 40
        assert_as_array(each)


def test_small_arrays_can_be_written_to():
    frozen = numpy.arange(3)
    frozen.flags.writeable = False
    assert through(frozen).flags.writeable
    assert through(numpy.broadcast_to(numpy.float32(1), (3, 3))).flags.writeable


def test_shared_arrays_stay_shared():
    array = numpy.arange(3)
    back = through([array, array, array.copy(), {"a": array}])
    assert back[0] is back[1] is back[3]["a"]
    assert back[0] is not back[2]


def test_many_arrays_of_strings_share_the_name_of_their_type():
    stream, _ = encode([numpy.array(["abc"]) for _ in range(1000)])
    assert len(stream) < 1000 * 20
    assert_as_pickle([numpy.array(["abc"]), numpy.array(["abcd"]), numpy.array(["abc"])])


class Sub(numpy.ndarray):
    pass


class Score(numpy.float64):
    pass


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (numpy.array([None]), "numpy.ndarray of object"),
        (numpy.zeros(2, dtype=[("a", "f4")]), "numpy.ndarray of"),
        (numpy.zeros(2, dtype="V3"), "numpy.ndarray of"),
        (numpy.zeros(2, dtype=numpy.dtype("f8", metadata={"a": 1})), "numpy.ndarray of float64"),
        (numpy.zeros(2).view(Sub), "test_plain_arrays.Sub"),
        (numpy.ma.masked_array([1, 2]), "MaskedArray"),
        (Score(1), "test_plain_arrays.Score"),
        (numpy.str_("a"), "numpy.str_"),
        (numpy.bytes_(b"a"), "numpy.bytes_"),
        (numpy.void(b"a"), "numpy.ndarray of"),
        (numpy.zeros((2, 2)).view(numpy.recarray), "recarray"),
        (numpy.dtype("f4"), "numpy.dtype"),
        (numpy.float64, "type"),
    ],
)
def test_anything_else_is_refused(value, name):
    with pytest.raises(TypeError, match="not plain data") as raised:
        encode({"a": [value]})
    assert name in str(raised.value)
    assert str(raised.value).endswith(" at ['a'][0]")


ARRAY, BESIDE, SCALAR = b"\x1f", b"\x20", b"\x1e"


def stream(tag, name, rest):
    return b"\x01\x00" + tag + b"\x00" + bytes([len(name)]) + name + rest


@pytest.mark.parametrize(
    "name",
    [b"O", b"|O8", b"<f4,O", b"<f", b"<f0", b"|V8", b"<U0", b"<f3", b"f4", b"<f4[s]", b"|S-1", b"", b"\xff\xff"]
    + [b"<M8[", b"<M8[xx]", b"<M8[s", b"<M8[]", b"|S999999999999", b"<b1a", b"<i8\x00", "<é8".encode()],
)
def test_types_of_items_that_nobody_encodes_are_refused(name):
    for rest in (b"\x00\x00", b"\x00\x01\x00", b"\x00\x01\x01" + bytes(16)):
        for tag in (ARRAY, SCALAR):
            with pytest.raises(ValueError, match="bad plain data at byte"):
                decode(stream(tag, name, rest))


def number(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


@pytest.mark.parametrize(
    "shape",
    [(1 << 62,), (1 << 32, 1 << 32), (1 << 40,), (0, 1 << 62), (3,), (1 << 63, 0), (1,) * 65, (1,) * 200],
)
def test_shapes_that_do_not_fit_are_refused(shape):
    rest = b"\x00" + number(len(shape)) + b"".join(number(each) for each in shape)
    with pytest.raises(ValueError, match="bad plain data at byte"):
        decode(stream(ARRAY, b"<f8", rest + b"\x00" * 8 + b"x"))
    with pytest.raises(ValueError, match="bad plain data at byte"):
        decode(stream(BESIDE, b"<f8", rest + b"\x00"), [bytearray(16)])


def test_buffers_have_to_be_of_the_right_length():
    content, buffers = encode(numpy.zeros(9000))
    for length in (0, 71_999, 72_001):
        with pytest.raises(ValueError, match="72000 bytes wanted, a buffer of"):
            decode(content, [bytearray(length)])
    with pytest.raises(ValueError, match="buffer 0 of 0"):
        decode(content, [])


@settings(deadline=None, max_examples=300)
@given(arrays, st.data())
def test_mutated_arrays_do_no_harm(array, data):
    mutated = bytearray(encode([array, array[()]])[0] if array.dtype.kind not in "SU" else encode(array)[0])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, 1 << 16)) % len(mutated)
        mutated[place] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(mutated))
    except ImportError:
        # Tensors are announced, and torch is not installed.
        pass
    except ValueError as error:
        assert "bad plain data at byte" in str(error)
    else:
        # numpy looks at the letters of a string when it is asked for one, and not before.
        if array.dtype.kind != "U":
            repr(found)


zones = st.none() | st.builds(
    datetime.timezone,
    st.timedeltas(min_value=datetime.timedelta(hours=-23), max_value=datetime.timedelta(hours=23)),
) | st.sampled_from(
    [datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=1), "CET"), datetime.timezone.min]
)
dates = st.one_of(
    st.dates(),
    st.timedeltas(),
    zones,
    st.builds(datetime.datetime.combine, st.dates(), st.times(), zones),
    st.builds(lambda time, zone, fold: time.replace(tzinfo=zone, fold=fold), st.times(), zones, st.integers(0, 1)),
    st.builds(lambda moment, fold: moment.replace(fold=fold), st.datetimes(), st.integers(0, 1)),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(dates, max_size=4))
def test_dates_come_back_as_from_pickle(value):
    assert_as_pickle([value, value, {each: 1 for each in value if isinstance(each, datetime.date)}])


def test_extreme_dates():
    assert_as_pickle([datetime.datetime.min, datetime.datetime.max, datetime.timedelta.min, datetime.timedelta.max])
    assert through(datetime.timezone.utc) is datetime.timezone.utc
    zone = datetime.timezone(datetime.timedelta(hours=2))
    back = through([datetime.datetime(2000, 1, 1, tzinfo=zone), datetime.time(1, tzinfo=zone), zone])
    assert back[0].tzinfo is back[1].tzinfo is back[2]


class OwnZone(datetime.tzinfo):
    pass


class OwnDate(datetime.date):
    pass


def test_time_zones_with_rules_and_subclasses_are_left_to_pickle():
    with pytest.raises(TypeError, match=r"test_plain_arrays.OwnZone at \[0\].tzinfo"):
        encode([datetime.datetime(2000, 1, 1, tzinfo=OwnZone())])
    with pytest.raises(TypeError, match="OwnDate"):
        encode(OwnDate(2000, 1, 1))


@pytest.mark.parametrize(
    "state", [(0, 1, 1), (2001, 2, 29), (2000, 13, 1), (2000, 0, 1), (2000, 4, 31), (2000, 1, 0), (10_000, 1, 1)]
)
def test_dates_that_do_not_exist_are_refused(state):
    content = struct.pack(">HBB", *state)
    with pytest.raises(ValueError, match="no such date"):
        decode(b"\x01\x00\x19" + content)
    with pytest.raises(ValueError, match="no such date"):
        decode(b"\x01\x00\x1b" + content + bytes(6) + b"\x00")


@pytest.mark.parametrize("state", [b"\x18" + bytes(5), b"\x00\x3c" + bytes(4), b"\x00\x00\x00\xff\xff\xff"])
def test_times_that_do_not_exist_are_refused(state):
    with pytest.raises(ValueError, match="no such time"):
        decode(b"\x01\x00\x1a" + state + b"\x00")
    with pytest.raises(ValueError, match="another type"):
        decode(b"\x01\x00\x1a" + bytes(6) + b"\x80")
