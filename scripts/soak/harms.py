"""What is done to the ranks of a job, and when."""

from __future__ import annotations

import dataclasses
import random
from typing import Optional

from steps import Script

ENDING = ("KILL", "KILL", "KILL", "TERM", "INT")


@dataclasses.dataclass
class Harm:
    """A signal to one rank, or to all."""

    after: float
    """Seconds since the clock of the harms runs."""
    rank: Optional[int]
    signal: str


@dataclasses.dataclass
class Trigger:
    """The clock runs when a rank has taken so many steps, or from the beginning."""

    rank: int
    steps: int


def draw_harms(rng: random.Random, ranks: int, script: Script) -> tuple[str, list[Harm], Optional[Trigger]]:
    """Their kind, they themselves in order, and when their clock begins."""
    trigger = None
    scale = 1.0
    if rng.random() < 0.6:
        rank = rng.randrange(ranks)
        trigger = Trigger(rank, rng.randrange(1, len(script.steps[rank])))
        scale = 0.15

    def when() -> float:
        return rng.random() ** 2 * 1.5 * scale

    def stops() -> list[Harm]:
        rank, at = rng.randrange(ranks), when()
        lasting = rng.choice([0.05, 0.3, 1.0, 2.5])
        return [Harm(at, rank, "STOP"), Harm(at + lasting, rank, "CONT")]

    kind = rng.choices(["none", "stopped", "suspended", "ended", "ended and stopped"], [15, 22, 5, 40, 18])[0]
    harms: list[Harm] = []
    if kind == "suspended":
        at = when()
        harms = [Harm(at, None, "STOP"), Harm(at + 9.0, None, "CONT")]
    if "stopped" in kind:
        for _ in range(rng.randint(1, 3)):
            harms += stops()
    if "ended" in kind:
        for rank in rng.sample(range(ranks), min(ranks, rng.choice([1, 1, 1, 1, 1, 2, ranks - 1, ranks]))):
            harms.append(Harm(when(), rank, rng.choice(ENDING)))
    return kind, sorted(harms, key=lambda harm: harm.after), trigger
