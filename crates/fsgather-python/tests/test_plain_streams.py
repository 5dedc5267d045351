"""Streams that nobody has encoded: always an object or a ValueError, never a crash."""

import random
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_support import decode, encode
from test_plain import values

settings.load_profile("codec")

HEADER = b"\x01\x00"
NONE, FLOATS, TUPLE, DICT, NEW_SHAPE, OF_SHAPE = b"\x00", b"\x11", b"\x13", b"\x14", b"\x15", b"\x16"
LIST, INTS, SET, NUMBERED, AGAIN = b"\x10", b"\x12", b"\x17", b"\x22", b"\x23"
ENORMOUS = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"


def try_decoding(stream, buffers=()):
    try:
        decode(bytes(stream), list(buffers))
    except ImportError:
        # Arrays or tensors are announced, and numpy or torch is not installed.
        pass
    except ValueError as error:
        assert "bad plain data at byte" in str(error)


@given(values, st.data())
def test_mutated_streams_do_no_harm(value, data):
    stream = bytearray(encode(value)[0])
    for _ in range(data.draw(st.integers(1, 4))):
        # How long a stream is depends on what the interpreter shares, so no bound may.
        place = data.draw(st.integers(0, 1 << 16)) % len(stream)
        stream[place] = data.draw(st.integers(0, 255))
    try_decoding(stream)


@given(values)
def test_truncated_streams_are_refused(value):
    stream = encode(value)[0]
    for length in range(len(stream)):
        with pytest.raises(ValueError, match="bad plain data at byte"):
            decode(stream[:length])


@given(st.binary(max_size=200))
def test_random_streams_do_no_harm(content):
    try_decoding(HEADER + content)


def test_many_random_streams_do_no_harm():
    draw = random.Random(7)
    common = list(range(37)) * 4 + list(range(256))
    for _ in range(30_000):
        content = bytes(draw.choice(common) for _ in range(draw.randrange(40)))
        try_decoding(HEADER + content)


@pytest.mark.parametrize(
    ("stream", "what"),
    [
        (b"", "byte 0: the stream ends early"),
        (b"\x01", "byte 1: the stream ends early"),
        (b"\x02\x00\x00", "byte 0: version 2; this build reads version 1"),
        (b"\x01\x80\x00", "byte 1: unknown flags 0x80"),
        (HEADER, "byte 2: the stream ends early"),
        (HEADER + b"\x3f", "byte 3: unknown tag 63"),
        (HEADER + NONE + NONE, "byte 3: 1 bytes after the end"),
        (HEADER + AGAIN + b"\x00", "object 0 is not known here"),
        (HEADER + NUMBERED + AGAIN + b"\x00", "a number for what is no object"),
        (HEADER + NUMBERED + TUPLE + b"\x01" + AGAIN + b"\x00", "object 0 is not known here"),
        (HEADER + OF_SHAPE + b"\x00", "shape 0 is not known here"),
        (HEADER + NEW_SHAPE + b"\x01\x80\x80", "a key that is no string"),
        (HEADER + NEW_SHAPE + b"\x01" + DICT + b"\x00\x00", "a key that is no string"),
        (HEADER + NEW_SHAPE + b"\x00", "a shape of 0 keys, where 1 to 64 are allowed"),
        (HEADER + NEW_SHAPE + b"\x02\x41a\x41a\x00\x00", "twice"),
        (HEADER + DICT + b"\x01" + LIST + b"\x00\x00", "unhashable"),
        (HEADER + SET + b"\x01" + LIST + b"\x00", "unhashable"),
        (HEADER + b"\x41\xff", "utf-8"),
        (HEADER + INTS + b"\x01\x03\x00\x00\x00", "integers of 3 bytes"),
        (HEADER + b"\x0c" + b"\x80" * 11, "more than 64 bits"),
        (HEADER + b"\x0d\x00", "buffer 0 of 0"),
    ],
)
def test_errors_say_what_and_where(stream, what):
    with pytest.raises(ValueError, match="bad plain data at byte") as raised:
        decode(stream)
    assert what in str(raised.value)


@pytest.mark.parametrize("tag", range(64))
def test_no_length_is_believed(tag):
    begin = time.process_time()
    for prefix in (bytes([tag]), NUMBERED + bytes([tag])):
        for rest in (b"", b"\x08", bytes(30)):
            try_decoding(HEADER + prefix + ENORMOUS + rest)
            try_decoding(HEADER + prefix + b"\xff\xff\xff\xff\x07" + rest)
    assert time.process_time() - begin < 5


def test_depth_is_limited():
    for step in (LIST + b"\x01", TUPLE + b"\x01", NUMBERED + LIST + b"\x01", DICT + b"\x01\x00"):
        with pytest.raises(ValueError, match="too deep"):
            decode(HEADER + step * 100_000 + NONE)


def test_large_shapes_cannot_be_multiplied():
    keys = b"".join(b"\x44" + struct.pack("<I", n)[:4].replace(b"\x00", b"a") for n in range(9))
    shape = NEW_SHAPE + b"\x09" + keys
    try_decoding(HEADER + shape + (OF_SHAPE + b"\x00") * 100_000)


def test_what_is_left_of_a_failed_list_is_not_seen():
    import gc

    stream = HEADER + NUMBERED + LIST + b"\x7f" + AGAIN + b"\x00" + b"\x3f" * 200
    with pytest.raises(ValueError, match="unknown tag"):
        decode(stream)
    for each in gc.get_objects():
        if type(each) is list and len(each) == 1 and each[0] is each:
            break
    gc.collect()
