"""Records that nobody holds as a whole."""

from __future__ import annotations

import tracemalloc
from typing import Any, Iterator

import fsgather
import pytest

from conftest import World


@pytest.mark.parametrize("transport", ["filesys", "memory"])
def test_records_come_in_order_with_their_ranks_whatever_they_are(world: World, transport: str) -> None:
    told = world.start(
        3,
        """
        import enum
        import numpy

        class Kind(enum.Enum):
            EVEN = 0
            ODD = 1

        def own(rank):
            for n in range(2_000 if rank != 1 else 0):
                yield {"n": n, "rank": rank, "kind": Kind(n % 2)}
            yield numpy.full(100_000, rank)

        received = fsgather.gather_records(own(rank), dst=2)
        if rank == 2:
            for r in range(3):
                for expected in own(r):
                    got = next(received)
                    assert got[0] == r
                    if isinstance(expected, dict):
                        assert got[1] == expected
                    else:
                        assert (got[1] == expected).all() and got[1].flags.writeable
        assert list(received) == []
        assert list(fsgather.gather_records([])) == []
        with fsgather.gather_records(own(rank)) as left:
            assert (next(left, None) is None) == (rank != 0)
        assert list(left) == []
        fsgather.close()
        tell("done")
        """,
        FSGATHER_TRANSPORT=transport,
    ).told()
    assert told == [["done"]] * 3
    assert world.left() in ([], ["all_gather_via_filesys"])


def test_what_iterating_raises_is_its_cause_here_and_is_told_to_others(world: World) -> None:
    told = world.start(
        2,
        """
        def own():
            yield 1
            if rank == 1:
                raise RuntimeError("no such image")

        try:
            fsgather.gather_records(own())
        except fsgather.PeerFailed as error:
            tell([str(error), repr(error.__cause__)])
        """,
    ).told()
    assert told[0][0][0] == told[1][0][0]
    assert "rank 1" in told[0][0][0] and "RuntimeError: no such image" in told[0][0][0]
    assert [one[0][1] for one in told] == ["None", "RuntimeError('no such image')"]


def test_an_interruption_while_a_record_is_made_is_one(world: World) -> None:
    told = world.start(
        2,
        """
        import signal

        def own():
            yield 1
            if rank == 1:
                os.kill(os.getpid(), signal.SIGINT)
                yield 2

        try:
            fsgather.gather_records(own())
        except KeyboardInterrupt:
            tell("interrupted")
        except fsgather.PeerFailed as error:
            tell(str(error))
        """,
    ).told()
    assert "rank 1" in told[0][0] and "KeyboardInterrupt" in told[0][0]
    assert told[1] == ["interrupted"]


def test_an_iterator_that_is_slow_is_not_late_as_long_as_records_come(world: World) -> None:
    told = world.start(
        3,
        """
        import time

        def own():
            for n in range(8 if rank == 2 else 1):
                time.sleep(0.7 if rank == 2 else 0)
                yield n

        tell(list(fsgather.gather_records(own(), timeout=3.5)))
        fsgather.close()
        """,
    ).told()
    assert told == [[[[0, 0], [1, 0], *([2, n] for n in range(8))]], [[]], [[]]]


def test_a_rank_that_is_lost_while_it_makes_records_is_told_so(world: World) -> None:
    ended = world.start(
        2,
        """
        import signal
        import time

        def own():
            yield 1
            if rank == 1:
                time.sleep(1)
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            fsgather.gather_records(own())
        except fsgather.PeerFailed as error:
            tell(str(error))
        """,
    ).ends()
    (text,) = ended[0].told
    assert "was lost" in text and "while publishing its payload in gather #1" in text


def test_a_rank_that_hands_in_something_else_is_named(world: World) -> None:
    told = world.start(
        2,
        """
        call = fsgather.gather_records if rank == 0 else fsgather.gather_iter
        try:
            tell(list(call([1, 2])))
        except ValueError as error:
            tell(str(error))
        """,
    ).told()
    assert told == [["rank 1 has handed in no records: do all ranks call gather_records?"], [[]]]


def test_neither_side_holds_all_records() -> None:
    size = 1 << 20

    def own() -> Iterator[Any]:
        for n in range(64):
            yield bytes([n]) * size

    tracemalloc.start()
    world = fsgather.Communicator(rank=0, world_size=1)
    count = sum(len(record) == size for _, record in world.gather_records(own()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 64
    assert peak < 16 * size, peak
