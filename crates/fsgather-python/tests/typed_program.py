"""A program that is checked by mypy and never run: lines marked as wrong have to be errors, and no others."""

from __future__ import annotations

import datetime
from typing import Optional

import fsgather
from fsgather import compat

world = fsgather.Communicator(rank=0, world_size=1, timeout=datetime.timedelta(minutes=5))
scores: list[float] = world.all_gather(0.5)
made_later: fsgather.Parts[float] = world.all_gather_parts(0.5)
best: float = max(made_later[0], *made_later[1:])
few: list[float] = world.all_gather(0.5, max_size=100, timeout=datetime.timedelta(minutes=5))
names: Optional[list[str]] = world.gather_object("n7", dst=0, site="eval.py:12")
for part in world.gather_iter({"boxes": 3}):
    count: int = part["boxes"] + 1
pending: fsgather.Pending[list[int]] = world.start_all_gather(3)
numbers: list[int] = pending.wait(timeout=1.5)


async def sum_of(call: fsgather.Pending[list[int]]) -> int:
    return sum(await call)


on_root: Optional[list[int]] = world.start_gather(3).wait()
same: str = world.with_options(transport="memory").broadcast_object("model.pt")
half: fsgather.Communicator = world.split(0)
listed: list[bytes] = compat.all_gather(b"x", force_cpu=True)
object_list: list[int] = fsgather.all_gather(3, timeout=5)

with fsgather.samples("runs/mmlu", expected=["a", "b"], config={"seed": 0}) as samples:
    samples.add(samples.share, [0.5 for _ in samples.share])
    gathered: Optional[fsgather.SampleResults] = samples.gather(dst=0, out="results.jsonl")
    everywhere: fsgather.SampleResults = samples.gather(None, partial=True)

fsgather.torch.register()
with fsgather.bootstraps.ray.be_rank(0, 2, "evaluation"):
    first: list[str] = fsgather.compat.all_gather_list("a", None, 100)

world.all_gather(3, time_out=4)  # wrong
fsgather.all_gathr(3)  # wrong
fsgather.all_gather(3, force_cpu=True)  # wrong
world.split(None).barrier()  # wrong
world.all_gather(3, timeout="4")  # wrong
world.all_gather_parts(3).append(4)  # wrong
world.with_options(transport="quick")  # wrong
fsgather.gather_object("n7").append(3)  # wrong
samples.gather(on_conflict="last")  # wrong
world.start_all_gather(3).wait().items()  # wrong
