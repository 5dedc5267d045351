"""Times the codec for plain data against pickle, marshal and msgspec, on data as evaluation jobs gather it.

    python benches/codec_speed.py [--seconds 1.0] [--only detections]

The package has to be importable, built with optimisation. msgspec and torch are used if they are installed.
All codecs take turns; each figure is the median of its runs, in milliseconds. "paused" is pickle with the
cyclic garbage collector switched off while it loads. Ours copies what lies beside the stream, as receiving it
from another process would, but outside the measured time: decoding shows that memory without a copy.
"""

import argparse
import gc
import marshal
import pickle
import random
import statistics
import time
from typing import Any, Callable, Dict, Optional, Tuple

from fsgather import _fsgather

try:
    import msgspec
except ImportError:
    msgspec = None
try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

Codec = Tuple[Callable[[Any], Any], Callable[[Any], Any]]


def detections() -> Any:
    """Boxes as an object detector reports them."""
    draw = random.Random(1)
    labels = ["person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat"]
    return [
        {
            "image_id": draw.randrange(5000),
            "bbox": [draw.random() * 640 for _ in range(4)],
            "score": draw.random(),
            "label": draw.choice(labels),
        }
        for _ in range(100_000)
    ]


def metrics() -> Any:
    """Nested metrics by data set, class and threshold."""
    draw = random.Random(2)
    return {
        f"dataset-{d}": {
            f"class-{c}": {
                "ap": draw.random(),
                "count": draw.randrange(10_000),
                "by_threshold": {t / 20: (draw.random(), draw.random()) for t in range(10, 20)},
                "missing": None,
            }
            for c in range(200)
        }
        for d in range(10)
    }


def integers() -> Any:
    """A long list of integers."""
    draw = random.Random(3)
    return [draw.randrange(1 << 20) for _ in range(500_000)]


def strings() -> Any:
    """Captions, each a string of its own, some of them not ASCII."""
    draw = random.Random(4)
    words = ["a", "dog", "runs", "across", "the", "street", "café", "自転車", "sunset", "beside"]
    return [" ".join(draw.choice(words) for _ in range(8)) + str(i) for i in range(100_000)]


def big_array() -> Any:
    """Features as one array of 64 MiB."""
    return numpy.random.default_rng(5).standard_normal((16_384, 1024), dtype="f4")


def small_arrays() -> Any:
    """A thousand arrays of a few hundred bytes."""
    return [numpy.arange(64, dtype="f4").reshape(8, 8) + i for i in range(1000)]


def tensors() -> Any:
    """A dictionary of tensors of 256 KiB each."""
    return {f"layer{i}.weight": torch.randn(256, 256) for i in range(64)}


KINDS: Dict[str, Tuple[Callable[[], Any], bool]] = {
    "detections": (detections, True),
    "metrics": (metrics, True),
    "integers": (integers, True),
    "strings": (strings, True),
    "big_array": (big_array, numpy is not None),
    "small_arrays": (small_arrays, numpy is not None),
    "tensors": (tensors, torch is not None),
}


def paused(load: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same without the collector."""

    def call(data: Any) -> Any:
        gc.disable()
        try:
            return load(data)
        finally:
            gc.enable()

    return call


def load_beside(data: Any) -> Any:
    """pickle with buffers beside it."""
    return pickle.loads(data[0], buffers=data[1])


def dump_beside(value: Any) -> Any:
    """pickle with buffers beside it."""
    buffers: Any = []
    stream = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return stream, buffers


def codecs(kind: str) -> Dict[str, Codec]:
    """All that can do this kind of data."""

    def dump(value: Any) -> bytes:
        return pickle.dumps(value, protocol=5)

    found: Dict[str, Codec] = {
        "pickle": (dump, pickle.loads),
        "pickle paused": (dump, paused(pickle.loads)),
        "pickle beside": (dump_beside, load_beside),
        "fsgather": (lambda value: _fsgather._plain_encode(value, False), lambda data: _fsgather._plain_decode(*data)),
    }
    if kind in ("detections", "metrics", "integers", "strings"):
        found["marshal"] = (marshal.dumps, paused(marshal.loads))
        if msgspec is not None:
            found["msgspec"] = (msgspec.msgpack.encode, paused(msgspec.msgpack.decode))
    return found


def received(data: Any) -> Any:
    """The same as another process would have it."""
    if isinstance(data, bytes):
        return data
    stream, buffers = data
    return bytes(stream), [bytearray(buffer) for buffer in buffers]


def timed(call: Callable[[Any], Any], argument: Any) -> Tuple[float, Any]:
    """How long a call takes, in milliseconds, and its result."""
    gc.collect()
    begin = time.perf_counter()
    result = call(argument)
    return (time.perf_counter() - begin) * 1e3, result


def size(data: Any) -> int:
    """All bytes of an encoded value."""
    if isinstance(data, bytes):
        return len(data)
    return len(data[0]) + sum(memoryview(buffer).nbytes for buffer in data[1])


def measure(kind: str, seconds: float) -> None:
    """Prints one line for each codec."""
    value = KINDS[kind][0]()
    taken = {name: ([], []) for name in codecs(kind)}  # type: Dict[str, Tuple[list, list]]
    sizes: Dict[str, int] = {}
    until = time.monotonic() + seconds * len(taken)
    while time.monotonic() < until or len(taken["fsgather"][0]) < 3:
        for name, (encode, decode) in codecs(kind).items():
            duration, data = timed(encode, value)
            taken[name][0].append(duration)
            sizes[name] = size(data)
            data = received(data)
            duration, result = timed(decode, data)
            taken[name][1].append(duration)
            del result, data
    runs = len(taken["fsgather"][0])
    print(f"{kind}: {KINDS[kind][0].__doc__} ({runs} runs)")
    medians = {name: [statistics.median(each) for each in both] for name, both in taken.items()}
    first: Optional[list] = medians["pickle"]
    for name, (encoding, decoding) in medians.items():
        factors = f"{first[0] / encoding:7.1f}x {first[1] / decoding:7.1f}x"
        print(f"  {name:14} {encoding:9.3f} {decoding:9.3f} {factors} {sizes[name]:>12,} bytes")


def main() -> None:
    """Measures all kinds of data."""
    parser = argparse.ArgumentParser(description="Times the codec for plain data.")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each codec and kind of data")
    parser.add_argument("--only", choices=sorted(KINDS), help="one kind of data")
    chosen = parser.parse_args()
    print(f"  {'':14} {'encode':>9} {'decode':>9}  (milliseconds; times faster than pickle)")
    for kind, (_, possible) in KINDS.items():
        if chosen.only not in (None, kind):
            continue
        if possible:
            measure(kind, chosen.seconds)
        else:
            print(f"{kind}: skipped, what it needs is not installed")


if __name__ == "__main__":
    main()
