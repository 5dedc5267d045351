"""Finalizers that take elements away while they are encoded, or look for containers while these are made.

Up to Python 3.11 the collector runs whenever a container is made, also within the encoder; and finalizers with it. The
memory of what is freed is overwritten here, so that whoever still uses it crashes.
"""

import json
import os
import subprocess
import sys

from conftest import LIMIT

KINDS = {
    "big": "lambda number: 10**40 + number",
    "surrogates": "lambda number: f'\\ud800{number}'",
    "text": "lambda number: f'äö{number}'",
    "number": "lambda number: 10**9 + number",
    "float": "lambda number: number + 0.5",
    "bytes": "lambda number: b'%d of them' % number",
    "tuple": "lambda number: (10**40 + number, f'\\ud800{number}')",
    "frozenset": "lambda number: frozenset([10**40 + number])",
    "complex": "lambda number: complex(number, 1)",
    "date": "lambda number: datetime.datetime(2000, 1, 1, microsecond=number, tzinfo=datetime.timezone.utc)",
    "scalar": "lambda number: numpy.int64(number)",
    "bytearray": "lambda number: bytearray(b'%d of them' % number)",
    "list": "lambda number: [10**40 + number, f'\\ud800{number}']",
    "dict": "lambda number: {f'\\ud800{number}': 10**40 + number, 10**41 + number: f'\\ud800{number}'}",
    "set": "lambda number: {10**40 + number, f'\\ud800{number}'}",
    "array": "lambda number: numpy.full(3, number)",
    "gaps": "lambda number: numpy.zeros((4, 4))[::2, ::2]",
}

UNHASHABLE = {"bytearray", "list", "dict", "set", "array", "gaps"}

ENCODING = """
import datetime, gc, json, sys
import numpy
from fsgather import _fsgather

KINDS = {kinds}
UNHASHABLE = {unhashable}


def containers(make, is_hashable):
    yield lambda: [make(number) for number in range(8)]
    yield lambda: {{f"key{{number}}": make(number) for number in range(8)}}
    yield lambda: {{number: make(number) for number in range(8)}}
    # Too many keys for a shape.
    yield lambda: {{f"key{{number}}": make(number) for number in range(70)}}
    if is_hashable:
        yield lambda: {{make(number) for number in range(8)}}
        yield lambda: {{make(number): number for number in range(8)}}
        yield lambda: {{make(number): make(number + 100) for number in range(8)}}


class Trap:
    def __init__(self, spring):
        self.cycle, self.spring = self, spring

    def __del__(self):
        self.spring()


def sprung(build):
    refused = 0
    # Wherever the collector runs first.
    for moment in range(1, 30):
        container = build()
        gc.collect()
        gc.disable()
        Trap(container.clear)
        gc.set_threshold(moment)
        gc.enable()
        try:
            _fsgather._plain_encode(container)
        except RuntimeError:
            refused += 1
        finally:
            gc.set_threshold(700)
    return refused


refused = {{}}
for kind, make in KINDS.items():
    print("encoding", kind, file=sys.stderr)
    refused[kind] = sum(sprung(build) for build in containers(make, kind not in UNHASHABLE))
print(json.dumps(refused))
"""

DECODING = """
import gc
from fsgather import _fsgather

# Short ones, for which the collector is not stopped.
values = [
    [[[]] * 3, {"a": [{}, []], "b": [[1], [2]]}],
    ([], [], ([], ([], {}))),
    [{"k": ([number], [])} for number in range(20)],
    [[10**40], ["\\ud800", {1: 2}], frozenset([(1, 2), (3, (4, 5))])],
    [[], ([], [], []), [[], [[], []]]],
]
seen = 0


class Trap:
    def __init__(self):
        self.cycle = self

    def __del__(self):
        # Everything the collector knows, element by element; an empty place cannot be looked at.
        global seen
        for each in gc.get_objects():
            if type(each) in (list, tuple):
                for element in each:
                    type(element)
                seen += 1


for value in values:
    stream, buffers = _fsgather._plain_encode(value)
    for moment in range(1, 40):
        gc.collect()
        gc.disable()
        Trap()
        gc.set_threshold(moment)
        gc.enable()
        back = _fsgather._plain_decode(stream, buffers)
        gc.set_threshold(700)
        gc.collect()
        assert back == value
        for each in (back, back[0], back[-1]):
            # What is made is known to the collector as what others make.
            if type(each) in (list, tuple) and each:
                assert gc.is_tracked(each) or type(each) is tuple
print(seen)
"""


def ran(code):
    """What a program of its own has printed, in which memory that is freed is overwritten."""
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr}"
    return json.loads(ended.stdout)


def test_elements_that_finalizers_take_away_while_they_are_encoded():
    kinds = ", ".join(f"{kind!r}: {make}" for kind, make in KINDS.items())
    refused = ran(ENCODING.format(kinds="{" + kinds + "}", unhashable=sorted(UNHASHABLE)))
    if sys.version_info < (3, 12):
        for kind in ("big", "surrogates", "tuple", "dict", "set", "array"):
            assert refused[kind] > 0, f"no finalizer has run while {kind} was encoded"


def test_containers_that_are_being_filled_are_not_found():
    assert ran(DECODING) > 0
