"""Scripts: the steps of each rank, in the language of `tests/examples/rank`, and which of them are one call."""

from __future__ import annotations

import dataclasses
import random
from typing import Optional

SIZES = ["0", "10", "1000*", "70000", "200000*", "1500000", "3000000*"]
DIRECTORIES = 3
"""How many directories of their own calls may name, `{0}` and so on."""


@dataclasses.dataclass
class Call:
    """One collective call, by the ranks of the world that make it."""

    step: str
    members: list[int]
    moves_payloads: bool


@dataclasses.dataclass
class Script:
    """What all ranks do."""

    steps: list[list[str]]
    """Of each rank."""
    call_of: list[list[Optional[int]]]
    """For each step of each rank the call that it ends, if it ends one whose verdict can be compared."""
    calls: list[Call]
    has_storm: bool
    """Whether calls on several threads leave open how far a rank has come."""


class Drawing:
    """A script that grows."""

    def __init__(self, rng: random.Random, ranks: int) -> None:
        self.rng = rng
        self.script = Script([[] for _ in range(ranks)], [[] for _ in range(ranks)], [], False)
        self.pending = [0] * ranks

    def size(self) -> str:
        """How long payloads are."""
        return self.rng.choice(SIZES)

    def alone(self, rank: int, step: str, call: Optional[int] = None) -> None:
        """A step of one rank."""
        self.script.steps[rank].append(step)
        self.script.call_of[rank].append(call)

    def all(self, groups: list[list[int]], step: str) -> None:
        """A step of everybody that is no call, or one whose end says nothing about the others."""
        for members in groups:
            for rank in members:
                self.alone(rank, step)

    def call(self, groups: list[list[int]], step: str, moves_payloads: bool = True) -> None:
        """A call on each of the groups."""
        for members in groups:
            number = self.open(step, members, moves_payloads)
            for rank in members:
                self.alone(rank, step, number)

    def open(self, step: str, members: list[int], moves_payloads: bool = True) -> int:
        """The number of a new call."""
        self.script.calls.append(Call(step, members, moves_payloads))
        return len(self.script.calls) - 1


def draw_script(rng: random.Random, ranks: int, bytes_of: int) -> Script:
    """Steps for ranks in Rust."""
    drawing = Drawing(rng, ranks)
    world = [list(range(ranks))]
    drawing.all(world, f"job:{bytes_of}")
    if rng.random() < 0.25:
        drawing.alone(rng.randrange(ranks), f"slow:{rng.choice([20, 100, 400])}")
    drawing.all(world, "join")
    level(drawing, world, 0, 7)
    end = rng.choice(["close", "close", "drop", None])
    if end is not None:
        drawing.all(world, end)
    return drawing.script


def level(drawing: Drawing, groups: list[list[int]], depth: int, most: int) -> None:
    """Steps on groups whose members all do the same at the same time."""
    rng = drawing.rng
    smallest = min(map(len, groups))
    waiting: list[tuple[dict[int, int], dict[int, int]]] = []
    for _ in range(rng.randint(1, most)):
        root, size = rng.randrange(smallest), drawing.size()
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "bytes":
            drawing.call(groups, f"all_gather_bytes:{size}")
        elif kind == "values":
            drawing.call(groups, f"all_gather:{size}")
        elif kind == "gather":
            drawing.call(groups, f"{rng.choice(['gather', 'gather_bytes', 'gather_from', 'stream', 'gather_pieces'])}:{root}:{size}")
        elif kind == "broadcast":
            drawing.call(groups, f"broadcast:{root}:{size}")
        elif kind == "barrier":
            drawing.call(groups, "barrier", moves_payloads=False)
        elif kind == "by":
            drawing.call(groups, f"by:{rng.choice(['memory', 'filesys'])}:{{{rng.randrange(DIRECTORIES)}}}:{size}")
        elif kind == "start":
            step = rng.choice([f"start_all_gather:{size}", f"start_gather:{root}:{size}"])
            waiting.append(start(drawing, groups, step))
        elif kind == "wait" and waiting:
            finish(drawing, groups, waiting.pop(rng.randrange(len(waiting))))
        elif kind == "late":
            drawing.alone(rng.choice(rng.choice(groups)), f"pause:{rng.choice([5, 50, 300])}")
        elif kind == "storm" and depth == 0:
            drawing.script.has_storm = True
            drawing.all(groups, f"storm:{rng.choice([8, 16])}:{rng.randrange(1000)}")
        elif kind in ("split", "group") and depth < 2:
            inner(drawing, groups, kind, depth)
    while waiting:
        finish(drawing, groups, waiting.pop(rng.randrange(len(waiting))))


KINDS = {
    "bytes": 16,
    "values": 10,
    "gather": 18,
    "broadcast": 6,
    "barrier": 6,
    "by": 8,
    "start": 12,
    "wait": 8,
    "late": 4,
    "storm": 2,
    "split": 6,
    "group": 8,
}


def start(drawing: Drawing, groups: list[list[int]], step: str) -> tuple[dict[int, int], dict[int, int]]:
    """Starts a call that is waited for later; its number among those that each rank has started, and its call."""
    numbers, calls = {}, {}
    for members in groups:
        call = drawing.open(step, members)
        for rank in members:
            numbers[rank], calls[rank] = drawing.pending[rank], call
            drawing.pending[rank] += 1
            drawing.alone(rank, step)
    return numbers, calls


def finish(drawing: Drawing, groups: list[list[int]], started: tuple[dict[int, int], dict[int, int]]) -> None:
    """Waits for a call on all ranks, or now and then gives it up on all of them."""
    numbers, calls = started
    abandoned = drawing.rng.random() < 0.15
    for members in groups:
        for rank in members:
            if abandoned:
                drawing.alone(rank, f"abandon:{numbers[rank]}")
            else:
                drawing.alone(rank, f"wait:{numbers[rank]}", calls[rank])


def inner(drawing: Drawing, groups: list[list[int]], kind: str, depth: int) -> None:
    """Steps on groups of the groups."""
    rng = drawing.rng
    if kind == "split":
        # Each color backwards, as the program does it.
        parts = [[members[place::2][::-1] for place in range(2)] for members in groups]
        below = [part for both in parts for part in both if part]
        drawing.all(groups, "split:2")
    else:
        smallest = min(map(len, groups))
        places = rng.sample(range(smallest), rng.randint(1, smallest))
        below = [[members[place] for place in places] for members in groups]
        drawing.all(below, "group:" + ",".join(map(str, places)))
    level(drawing, below, depth + 1, 3)
    drawing.all(below, rng.choice(["close_group", "leave_group"]))


def draw_python_script(rng: random.Random, ranks: int, bytes_of: int) -> Script:
    """Steps for ranks in Python, which know fewer."""
    drawing = Drawing(rng, ranks)
    world = [list(range(ranks))]
    drawing.all(world, f"job:{bytes_of}")
    drawing.all(world, "join")
    for _ in range(rng.randint(1, 6)):
        root, size = rng.randrange(ranks), drawing.size()
        kind = rng.choice(["all_gather", "all_gather_parts", "gather", "gather_iter", "broadcast", "barrier", "split", "late"])
        if kind == "barrier":
            drawing.call(world, kind, moves_payloads=False)
        elif kind in ("all_gather", "all_gather_parts"):
            drawing.call(world, f"{kind}:{size}")
        elif kind == "late":
            drawing.alone(rng.randrange(ranks), "pause:50")
        elif kind == "split":
            halves = [[rank for rank in range(ranks) if rank % 2 == color] for color in range(2)]
            drawing.call(halves, f"split_all_gather:{size}")
        else:
            drawing.call(world, f"{kind}:{root}:{size}")
    if rng.random() < 0.6:
        drawing.all(world, "close")
    return drawing.script
