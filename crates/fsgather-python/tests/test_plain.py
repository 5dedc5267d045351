"""Plain data through the codec: what comes back is what pickle gives back."""

import collections
import enum
import gc
import math
import pickle
import struct
import sys
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_support import assert_as_pickle, assert_same, decode, encode, through

settings.register_profile("codec", deadline=None, max_examples=300)
settings.load_profile("codec")


def nan(payload):
    return struct.unpack("<d", struct.pack("<Q", payload))[0]


# Python hashes a NaN by its address, so that sets of them have no order to compare.
ordered = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(1 << 64), max_value=1 << 64),
    st.integers(min_value=-130, max_value=130),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(st.characters(), max_size=80),
    st.binary(max_size=80),
)
leaves = ordered | st.floats() | st.complex_numbers()
hashables = st.recursive(
    ordered, lambda below: st.tuples(below, below) | st.frozensets(below, max_size=4), max_leaves=5
)
keys = st.sampled_from(["a", "b", "c", "d"]) | hashables
values = st.recursive(
    leaves | st.binary(max_size=9).map(bytearray),
    lambda below: st.one_of(
        st.lists(below, max_size=6),
        st.lists(st.integers(min_value=-(1 << 40), max_value=1 << 40), max_size=6),
        st.lists(st.floats(), max_size=6),
        st.tuples(below),
        st.tuples(below, below),
        st.dictionaries(keys, below, max_size=6),
        st.dictionaries(st.text(max_size=3), below, max_size=6),
        st.sets(hashables, max_size=6),
        # The same objects more than once.
        st.lists(below, max_size=3).flatmap(
            lambda some: st.lists(st.sampled_from(some), max_size=6) if some else st.just([])
        ),
    ),
    max_leaves=30,
)


@given(values)
@example([nan(0x7FF0_0000_0000_0001), nan(0xFFF8_DEAD_0000_BEEF), -0.0, math.inf])
@example("\ud800 \udfff lone")
@example({"\udc80": ["\udc80"] * 3})
@example([1 << 63, -(1 << 63), (1 << 63) - 1, -(1 << 63) - 1, 1 << 9000, -(1 << 9000), 1 << 64])
@example([[0, 128], [-128, 127], [-129], [32767, -32768], [32768, 0], [1 << 31, 0], [0, 1 << 62]])
@example([True, 1, 1.0, False, 0])
@example([1.0, 2])
@example([1, 2.0, True])
@example(complex(-0.0, math.nan))
def test_plain_data_comes_back_as_from_pickle(value):
    assert_as_pickle(value)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 127, 128, 300, 70_000])
def test_strings_and_bytes_of_any_length(length):
    assert_as_pickle(["x" * length, b"x" * length, bytearray(length), "é" * length])


def test_integers_at_each_border():
    for bits in (0, 4, 6, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127, 128):
        for near in range(-20, 20):
            for sign in (1, -1):
                assert_as_pickle(sign * (1 << bits) + near)
                assert_as_pickle([sign * (1 << bits) + near, 0])


def test_large_contents_lie_beside_the_stream():
    value = [b"x" * 65536, bytearray(b"y" * 65536), b"z" * 65535]
    stream, buffers = encode(value)
    assert [len(buffer) for buffer in buffers] == [65536, 65536]
    assert len(stream) < 66_000
    assert all(buffer.readonly for buffer in buffers)
    assert_as_pickle(value)


def test_shared_objects_stay_shared():
    item, pair, some = [1], (2, [3]), {4}
    value = [item, item, pair, pair, some, some, {"a": item, "b": pair}]
    back = through(value)
    assert back[0] is back[1] is back[6]["a"]
    assert back[2] is back[3] is back[6]["b"]
    assert back[4] is back[5]
    assert_as_pickle(value)
    large = bytearray(100_000)
    back = through([large, large, bytearray(large)])
    assert back[0] is back[1]
    assert back[0] is not back[2]


def test_equal_objects_stay_distinct():
    back = through([[1], [1], {}, {}, bytearray(b"a"), bytearray(b"a")])
    assert len({id(each) for each in back}) == 6


def test_cycles_come_back():
    cyclic = [1]
    cyclic.append(cyclic)
    assert_as_pickle(cyclic)
    table = {"a": [0]}
    table["a"].append({"table": table})
    table["self"] = table
    assert_as_pickle(table)
    generic = {1: None}
    generic[1] = [generic]
    assert_as_pickle(generic)
    inner = []
    inner.append((inner, inner))
    assert_as_pickle(inner)


def test_a_tuple_within_itself_is_left_to_pickle():
    cycle = ([],)
    cycle[0].append(cycle)
    with pytest.raises(TypeError, match="tuple that contains itself"):
        encode(cycle)
    with pytest.raises(TypeError, match="tuple that contains itself"):
        encode(cycle[0][0])


def test_sets_keep_the_order_that_pickle_keeps():
    for many in (3, 10, 100, 1000, 3000):
        value = {f"{number}" for number in range(many)} | set(range(0, 90 * many, 7))
        value.discard("1")
        assert list(through(value)) == list(pickle.loads(pickle.dumps(value, protocol=5)))
        frozen = frozenset(value)
        assert list(through(frozen)) == list(pickle.loads(pickle.dumps(frozen, protocol=5)))


def test_dictionaries_of_one_shape_take_little_space():
    keys = [f"a rather long name {number}" for number in range(10)]
    many = [dict.fromkeys(keys, 0) for _ in range(1000)]
    stream, _ = encode(many)
    assert len(stream) < 1000 * 15
    assert_as_pickle(many)


def test_shapes_are_found_by_what_keys_say():
    many = [{("image" + "_%s" % i): 1 for i in "abc"} for _ in range(1000)]
    stream, _ = encode(many)
    assert len(stream) < 1000 * 6
    assert decode(stream) == many


@pytest.mark.parametrize("count", [63, 64, 65, 1000])
def test_dictionaries_with_many_keys(count):
    value = {f"key {number}": number for number in range(count)}
    assert_as_pickle([value, dict(value), dict(reversed(list(value.items())))])


def test_more_shapes_than_fit():
    assert_as_pickle([{str(number): number} for number in range((1 << 16) + 10)])


class Named(collections.namedtuple("Named", "a")):
    pass


class Sub(list):
    pass


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    pass


@pytest.mark.parametrize(
    ("value", "name", "place"),
    [
        (object(), "object", ""),
        ([1, Named(1)], "test_plain.Named", "[1]"),
        ({"a": (1, [Sub()])}, "test_plain.Sub", "['a'][1][0]"),
        ({1: {"b'": Colour.RED}}, "test_plain.Colour", "[1][\"b'\"]"),
        ([{"x": 0}, {"x": Text("a")}], "test_plain.Text", "[1]['x']"),
        ({Text("a"): 1}, "test_plain.Text", " in a key"),
        ([{frozenset([Colour.RED])}], "test_plain.Colour", "[0] in a set in a set"),
        (collections.OrderedDict(), "collections.OrderedDict", ""),
        (range(3), "range", ""),
        (memoryview(b""), "memoryview", ""),
        (int, "type", ""),
    ],
)
def test_anything_else_is_refused_with_its_type_and_place(value, name, place):
    with pytest.raises(TypeError) as raised:
        encode(value)
    expected = f"not plain data: {name}" + (f" at {place}" if place else "")
    assert str(raised.value) == expected


def nested(depth, kind):
    value = kind(())
    for _ in range(depth - 1):
        value = kind((value,))
    return value


@pytest.mark.parametrize("kind", [list, tuple, frozenset, lambda inner: dict.fromkeys("a", *inner)])
def test_depth_is_limited(kind):
    assert through(nested(200, kind)) == nested(200, kind)
    for depth in (201, 100_000):
        with pytest.raises(TypeError, match="too deep"):
            encode(nested(depth, kind))


def test_the_collector_is_paused_and_goes_on():
    stream, _ = encode([{"a": [number]} for number in range(20_000)])
    runs = []
    note = lambda phase, info: runs.append(phase)  # noqa: E731
    gc.collect()
    gc.callbacks.append(note)
    try:
        result = _decode_quietly(stream, runs)
    finally:
        gc.callbacks.remove(note)
    assert len(result) == 20_000
    assert gc.isenabled()
    with pytest.raises(ValueError, match="bad plain data"):
        decode(stream[:-1])
    assert gc.isenabled()
    gc.disable()
    try:
        decode(stream)
        assert not gc.isenabled()
        with pytest.raises(ValueError, match="bad plain data"):
            decode(stream[:-1])
        assert not gc.isenabled()
    finally:
        gc.enable()


def _decode_quietly(stream, runs):
    del runs[:]
    result = decode(stream)
    during = list(runs)
    # It may begin with the first object after the pause.
    assert len(during) <= 2
    return result


def test_references_are_neither_lost_nor_kept():
    label, item = "a label of its own", ["item"]
    value = [{"label": label, "item": item, "n": 10**30}, {"label": label, "item": item, "n": 5}]

    def counts():
        return [sys.getrefcount(each) for each in (label, item, value, value[0])]

    before = counts()
    for _ in range(50):
        stream, _ = encode(value)
        decode(stream)
        with pytest.raises(TypeError):
            encode([value, object()])
        with pytest.raises(ValueError, match="bad plain data"):
            decode(stream[:-2])
    assert counts() == before


def test_threads_may_encode_and_decode_at_once():
    value = [{"a": [1.5] * 3, "b": str(number)} for number in range(2000)]
    failures = []

    def work():
        try:
            for _ in range(10):
                assert_same(through(value), value)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert gc.isenabled()
