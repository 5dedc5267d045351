"""The object functions of torch on the default group and on others: prints what they give, for comparison.

Started by torchrun, once with ``FSGATHER_PATCH`` and once without; both must print the same.
"""

from __future__ import annotations

import collections
import datetime
import os
import pathlib
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import all_gather_object as bound_early


class Shape(collections.namedtuple("Shape", "height width")):
    """A class of the program's own."""


def contribution(rank: int) -> Any:
    """Something of every kind, and of a size that differs between ranks."""
    return {
        "rank": rank,
        "text": "ü" * rank * 1000,
        "shape": Shape(rank, 2),
        "when": datetime.datetime(2024, 1, 1 + rank),
        "path": pathlib.PurePosixPath("/a") / str(rank),
        "tensor": torch.arange(rank * 50_000, dtype=torch.float32),
        "none": None,
        "set": {rank, -rank},
        "bytes": bytes([rank]) * (100_000 if rank == 1 else 3),
    }


def describe(value: Any) -> str:
    """The same text for the same value."""
    if isinstance(value, torch.Tensor):
        return f"tensor({value.dtype}, {tuple(value.shape)}, {value.double().sum().item()}, {value.requires_grad})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {describe(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)) and not isinstance(value, Shape):
        return f"{type(value).__name__}[" + ", ".join(map(describe, value)) + "]"
    if isinstance(value, (bytes, str)) and len(value) > 100:
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)


def attempt(function: Any, *arguments: Any, **named: Any) -> str:
    """What a call gives, or how it fails."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = repr(function(*arguments, **named))
        except Exception as error:
            result = f"{type(error).__name__}: {str(error)[:80]}"
    said = [str(warning.message) for warning in caught if "belong" in str(warning.message)]
    return " ".join([result, *said])


def main() -> None:
    """Every function, on every kind of group, with every kind of argument."""
    lines = []

    def note(what: str, *values: Any) -> None:
        lines.append(f"{what}: " + " | ".join(value if isinstance(value, str) else describe(value) for value in values))

    note("not initialised", attempt(dist.all_gather_object, [None], 1))
    has_group_ranks = "group_dst" in str(__import__("inspect").signature(dist.gather_object))
    for life in range(2):
        # A store of its own for each: gloo itself is confused by what an earlier group has left in one.
        meeting = os.path.join(os.environ["SWITCH_OUTPUT"], f"store-{life}")
        dist.init_process_group(
            "gloo",
            init_method="env://" if life == 0 else f"file://{os.path.abspath(meeting)}",
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=datetime.timedelta(seconds=60 + life),
        )
        rank, size = dist.get_rank(), dist.get_world_size()
        mine = contribution(rank)

        into = [None] * size
        note("all_gather_object", attempt(dist.all_gather_object, into, mine), into)
        note("own entry is a copy", str(into[rank] is not mine))
        longer = ["kept"] * (size + 2)
        note("longer list", attempt(bound_early, longer, rank), longer)
        shorter = [None] * (size - 1)
        note("shorter list", attempt(dist.all_gather_object, shorter, rank), shorter)
        note("by name", attempt(dist.all_gather_object, obj=rank, object_list=into, group=None), into)
        note("wrong arguments", attempt(dist.all_gather_object, into))
        note("WORLD", attempt(dist.all_gather_object, into, rank, dist.group.WORLD), into)

        for root in (0, size - 1):
            into = [None] * size if rank == root else None
            note(f"gather_object to {root}", attempt(dist.gather_object, mine, into, root), into)
            objects = [mine, "x" * 200, 3] if rank == root else [None] * 3
            first = objects[0]
            note(f"broadcast_object_list from {root}", attempt(dist.broadcast_object_list, objects, src=root), objects)
            note("source keeps its objects", str(rank != root or objects[0] is first))

        odd = dist.new_group(list(range(1, size, 2)))
        again = dist.new_group(list(range(size - 1, -1, -1)))
        alone = dist.new_group([0])
        for name, group in (("odd", odd), ("again", again), ("alone", alone)):
            is_member = dist.get_rank(group) >= 0
            members = dist.get_world_size(group) if is_member else 1
            into = ["untouched"] * members
            note(f"{name} all_gather_object", attempt(dist.all_gather_object, into, mine, group), into)
            root = 0 if name == "alone" else size - 1
            into = ["untouched"] * members if rank == root else None
            if is_member or not has_group_ranks:
                note(f"{name} gather_object", attempt(dist.gather_object, mine, into, root, group), into)
                objects = [rank, {"from": rank}]
                note(f"{name} broadcast", attempt(dist.broadcast_object_list, objects, root, group), objects)
            if is_member and has_group_ranks:
                into = [None] * members if dist.get_rank(group) == 0 else None
                note(f"{name} group_dst", attempt(dist.gather_object, mine, into, group=group, group_dst=0), into)
                objects = [rank]
                note(f"{name} group_src", attempt(dist.broadcast_object_list, objects, group=group, group_src=0), objects)
                both = attempt(dist.broadcast_object_list, objects, src=0, group=group, group_src=0)
                note(f"{name} both", both)
        if has_group_ranks:
            into = [None] * size
            safe = {"tensor": torch.ones(3), "rank": rank, "set": {1}}
            note("weights_only", attempt(dist.all_gather_object, into, safe, weights_only=True), into)
            unsafe = attempt(dist.all_gather_object, into, pathlib.PurePosixPath("/a"), weights_only=True)
            note("weights_only, refused", unsafe.split(":")[0])
            objects = [safe, rank] if rank == 1 else [None, None]
            note("weights_only broadcast", attempt(dist.broadcast_object_list, objects, 1, weights_only=True), objects)
        dist.barrier()
        dist.destroy_process_group()
        note("destroyed", attempt(dist.all_gather_object, [None], 1))

    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{os.environ['RANK']}"), "w") as output:
        output.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
