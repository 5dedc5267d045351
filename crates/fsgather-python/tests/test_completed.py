"""Gathers that give parts as ranks finish, and what is there at a deadline."""

from __future__ import annotations

import signal

import fsgather
import pytest

from conftest import World


@pytest.mark.parametrize("transport", ["auto", "filesys", "memory"])
def test_parts_come_as_ranks_finish_and_all_hear_who_is_missing(world: World, transport: str) -> None:
    told = world.start(
        3,
        """
        import time

        import numpy

        communicator = fsgather.default_communicator()
        communicator.barrier()
        own = {"rank": rank, "boxes": numpy.full(50_000, rank)}
        if rank == 1:
            wait_for_go()
        ranks = []
        for r, part in fsgather.gather_as_completed(own):
            assert part["rank"] == r and (part["boxes"] == r).all()
            ranks.append(r)
            if len(ranks) == 2:
                open(os.environ["FSGATHER_DIR"] + "/go.py", "w").close()
        tell(ranks)
        communicator.barrier()
        decided = os.environ["FSGATHER_DIR"] + "/decided.py"
        while rank == 1 and not os.path.exists(decided):
            time.sleep(0.01)
        partial = fsgather.gather_partial(own, dst=2, deadline=2)
        open(decided, "w").close()
        assert not partial.is_complete
        tell([[peer.rank, peer.pid, peer.host is not None] for peer in partial.missing])
        assert (partial.parts is not None) == (rank == 2)
        if rank == 2:
            assert list(partial.parts) == [0, 2]
        parts = fsgather.gather_as_completed(own, deadline=60)
        assert sorted(r for r, _ in parts) == ([0, 1, 2] if rank == 0 else [])
        assert parts.missing == ()
        tell(os.getpid())
        fsgather.close()
        """,
        FSGATHER_TRANSPORT=transport,
    ).told()
    assert told[0][0][-1] == 1 and sorted(told[0][0]) == [0, 1, 2]
    assert told[1][0] == told[2][0] == []
    missing = [[1, told[1][2], True]]
    assert [one[1] for one in told] == [missing] * 3
    assert world.left() in ([], ["all_gather_via_filesys"])


def test_a_failure_comes_after_what_was_in(world: World) -> None:
    world.start(
        3,
        """
        world = fsgather.default_communicator()
        tell("here")
        if rank == 2:
            wait_for_go()
        got = []
        try:
            for r, part in fsgather.gather_as_completed([rank] * 100_000):
                got.append(r)
                if len(got) == 2:
                    tell("two")
        except fsgather.PeerFailed as error:
            tell([error.rank, len(got)])
        """,
    )
    for rank in range(3):
        assert world.hear(rank) == "here"
    assert world.hear(0) == "two"
    world.signal(2, signal.SIGKILL)
    assert [world.hear(rank) for rank in (0, 1)] == [[2, 2], [2, 0]]


def test_a_rank_that_gathers_all_and_one_that_gathers_in_time_are_told_apart(world: World) -> None:
    told = world.start(
        2,
        """
        try:
            if rank == 0:
                fsgather.gather_partial(rank, deadline=60)
            else:
                fsgather.gather_object(rank)
        except fsgather.Desync as error:
            tell([str(error), list(error.calls)])
        """,
    ).told()
    assert told[0] == told[1], told
    ((text, calls),) = told[0]
    assert "(different operations)" in text, text
    assert [call.partition(" to ")[0] for call in calls] == ["gather_partial", "gather"], calls


def test_alone_all_is_there_at_once() -> None:
    with fsgather.Communicator.solo() as alone:
        with alone.gather_as_completed({"a": 1}) as parts:
            assert list(parts) == [(0, {"a": 1})]
        assert parts.missing == () and list(parts) == []
        partial = alone.gather_partial(b"x" * 100_000, deadline=1)
        assert partial.parts == {0: b"x" * 100_000} and partial.is_complete
        assert repr(partial) == "<fsgather.Partial, all ranks in time>"
        closed = alone.gather_as_completed(1, deadline=5)
        closed.close()
        with pytest.raises(RuntimeError, match="closed before its deadline, so who is missing is not known"):
            closed.missing
        begun = alone.gather_as_completed(1, deadline=5)
        with pytest.raises(RuntimeError, match="known once the iteration has ended"):
            begun.missing
        assert list(begun) == [(0, 1)] and begun.missing == ()
        unread = alone.gather_as_completed(1)
        with pytest.raises(fsgather.Config, match="close"):
            alone.close()
        unread.close()


def test_a_deadline_is_a_time() -> None:
    with fsgather.Communicator.solo() as alone:
        for wrong in (0, -1, "soon", float("nan")):
            with pytest.raises(fsgather.Config, match="deadline"):
                alone.gather_partial(1, deadline=wrong)  # type: ignore[arg-type]
        with pytest.raises(fsgather.Config, match="deadline"):
            alone.gather_partial(1, deadline=None)
