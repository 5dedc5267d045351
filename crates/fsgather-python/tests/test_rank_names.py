"""What the ranks of a group are called in what is told about their objects: their numbers in the world, or in the job that the world is a part of."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from conftest import World

CALLS = """
import time

import numpy as np


class Broken:
    def __reduce__(self):
        return int, ("no number",)


def told_of(group, at_fault):
    def told(kind, call):
        try:
            call()
        except kind as error:
            table = list(getattr(error, "table", {}))
            tell([str(error), *getattr(error, "__notes__", []), table])

    broken = Broken() if at_fault else 1
    told(fsgather.MismatchError, lambda: group.gather(np.zeros((2, 4 if at_fault else 3))))
    told(ValueError, lambda: group.all_gather(broken))
    told(ValueError, lambda: group.start_all_gather(broken).wait())
    told(ValueError, lambda: group.gather_object(broken, 0))
    told(ValueError, lambda: group.broadcast_object(broken, 1))


"""


def judge(first: list[list[object]], second: list[list[object]], names: tuple[int, int]) -> None:
    """Both members, of which the second one was at fault in everything."""
    whose, fault = names
    told = f"rank {whose}: float64 [2, 3] along 0; rank {fault}: float64 [2, 4] along 0"
    arrays = [f"the arrays to be joined differ between ranks: {told}", [whose, fault]]
    unreadable = ["invalid literal for int() with base 10: 'no number'", f"while reading the object that rank {fault} handed in", []]
    assert first == [arrays, *[unreadable] * 4]
    # Of the objects that the first one alone gets it hears nothing, nor of its own that it hands out.
    assert second == [arrays, *[unreadable] * 2]


@pytest.mark.parametrize("nested", [False, True])
def test_members_of_a_group_are_called_by_their_numbers_in_the_world(world: World, nested: bool) -> None:
    told = world.start(
        4,
        CALLS
        + f"""
with fsgather.Communicator() as communicator:
    if {nested} and rank != 1:
        outer = communicator.group([3, 0, 2])
        group = outer.group([0, 2]) if rank != 0 else None
    else:
        group = communicator.group([3, 2]) if rank > 1 else None
    if group is not None:
        told_of(group, rank == 2)
""",
    ).told()
    judge(told[3], told[2], (3, 2))
    assert told[0] == told[1] == []


def test_ranks_of_a_world_that_is_a_part_of_a_job_are_called_by_their_numbers_in_it(world: World) -> None:
    told = world.start(
        2,
        CALLS
        + LAST
        + """
record = os.environ["FSGATHER_DIR"] + "/record"

def publish(found):
    with open(record + ".draft", "wb") as file:
        file.write(found)
    os.rename(record + ".draft", record)

def fetch(seconds):
    while not os.path.exists(record):
        time.sleep(0.01)
    return open(record, "rb").read()

with fsgather.Communicator._meet(rank, 2, publish, fetch, numbers=[7, 3]) as part:
    told_of(part, rank == 1)
    comes_last(part.group([0, 1]), part, rank == 1)
    with part.group([1, 0]) as group:
        try:
            group.gather(np.zeros((2, 3 + rank)))
        except fsgather.MismatchError as error:
            tell(error.table)
""",
        FSGATHER_TRACE="always",
    ).told()
    assert called(world) == ({3, 7}, {3})
    assert told[0].pop() == told[1].pop() == {"3": "float64 [2, 4] along 0", "7": "float64 [2, 3] along 0"}
    judge(told[0], told[1], (7, 3))


LAST = """
def comes_last(group, everybody, is_last):
    pending = None if is_last else group.start_all_gather(1)
    # What a rank has handed in is known where this is.
    everybody.barrier()
    pending = pending or group.start_all_gather(2)
    assert sorted(pending.wait()) == [1, 2]

"""
"""One member of a group comes to a call when the other has handed in."""


def called(world: World) -> tuple[set[int], set[int]]:
    """The ranks of which there are calls, and those that came last to the first call of a group, if it is a ``start_all_gather``, as they are drawn."""
    drawing = world.directory / "drawn.json"
    subprocess.run([sys.executable, "-m", "fsgather", "trace", str(world.directory), "--to", str(drawing)], stdout=subprocess.DEVNULL, check=True)
    events = json.loads(drawing.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    lasts = {event["args"]["last_rank"] for event in events if event["name"] == "start_all_gather #1"}
    return {int(name.split()[1]) for name in names}, lasts


def test_who_came_last_to_a_call_of_a_group_is_told_by_its_number_in_the_world(world: World) -> None:
    world.start(
        3,
        LAST
        + """
with fsgather.Communicator() as communicator:
    if rank == 0:
        communicator.barrier()
    else:
        comes_last(communicator.group([1, 2]), communicator, rank == 1)
""",
        FSGATHER_TRACE="always",
    ).told()
    assert called(world) == ({0, 1, 2}, {1})
