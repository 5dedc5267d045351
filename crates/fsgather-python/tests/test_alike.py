"""What replaced functions give is what a pickle gives, down to what can only be seen of it later."""

from __future__ import annotations

import copyreg
import datetime
import pickle

import kinds
import likeness
import numpy
import pytest

import fsgather


def carried(value, like="pickle"):
    """The value as a replaced function gives it."""
    with fsgather.Communicator.solo() as alone:
        return alone._call_like(like, "all_gather", value)[0]


@pytest.mark.parametrize("name, value", [*kinds.python_kinds(), *kinds.numpy_kinds()])
def test_every_kind_is_as_from_pickle(name, value):
    assert likeness.differences(pickle.loads(pickle.dumps(value)), carried(value)) == {}


@pytest.mark.parametrize("name, make", kinds.UNPICKLABLE.items())
def test_what_cannot_be_pickled_raises_the_same(name, make):
    with pytest.raises(Exception) as expected:
        pickle.dumps(make())
    with pytest.raises(fsgather.PeerFailedError) as raised:
        carried(make())
    assert type(raised.value.__cause__) is expected.type


def test_entries_that_are_pickled_by_themselves_share_nothing():
    large = numpy.zeros(20_000)
    for entry in ([1, 2], {"a": [1]}, large, kinds.Box(large), kinds.Box([1]), bytearray(3), (1, [2])):
        value = [entry, entry, [entry, entry], 7]
        expected = [pickle.loads(pickle.dumps(each)) for each in value]
        assert likeness.differences(expected, carried(value, "pickles")) == {}


@pytest.mark.parametrize("like", [None, "pickle"])
def test_what_the_program_has_registered_is_asked(like, monkeypatch):
    values = {
        complex: [1j],
        datetime.datetime: [datetime.datetime(2024, 1, 1)],
        numpy.ndarray: [numpy.zeros(3), numpy.zeros(20_000)],
        numpy.int16: [numpy.int16(3)],
    }
    for kind, value in values.items():
        with monkeypatch.context() as patched:
            patched.setitem(copyreg.dispatch_table, kind, lambda _: (str, ("registered",)))
            assert carried([value, 1], like) == [["registered"] * len(value), 1]
            assert carried([kinds.Box(value), 1], like)[0].content == ["registered"] * len(value)
        assert carried(value, like)[0] is not None and type(carried(value, like)[0]) is kind


def test_large_arrays_are_at_addresses_that_suit_them():
    for extra in range(8):
        back = carried(["x" * extra, numpy.zeros(20_000, dtype="G")], None)
        assert back[1].flags.aligned
