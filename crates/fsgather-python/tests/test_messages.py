"""What a program's user sees of us: tracebacks without our frames, and lines on standard error that say whose they are."""

from __future__ import annotations

from conftest import World
from fsgather import PeerFailedError, _errors, _tracebacks

FAILS = """
import traceback

class Stubborn:
    def __reduce__(self):
        raise ValueError("not me")

def frames(call):
    try:
        call()
    except Exception as error:
        steps = traceback.extract_tb(error.__traceback__)
        return [os.path.basename(os.path.dirname(step.filename)) == "fsgather" for step in steps], steps[-1].name
    raise AssertionError("it did not fail")

calls = [
    lambda: fsgather.all_gather(rank, timeout="soon"),
    lambda: fsgather.gather_object(rank, dst=7),
    lambda: fsgather.default_communicator().broadcast_object(rank, src=7),
    lambda: fsgather.default_communicator().group([7]),
    lambda: fsgather.Communicator(rank=5, world_size=2),
    lambda: fsgather.barrier(rank=rank),
]
for call in calls:
    found, _ = frames(call)
    tell(found)
tell(frames(lambda: fsgather.all_gather(Stubborn() if rank == 1 else rank)))
"""


def test_traceback_has_one_frame_of_ours(world: World) -> None:
    told = world.start(2, FAILS).told()
    ours = [False, False, True]
    for rank, lines in enumerate(told):
        assert lines[:6] == [ours] * 6, (rank, lines)
    # An exception of the program's own keeps the frames of the program.
    assert told[0][6] == [ours, "all_gather"]
    assert told[1][6][0][:3] == ours and told[1][6][0].count(True) == 1, told[1][6]


def test_traceback_is_whole_at_debug_level(world: World) -> None:
    told = world.start(2, FAILS, FSGATHER_LOG="debug").told()
    assert all(found.count(True) > 1 for found in told[0][:4]), told[0]


def test_exceptions_that_cause_each_other_are_handled() -> None:
    one, other = ValueError("not me"), PeerFailedError("rank 1 failed")
    one.__cause__, other.__cause__ = other, one
    other.rank = 1
    assert _tracebacks.without_our_frames(one) is one
    assert _errors.heard(one, 1) is None and _errors.heard(one, 0) is other


WARNS = """
import logging
if os.environ["CASE"] == "own log":
    logging.basicConfig(format="mine: %(message)s")
if os.environ["CASE"] == "late log":
    fsgather.barrier()
    logging.basicConfig(format="mine: %(message)s")
fsgather.all_gather(rank)
fsgather.default_communicator()
"""


def test_lines_on_standard_error_begin_with_our_name(world: World) -> None:
    for case, start in (("no log", "fsgather: "), ("own log", "mine: "), ("late log", "mine: ")):
        other = World(world.directory)
        ended = other.start(2, WARNS, CASE=case, MDETR_FILESYS_REDUCE_RANK_0_ONLY="1").ends()
        other.end()
        lines = ended[1].err.splitlines()
        assert len(lines) == 1 and lines[0].startswith(start), (case, lines)
