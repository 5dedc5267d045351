"""Torch's own tests of the object functions, as far as its wheel has them, on processors and gloo.

The bodies of its test methods, unmodified; the methods around them only choose the group, and want a launcher of
torch's own. To be run with ``torch+internal``, since that is where the calls come from.
"""

from __future__ import annotations

import os
import sys
import unittest
from typing import Any

# The module decides by these, and by the arguments of the process, what it tests.
os.environ.update(BACKEND="gloo", TEMP_DIR=os.environ["SWITCH_OUTPUT"])
sys.argv = sys.argv[:1]

import torch
import torch.distributed as dist
from fsgather._switch import meeting
from torch.testing._internal.distributed import distributed_test

TESTS: Any = distributed_test.DistributedTest._DistTestBase
NAMES = ("_test_allgather_object", "_test_gather_object", "_test_broadcast_object_list")


class Rank(unittest.TestCase):
    """What the bodies expect around them."""

    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])


def count_calls() -> list[str]:
    """A list that gets the name of each call that goes our way."""
    calls: list[str] = []
    original = meeting.Membership.call

    def counting(self: Any, name: str, *arguments: Any, **how: Any) -> Any:
        calls.append(name)
        return original(self, name, *arguments, **how)

    meeting.Membership.call = counting  # type: ignore[method-assign]
    return calls


def main() -> None:
    """On the default group, and on one made for it."""
    dist.init_process_group("gloo")
    calls = count_calls()
    lines = []
    for name in NAMES:
        for where, group in (("default group", None), ("new group", dist.new_group(backend="gloo"))):
            before = len(calls)
            # Ranks compare what they get with what they would have made themselves.
            torch.manual_seed(1234)
            getattr(TESTS, name)(Rank(), group)
            lines.append(f"{name}, {where}: passed, {len(calls) - before} calls through fsgather")
            dist.barrier()
    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{dist.get_rank()}"), "w") as output:
        output.write("\n".join(lines) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
