"""Arrays in memory that ranks of one host share: ``fsgather.empty``."""

from __future__ import annotations

from conftest import World

#: What a rank of these tests has at hand.
HAVE = """
import numpy as np

def filled(value, shape=(300, 500), dtype="f4"):
    own = fsgather.empty(shape, dtype)
    assert own.shape == shape and own.dtype == np.dtype(dtype) and own.flags.writeable and own.flags.c_contiguous
    own.fill(value)
    return own

def is_shared(array):
    # Whether it lies in memory of arenas, be it the own one or another rank's.
    address = array.__array_interface__["data"][0]
    for line in open("/proc/self/maps"):
        start, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if start <= address < end:
            return "fsgather payloads" in line
    return False
"""


def test_what_was_written_is_gathered_and_what_is_written_later_is_not(world: World) -> None:
    told = world.start(
        3,
        HAVE
        + """
own = filled(rank)
assert is_shared(own)
parts = fsgather.all_gather_object({"boxes": own, "rank": rank})
shared = [is_shared(part["boxes"]) for part in parts]  # also the first of its size
own += 10
fsgather.barrier()
assert all((part["boxes"] == part["rank"]).all() for part in parts)
assert (own == rank + 10).all()
again = fsgather.all_gather_object(own)  # as any array
assert all((part == from_rank + 10).all() for from_rank, part in enumerate(again))
joined = fsgather.gather(filled(rank + 20))
assert [int(row) for row in joined[::300, 0]] == [20, 21, 22]
on_root = fsgather.gather_object([filled(rank + 30), "text"], dst=1)
assert on_root is None or [int(part[0].max()) for part in on_root] == [30, 31, 32]
half = filled(rank + 40)
half[150:] = 7
parts = fsgather.all_gather_object(half[150:])
assert all((part == 7).all() and part.shape == (150, 500) for part in parts)
tell(shared)
""",
        FSGATHER_SHARED_MEMORY="64MiB",
    ).told()
    assert told == [[[True] * 3]] * 3


def test_results_outlive_the_array_and_its_rank(world: World) -> None:
    told = world.start(
        2,
        HAVE
        + """
kept = []
for call in range(12):
    kept.append(fsgather.all_gather_object(filled(100 * call + rank)))
for call, parts in enumerate(kept):
    assert [int(part.min()) for part in parts] == [int(part.max()) for part in parts] == [100 * call, 100 * call + 1]
fsgather.close()
assert int(kept[3][1].max()) == 301
tell("done")
""",
        FSGATHER_SHARED_MEMORY="4MiB",
    ).told()
    assert told == [["done"]] * 2


def test_a_forked_child_writes_to_a_copy(world: World) -> None:
    told = world.start(
        2,
        HAVE
        + """
import os

own = filled(rank)
child = os.fork()
if child == 0:
    was = (own == rank).all()
    own.fill(99)
    os._exit(7 if was and (own == 99).all() else 8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
parts = fsgather.all_gather_object(own)
child = os.fork()
if child == 0:
    own.fill(98)
    os._exit(7)
os.waitpid(child, 0)
fsgather.barrier()
assert [int(part.max()) for part in parts] == [0, 1] and (own == rank).all()
tell("done")
""",
        FSGATHER_SHARED_MEMORY="64MiB",
    ).told()
    assert told == [["done"]] * 2


def test_what_a_forked_child_makes_is_its_own(world: World) -> None:
    told = world.start(
        2,
        HAVE
        + """
import os

fsgather.barrier()
own = filled(rank)
(go, goes), (written, writes) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    own.fill(97)
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(7 if (own == 97).all() else 8)
    status = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
    made = filled(98)
    os.write(writes, b"1")
    os.read(go, 1)  # its parent has handed over what it has made meanwhile
    made.fill(99)
    os._exit(9 if is_shared(made) else status)
os.read(written, 1)
parts = fsgather.all_gather_object(filled(rank + 10))
os.write(goes, b"1")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
fsgather.barrier()
assert [int(part.min()) for part in parts] == [int(part.max()) for part in parts] == [10, 11] and (own == rank).all()
tell("done")
""",
        FSGATHER_SHARED_MEMORY="64MiB",
    ).told()
    assert told == [["done"]] * 2


def test_it_is_an_array_as_any_other_where_nothing_is_shared(world: World) -> None:
    told = world.start(
        2,
        HAVE
        + """
assert not is_shared(filled(1))
parts = fsgather.all_gather_object(filled(rank))
assert [int(part.max()) for part in parts] == [0, 1]
assert fsgather.empty(3).dtype == float and fsgather.empty(()).shape == ()
assert fsgather.empty((4, 0, 2)).size == 0
tell("done")
""",
        FSGATHER_SHARED_MEMORY="0",
    ).told()
    assert told == [["done"]] * 2


def test_what_is_no_array_of_plain_elements_is_refused(world: World) -> None:
    told = world.start(
        1,
        """
for arguments in [((3, -1),), ("three",), ((2,), object), ((2,), "O,i4"), ((2,), "nothing"), (1.5,)]:
    try:
        fsgather.empty(*arguments)
    except (TypeError, ValueError) as error:
        tell(type(error).__name__)
    else:
        tell(f"{arguments} passed")
""",
    ).told()
    assert told == [["ValueError", "TypeError", "TypeError", "TypeError", "TypeError", "TypeError"]]


def test_small_arrays_take_no_place_of_large_ones(world: World) -> None:
    told = world.start(
        2,
        HAVE
        + """
fsgather.barrier()
small = [filled(number, (50,)) for number in range(100)]
parts = fsgather.all_gather_object([*small, filled(rank)])
assert all((part[99] == 99).all() and (part[100] == from_rank).all() for from_rank, part in enumerate(parts))
tell([is_shared(small[0]), is_shared(filled(1))])
""",
        FSGATHER_SHARED_MEMORY="64MiB",
    ).told()
    assert told == [[[False, True]]] * 2


def test_what_no_memory_holds_is_refused_as_numpy_does(world: World) -> None:
    told = world.start(
        2,
        """
import numpy as np

fsgather.barrier()
for arguments in [(1 << 62,), ((1 << 31, 1 << 31, 1 << 31),), (1 << 63, "u1"), (1 << 70,), ((1 << 63) - 1, "u1"), ((0, 1 << 62, 1 << 62),)]:
    errors = []
    for empty in (np.empty, fsgather.empty):
        try:
            empty(*arguments)
        except (ValueError, MemoryError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    assert len(errors) == 2 and errors[0] == errors[1], errors
assert fsgather.empty(3, "S").dtype == np.empty(3, "S").dtype and fsgather.empty((2, 0), str).shape == (2, 0)
tell("done")
""",
        FSGATHER_SHARED_MEMORY="64MiB",
    ).told()
    assert told == [["done"]] * 2
