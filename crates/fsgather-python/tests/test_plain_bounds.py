"""What streams may cost whoever reads them: memory in proportion to their length, and time."""

import time
import tracemalloc

import pytest
from plain_support import decode, encode, received, through
from test_plain_streams import AGAIN, DICT, HEADER, LIST, NEW_SHAPE, NONE, NUMBERED, OF_SHAPE, SET, TUPLE

MULTIPLE = 128
"""Bytes of memory for each byte of a stream, as `docs/design/plain-data.md` says."""


def number(value):
    """As lengths and counts are written."""
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(written) + bytes([value])


def listed(count, element):
    return HEADER + LIST + number(count) + element * count


COUNT = 20_000
FEW_DISTINCT = b"".join(bytes([0x80 + each]) for each in range(77))

SMALL = {
    "sets": listed(COUNT, SET + b"\x00"),
    "numbered sets": listed(COUNT, NUMBERED + SET + b"\x00"),
    "sets of one": listed(COUNT, SET + b"\x01\x80"),
    "sets of five": listed(COUNT, SET + b"\x05\x80\x81\x82\x83\x84"),
    "sets of nineteen": listed(5000, SET + number(19) + FEW_DISTINCT[:19]),
    "sets of many": listed(2000, SET + number(77) + FEW_DISTINCT),
    "sets of tuples": listed(200, SET + number(77) + b"".join(TUPLE + b"\x01" + FEW_DISTINCT[n : n + 1] for n in range(77))),
    "frozensets": listed(COUNT, b"\x18\x01\x80"),
    "dicts": listed(COUNT, DICT + b"\x00"),
    "dicts of one": listed(COUNT, DICT + b"\x01\x80\x80"),
    "dicts of six": listed(COUNT, DICT + b"\x06" + b"".join(FEW_DISTINCT[n : n + 1] + NONE for n in range(6))),
    "dicts of a shape": HEADER + LIST + number(COUNT + 1) + NEW_SHAPE + b"\x01\x41a\x00" + (OF_SHAPE + b"\x00\x00") * COUNT,
    "dicts of shapes": listed(COUNT, NEW_SHAPE + b"\x01\x41a\x00"),
    "lists": listed(COUNT, LIST + b"\x00"),
    "numbered lists": listed(COUNT, NUMBERED + LIST + b"\x01\x00"),
    "lists of one": listed(COUNT, LIST + b"\x01\x80"),
    "lists of integers": listed(COUNT, b"\x12\x01\x01\x88"),
    "tuples": listed(COUNT, TUPLE + b"\x01\x80"),
    "integers": HEADER + b"\x12" + number(COUNT) + b"\x01" + b"\x88" * COUNT,
    "floats": HEADER + b"\x11" + number(COUNT) + b"\x3f" * 8 * COUNT,
    "texts": listed(COUNT, b"\x43\xc4\x80a"),
    "wide texts": listed(COUNT, b"\x44\xf0\x9f\x98\x80"),
    "bytearrays": listed(COUNT, b"\x0e\x00"),
    "bytes": listed(COUNT, b"\x0c\x02ab"),
    "complex": listed(COUNT, b"\x09" + bytes(16)),
    "times": listed(COUNT, b"\x1a" + bytes(6) + b"\x00"),
    "durations": listed(COUNT, b"\x1c" + bytes(12)),
}

ARRAYS = {
    "scalars": HEADER + LIST + number(COUNT + 1) + b"\x1e\x00\x03|i1\x00" + b"\x1e\x00\x00" * COUNT,
    "arrays": HEADER + LIST + number(COUNT + 1) + b"\x1f\x00\x03|i1\x00\x00\x00" + b"\x1f\x00\x00\x00\x00" * COUNT,
    "empty arrays": HEADER + LIST + number(COUNT + 1) + b"\x1f\x00\x03|i1\x00\x01\x00" + b"\x1f\x00\x00\x01\x00" * COUNT,
    "item types": HEADER
    + LIST
    + number(900)
    + b"".join(b"\x1f" + number(n) + b"\x04|S%d\x00\x01\x00" % (n + 10) for n in range(90))
    + b"".join(b"\x1f" + number(n + 90) + b"\x05|S%d\x00\x01\x00" % (n + 100) for n in range(810)),
}


def peak_of(stream):
    """How much memory is taken at most while a stream is decoded."""
    tracemalloc.start()
    try:
        value = decode(stream)
        return tracemalloc.get_traced_memory()[1], value
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [*SMALL, *ARRAYS])
def test_a_stream_takes_a_stated_multiple_of_its_length(kind):
    stream = {**SMALL, **ARRAYS}[kind]
    decode(stream)
    peak, value = peak_of(stream)
    assert value
    assert peak <= MULTIPLE * len(stream) + 20_000, f"{peak / len(stream):.1f} bytes for each"


def nested(outer, inner=b"", levels=150):
    """Containers in each other, of which each announces as many elements as there are bytes for all."""
    return HEADER + outer * levels + inner + NONE * COUNT


A_SHAPE = NEW_SHAPE + number(60) + b"".join(b"\x42" + b"%02d" % each for each in range(60)) + NONE * 60
NESTED = {
    "lists": nested(LIST + number(COUNT)),
    "tuples": nested(TUPLE + number(COUNT)),
    "frozensets": nested(b"\x18" + number(COUNT)),
    "in a set": nested(SET + number(COUNT), b"\x18" + number(COUNT)),
    "in a dict": nested(DICT + number(COUNT // 2), TUPLE + number(COUNT)),
    "in dicts of a shape": HEADER + LIST + number(4) + A_SHAPE + (OF_SHAPE + b"\x00") * 150 + NONE * 70,
}


@pytest.mark.parametrize("kind", NESTED)
def test_containers_in_each_other_do_not_announce_the_same_bytes(kind):
    stream = NESTED[kind]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="bytes left|ends early"):
            decode(stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MULTIPLE * len(stream) + 20_000, f"{peak / len(stream):.1f} bytes for each"


@pytest.mark.parametrize("tag", [b"\x0d", b"\x0f"])
def test_a_buffer_is_copied_once(tag):
    buffer = bytes(1 << 20)
    stream = HEADER + LIST + number(2000) + (tag + b"\x00") * 2000
    begin = time.process_time()
    with pytest.raises(ValueError, match="buffer 0 a second time"):
        decode(stream, received([memoryview(buffer)]))
    assert time.process_time() - begin < 5
    assert through([buffer, bytearray(buffer), buffer]) == [buffer, bytearray(buffer), buffer]


def big(value):
    """As integers of more than 64 bits are written."""
    written = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x07" + number(len(written)) + written


def container(kind, keys):
    if kind == DICT:
        return HEADER + DICT + number(len(keys)) + b"".join(key + NONE for key in keys)
    return HEADER + kind + number(len(keys)) + b"".join(keys)


def tuples_of_one_hash(count):
    """-1 and -2 have the same hash."""
    return [TUPLE + number(17) + bytes(0x8F if each >> bit & 1 else 0x8E for bit in range(17)) for each in range(count)]


EQUAL_HASHES = {
    "integers": [big((each + 20) * (2**61 - 1)) for each in range(50_000)],
    "tuples": tuples_of_one_hash(50_000),
}


@pytest.mark.parametrize("kind", [SET, DICT, b"\x18"], ids=["set", "dict", "frozenset"])
@pytest.mark.parametrize("keys", EQUAL_HASHES)
def test_many_keys_of_one_hash_are_refused(kind, keys):
    keys = EQUAL_HASHES[keys]
    begin = time.process_time()
    with pytest.raises(ValueError, match="keys that would take too long to look up"):
        decode(container(kind, keys))
    # More than a minute without the bound.
    assert time.process_time() - begin < 15
    # As many as somebody may have.
    assert len(decode(container(kind, keys[:1000]))) == 1000


@pytest.mark.parametrize("kind", [SET, DICT, b"\x18"], ids=["set", "dict", "frozenset"])
def test_keys_of_a_few_bytes_that_stand_for_endless_ones_are_refused(kind):
    # A tuple of the one before twice, and so on: 2 to the 100 elements.
    key = TUPLE + b"\x00"
    for level in range(100):
        key = TUPLE + b"\x02" + NUMBERED + key + AGAIN + number(99 - level)
    begin = time.process_time()
    with pytest.raises(ValueError, match="keys that would take too long to look up"):
        decode(container(kind, [key]))
    assert time.process_time() - begin < 15


def test_keys_that_are_deeper_than_the_stack_are_refused():
    # Each element of the list is a tuple of the one before; nothing but references makes them deep.
    deep = 500_000
    levels = b"".join(NUMBERED + TUPLE + b"\x01" + AGAIN + number(level) for level in range(deep))
    stream = HEADER + LIST + number(deep + 2) + NUMBERED + TUPLE + b"\x00" + levels
    with pytest.raises(ValueError, match="keys that would take too long to look up"):
        decode(stream + SET + b"\x01" + AGAIN + number(deep))


def test_keys_as_people_have_them_are_looked_up():
    grid = {(x, y, z): [x] for x in range(-20, 20) for y in range(-20, 20) for z in range(-5, 5)}
    assert through(grid) == grid
    large = {10**30 * number for number in range(50_000)}
    assert through(large) == large
    names = tuple(f"column {number}" for number in range(200))
    shared = {(names, row): row for row in range(5000)}
    assert through(shared) == shared
    nested = {frozenset((each, (each, str(each)))): each for each in range(5000)}
    assert through(nested) == nested
    stream, buffers = encode(grid)
    assert decode(stream, received(buffers)) == grid
