"""Memory that Python and Rust share: seen from Rust, and handed to Python."""

import ctypes
import gc
import subprocess
import sys
import threading

import numpy
import pytest

from fsgather import _fsgather


def borrow(exporter, raw=False):
    return _fsgather._BorrowedBuffer(exporter, raw)


def memory(content, *ranges):
    return _fsgather._memory(content, list(ranges) or [(0, len(content))])


@pytest.mark.parametrize(
    "exporter",
    [
        b"abc",
        b"",
        bytearray(b"abc"),
        memoryview(b"0abc")[1:],
        numpy.arange(5, dtype="f4"),
        numpy.zeros((3, 0)),
        numpy.array(7),
        (ctypes.c_char * 3)(),
    ],
)
def test_the_bytes_of_any_contiguous_object_are_seen(exporter):
    assert borrow(exporter).tobytes() == memoryview(exporter).tobytes()


@pytest.mark.parametrize("exporter", [numpy.arange(10)[::2], numpy.ones((2, 3)).T])
def test_memory_that_is_not_in_c_order_is_refused(exporter):
    with pytest.raises((ValueError, BufferError)):
        borrow(exporter)


def test_objects_without_memory_are_refused():
    with pytest.raises(TypeError, match="bytes-like"):
        borrow("text")


def test_fortran_order_is_seen_as_it_lies():
    array = numpy.arange(6, dtype="u1").reshape(2, 3)
    transposed = array.T
    assert borrow(transposed, raw=True).tobytes() == array.tobytes()
    with pytest.raises((ValueError, BufferError)):
        borrow(numpy.arange(10)[::2], raw=True)


def test_memory_is_held_until_the_buffer_is_dropped():
    content = bytearray(b"abc")
    buffer = borrow(content)
    with pytest.raises(BufferError):
        content.extend(b"d")
    del buffer
    content.extend(b"d")
    assert content == b"abcd"


def test_a_buffer_can_be_dropped_without_the_lock():
    content = bytearray(b"abc")
    buffer = borrow(content)
    buffer.drop_in_thread()
    content.extend(b"d")
    assert buffer.tobytes() == b""


def test_buffers_of_many_threads_are_given_back():
    content = bytearray(1000)

    def use():
        for _ in range(200):
            buffer = borrow(content)
            assert len(buffer.tobytes()) == 1000
            buffer.drop_in_thread()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    borrow(b"")
    content.extend(b"d")


def test_a_buffer_may_outlive_the_interpreter():
    code = (
        "import sys; from fsgather import _fsgather\n"
        "class Late:\n"
        "    def __init__(self): self.kept = _fsgather._BorrowedBuffer(bytearray(9))\n"
        "    def __del__(self): self.kept.drop_in_thread()\n"
        "sys.late = Late(); sys.loop = [sys.late]; sys.loop.append(sys.loop)\n"
        "sys.other = _fsgather._BorrowedBuffer(bytearray(9))\n"
        "sys.memory = memoryview(_fsgather._memory(b'abc', [(0, 3)])[0])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 0, ended.stderr


def test_memory_is_seen_and_written_by_all_kinds_of_views():
    (parts,) = memory(b"0123456789abcdef")
    assert len(parts) == 16
    view = memoryview(parts)
    assert not view.readonly
    assert view.format == "B"
    view[0] = ord("x")
    array = numpy.frombuffer(parts, dtype="u1")
    assert array.flags.writeable
    array[1] = ord("y")
    text = (ctypes.c_char * 16).from_buffer(parts)
    assert bytes(text) == b"xy23456789abcdef"
    assert numpy.frombuffer(parts, dtype="<u8").tobytes() == bytes(text)
    assert ctypes.c_char.from_buffer(parts).value == b"x"
    assert bytes(parts) == bytes(text)


def test_arrow_sees_memory():
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (whole,) = memory(b"0123")
    buffer = arrow.py_buffer(whole)
    assert buffer.is_mutable
    assert buffer.to_pybytes() == b"0123"


def test_parts_show_the_same_memory():
    whole, left, right, middle, nothing = memory(b"0123", (0, 4), (0, 2), (2, 4), (1, 3), (4, 4))
    memoryview(middle)[:] = b"xy"
    assert bytes(whole) == b"0xy3"
    assert bytes(left) == b"0x"
    assert bytes(right) == b"y3"
    assert bytes(nothing) == b""
    assert len(nothing) == 0


@pytest.mark.parametrize("part", [(0, 5), (3, 2), (5, 5)])
def test_parts_beyond_the_end_are_refused(part):
    with pytest.raises(ValueError, match="memory of 4 bytes"):
        memory(b"0123", part)


def test_memory_of_nothing_can_be_seen():
    (nothing,) = memory(b"")
    assert bytes(memoryview(nothing)) == b""
    assert numpy.frombuffer(nothing, dtype="u1").size == 0


def resident():
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * 4096


def test_memory_lives_as_long_as_a_view_of_a_part():
    size = 128 << 20
    gc.collect()
    before = resident()
    part = memory(b"x" * size, (5, 9))[0]
    view = memoryview(part)[1:]
    del part
    gc.collect()
    assert resident() > before + size // 2
    assert bytes(view) == b"xxx"
    del view
    assert resident() < before + size // 2


def test_memory_objects_cannot_be_made_by_hand():
    kind = type(memory(b"x")[0])
    assert kind.__name__ == "Memory"
    with pytest.raises(TypeError, match="from gathers only"):
        kind()
    with pytest.raises(TypeError):
        type("Sub", (kind,), {})
    hollow = None
    try:
        hollow = object.__new__(kind)
    except TypeError:
        return
    with pytest.raises(BufferError):
        memoryview(hollow)


def test_nothing_is_leaked():
    kind = type(memory(b"x")[0])
    content = bytearray(b"abc")
    references = sys.getrefcount(content), sys.getrefcount(kind)
    for _ in range(100):
        borrow(content)
        memory(b"abc", (0, 1), (1, 2))
        memoryview(memory(b"abc")[0]).release()
    assert (sys.getrefcount(content), sys.getrefcount(kind)) == references
