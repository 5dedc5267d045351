"""Feeds the codec for plain data of the Python package with what nobody has encoded, for as many seconds as asked for.

Each stream is an object or a `ValueError`, within a second and the memory that `docs/design/plain-data.md` states; anything
else ends this with an error, after the stream has been printed. What is freed is overwritten in memory.
"""

import datetime
import os
import random
import sys
import time
import tracemalloc

MULTIPLE = 128
ANYWAY = 100_000


def seeds():
    """Values of every kind, and streams that once did harm."""
    yield from [
        None,
        [True, 1, -17, 300, 70_000, 1 << 40, 1 << 100, 0.5, 1j, "a", "ä" * 70, "\ud800", b"ab", bytearray(b"cd")],
        [{"a": n, "b": [n, {"c": (n, n)}]} for n in range(20)],
        {(n, str(n)): frozenset([n, (n,)]) for n in range(30)},
        {1 << 70: {2, 3, 5}, -1: set(), "x": {-1, -2}},
        [datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc), datetime.timedelta(3), datetime.time(4)],
        [list(range(1000)), [0.25] * 100, [1 << 40] * 5],
    ]
    try:
        import numpy
    except ImportError:
        return
    yield [numpy.arange(10), numpy.zeros((2, 3), "f4", order="F"), numpy.int8(3), numpy.array(["a"]), numpy.zeros(3, "M8[ns]")]


def mutated(draw, stream, others):
    stream = bytearray(stream)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        place = draw.randrange(2, len(stream) + 1)
        kind = draw.randrange(5)
        if kind == 0 and place < len(stream):
            stream[place] = draw.randrange(256)
        elif kind == 1:
            stream[place:place] = bytes(draw.choice(range(36)) for _ in range(draw.randrange(4)))
        elif kind == 2:
            del stream[place : place + draw.randrange(8)]
        elif kind == 3:
            other = draw.choice(others)
            start = draw.randrange(len(other))
            stream[place:place] = other[start : start + draw.randrange(64)]
        else:
            stream[place:place] = stream[place : place + draw.randrange(32)] * draw.randrange(1, 40)
    return bytes(stream[:1_000_000])


def main():
    if os.environ.get("PYTHONMALLOC") != "debug":
        os.environ["PYTHONMALLOC"] = "debug"
        os.execv(sys.executable, [sys.executable, "-X", "faulthandler", *sys.argv])
    from fsgather import _fsgather

    seconds = float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    draw = random.Random(seed)
    print(f"seed {seed}", flush=True)
    streams = [bytes(_fsgather._plain_encode(value)[0]) for value in seeds()]
    tries = accepted = 0
    most = slowest = 0.0
    tracemalloc.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stream = mutated(draw, draw.choice(streams), streams)
        tries += 1
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        begin = time.process_time()
        value = None
        try:
            value = _fsgather._plain_decode(stream, [])
        except (ValueError, ImportError) as error:
            is_ours = isinstance(error, ImportError) or "bad plain data at byte" in str(error)
            assert is_ours, (error, stream)
        except BaseException:
            print(stream)
            raise
        took = time.process_time() - begin
        peak = tracemalloc.get_traced_memory()[1] - before
        assert peak <= MULTIPLE * len(stream) + ANYWAY, (peak, stream)
        assert took < 5, (took, stream)
        most, slowest = max(most, peak / (len(stream) + ANYWAY / MULTIPLE)), max(slowest, took)
        if value is not None:
            accepted += 1
            if len(stream) < 20_000 and draw.random() < 0.3:
                try:
                    _fsgather._plain_encode(value)
                except (TypeError, RuntimeError):
                    # Deeper than the encoder writes, by references.
                    pass
                streams.append(stream)
                if len(streams) > 500:
                    streams.pop(draw.randrange(8, len(streams)))
    print(f"{tries} streams, {accepted} of them objects; at most {most:.0f} bytes for a byte, {slowest:.2f} s for a stream")


main()
