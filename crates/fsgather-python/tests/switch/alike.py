"""Every kind of object, under every state of a process, by torch's own functions and by what stands in their place.

Both are called by the same ranks, one after the other, and all that can be seen of what they give is compared. What is
different is listed here, with where it is, and in the guide, with its reason.
"""

from __future__ import annotations

import contextlib
import copyreg
import datetime
import io
import os
import pickle
import random
import re
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kinds
import likeness
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

#: By aspect, which kinds may differ: as in "What is different" of the guide.
DIFFERENT = {
    # A view brings its own elements alone, without what lies between them.
    "storage": re.compile(r"view|one memory|expanded from a view|one of many|real part|rows of|split of|flat|array and tensor"),
    "strides": re.compile(r"view with gaps|transposed view"),
    # Large tensors lie in memory that was received.
    "can be made larger": re.compile(r"40000|rows of|split of|large"),
}

#: Torch itself cannot carry these: with the switch they arrive.
BETTER = re.compile(r"tensor of (float8|complex32|uint16|uint32|uint64)")


class Watching(TorchFunctionMode):
    """Does nothing."""

    def __torch_function__(self, function: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        return function(*arguments, **(named or {}))


class Halving(TorchFunctionMode):
    """Makes new tensors of another type, where none is said."""

    def __torch_function__(self, function: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        named = dict(named or {})
        if function in (torch.empty, torch.zeros, torch.ones):
            named.setdefault("dtype", torch.float16)
        return function(*arguments, **named)


class Dispatching(TorchDispatchMode):
    """Does nothing, further down."""

    def __torch_dispatch__(self, function: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        return function(*arguments, **(named or {}))


@contextlib.contextmanager
def set_for_a_while(set_to: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    """A setting of the whole process."""
    set_to(value)
    try:
        yield
    finally:
        set_to(before)


@contextlib.contextmanager
def registered() -> Iterator[None]:
    """Types that plain data may have, pickled in the program's own way."""
    before = dict(copyreg.dispatch_table)
    for kind in (complex, datetime.date, datetime.datetime, np.ndarray, np.float32, torch.Tensor):
        copyreg.pickle(kind, as_told)
    try:
        yield
    finally:
        copyreg.dispatch_table.clear()
        copyreg.dispatch_table.update(before)


def as_told(value: Any) -> Any:
    """Reduces to words."""
    return told, (type(value).__name__,)


def told(name: str) -> str:
    """What is made of these words."""
    return f"a {name} by copyreg"


class OwnPickler(pickle.Pickler):
    """Leaves something else of numbers that are more than numbers."""

    def reducer_override(self, value: Any) -> Any:
        return (told, ("pickled",)) if isinstance(value, (kinds.Box, kinds.Level)) else NotImplemented


@contextlib.contextmanager
def own_pickler() -> Iterator[None]:
    """A pickler that the program has given torch."""
    before = c10d._pickler
    c10d._pickler = OwnPickler
    try:
        yield
    finally:
        c10d._pickler = before


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Memory that nobody has written to is filled."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


STATES: dict[str, Callable[[], Any]] = {
    "as ever": contextlib.nullcontext,
    "torch.device meta": lambda: torch.device("meta"),
    "default device meta": lambda: set_for_a_while(torch.set_default_device, "meta", None),
    "default device cpu": lambda: set_for_a_while(torch.set_default_device, "cpu", None),
    "default dtype": lambda: set_for_a_while(torch.set_default_dtype, torch.float64, torch.float32),
    "default tensor type": lambda: set_for_a_while(torch.set_default_tensor_type, torch.DoubleTensor, torch.FloatTensor),
    "inference mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "anomaly detection": torch.autograd.detect_anomaly,
    "deterministic": deterministic,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "function mode": Watching,
    "function mode that changes types": Halving,
    "dispatch mode": Dispatching,
    "modes within modes": lambda: _nested(Watching(), torch.device("meta"), Dispatching(), torch.no_grad()),
    "without torch functions": torch._C.DisableTorchFunctionSubclass,
    "copyreg": registered,
    "own pickler": own_pickler,
}


@contextlib.contextmanager
def _nested(*contexts: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def attempt(function: Callable[[], Any], state: str) -> Any:
    """What a call gives in a state, or the exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with STATES[state]():
                return function()
        except Exception as error:
            return error


def gathered(function: Any, value: Any) -> Any:
    into = [None] * dist.get_world_size()
    function(into, value)
    return into


def gathered_at(function: Any, value: Any) -> Any:
    into = [None] * dist.get_world_size() if dist.get_rank() == 1 else None
    function(value, into, 1)
    return into


def handed_out(function: Any, value: Any) -> Any:
    objects = [value, value, {"again": value}, [value]] if dist.get_rank() == 0 else [None] * 4
    function(objects, 0)
    return objects


WAYS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "all_gather_object": (dist.all_gather_object, gathered),
    "gather_object": (dist.gather_object, gathered_at),
    "broadcast_object_list": (dist.broadcast_object_list, handed_out),
}


class Findings:
    """What is different without being listed, and what is listed without being different."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.compared = 0
        self.used: set[str] = set()

    def compare(self, case: str, kind: str, plain: Any, ours: Any) -> None:
        """Notes what is not as it should be."""
        self.compared += 1
        failed = [isinstance(each, Exception) for each in (plain, ours)]
        if failed[0] and BETTER.match(kind) and not failed[1]:
            self.used.add("better")
            return
        if any(failed):
            if not all(failed) or type(plain) is not type(ours):
                self.lines.append(f"{case}, {kind}: {plain!r:.200} and {ours!r:.200}")
            return
        for aspect, text in likeness.differences(plain, ours).items():
            listed = DIFFERENT.get(aspect)
            if listed is not None and listed.search(kind):
                self.used.add(aspect)
            else:
                self.lines.append(f"{case}, {kind}: {aspect}: {text:.300}")


def compare(findings: Findings, way: str, state: str, chosen: Callable[[str], bool]) -> None:
    """One function under one state."""
    replaced, call = WAYS[way]
    original = replaced.__fsgather_original__
    for kind, value in kinds.all_kinds():
        if chosen(kind):
            plain, ours = (attempt(lambda: call(function, value), state) for function in (original, replaced))
            findings.compare(f"{way}, {state}", kind, plain, ours)


def compare_failing(findings: Findings) -> None:
    """Objects that cannot be pickled raise the same exception, and the next call is right."""
    for name, make in kinds.UNPICKLABLE.items():
        plain, ours = (
            attempt(lambda: gathered(function, make()), "as ever")
            for function in (dist.all_gather_object.__fsgather_original__, dist.all_gather_object)
        )
        findings.compare("cannot be pickled", name, plain, ours)
        assert isinstance(plain, Exception), name


def main() -> None:
    """Everything; says what it has found."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    random.seed(0)
    findings, started = Findings(), time.monotonic()
    for state in os.environ.get("SWITCH_STATES", "").split(",") if "SWITCH_STATES" in os.environ else STATES:
        compare(findings, "all_gather_object", state, lambda _kind: True)
    for way in ("gather_object", "broadcast_object_list"):
        compare(findings, way, "as ever", lambda _kind: True)
        compare(findings, way, "modes within modes", lambda kind: "predictions" in kind or "one memory" in kind)
    thread = threading.Thread(target=compare, args=(findings, "all_gather_object", "as ever", lambda kind: "tensor" in kind))
    thread.start()
    thread.join()
    compare_failing(findings)
    for listed in {*DIFFERENT, "better"} - findings.used:
        findings.lines.append(f"{listed}: is the same, and need not be listed")
    said = [f"{findings.compared} comparisons, {len(findings.lines)} not as listed", *findings.lines]
    print(f"{said[0]}, {time.monotonic() - started:.0f} s", flush=True)
    (Path(os.environ["SWITCH_OUTPUT"]) / f"rank-{dist.get_rank()}").write_text("\n".join(said) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
