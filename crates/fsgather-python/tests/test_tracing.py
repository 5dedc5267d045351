"""The picture of what ranks have called."""

from __future__ import annotations

import json

import pytest

import fsgather
from conftest import World


def test_a_block_is_drawn_with_the_calls_of_all_ranks_in_it(world: World) -> None:
    told = world.start(
        3,
        """
        import time
        fsgather.barrier()
        with fsgather.trace(os.environ["FSGATHER_DIR"] + "/block.json") as traced:
            for _ in range(3):
                time.sleep(0.05 * (rank == 1))
                fsgather.all_gather(rank)
        fsgather.barrier()
        tell(traced.summary)
        """,
    ).told()
    (summary,), others = told[0], told[1:]
    assert others == [[None], [None]]
    assert "rank 1 came last in 3 of 3 calls and cost the others " in summary
    document = json.loads((world.directory / "block.json").read_text())
    calls = [event["name"] for event in document["traceEvents"] if event["name"].startswith("all_gather")]
    assert sorted(set(calls)) == ["all_gather #2", "all_gather #3", "all_gather #4"] and len(calls) == 9


def test_where_calls_are_not_kept_nothing_is_drawn(world: World) -> None:
    told = world.start(
        2,
        """
        with fsgather.trace("block.html") as traced:
            fsgather.barrier()
        tell([traced.summary, os.path.exists("block.html")])
        """,
        FSGATHER_TRACE="off",
    ).told()
    assert told == [[[None, False]], [[None, False]]]


def test_a_picture_that_cannot_be_written_is_no_reason_to_fail(world: World) -> None:
    told = world.start(
        2,
        """
        import logging
        heard = []
        handler = logging.Handler()
        handler.emit = lambda record: heard.append(record.getMessage())
        logging.getLogger("fsgather").addHandler(handler)
        with fsgather.trace("/nonexistent/block.html"):
            fsgather.barrier()
        tell([fsgather.all_gather(rank), [text for text in heard if "/nonexistent/block.html" in text]])
        """,
    ).told()
    (_, warnings), (gathered, others) = told[0][0], told[1][0]
    assert gathered == [0, 1] and others == []
    assert len(warnings) == 1 and "No such file or directory" in warnings[0], warnings


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_a_rank_that_leaves_the_block_by_an_exception_and_goes_on_harms_nothing(world: World, leaver: int) -> None:
    told = world.start(
        3,
        """
        import logging
        heard = []
        handler = logging.Handler()
        handler.emit = lambda record: heard.append(record.getMessage())
        logging.getLogger("fsgather").addHandler(handler)
        page = os.environ["FSGATHER_DIR"] + "/block.json"
        for turn in range(2):
            fsgather.barrier()
            try:
                with fsgather.trace(page) as traced:
                    fsgather.all_gather(rank)
                    if rank == int(os.environ["LEAVER"]) and turn == 0:
                        raise KeyError("no such score")
            except KeyError:
                pass
            tell([traced.summary is not None, os.path.exists(page), [text for text in heard if "not drawn" in text]])
            assert fsgather.all_gather(rank) == [0, 1, 2]
        fsgather.close()
        """,
        LEAVER=str(leaver),
    ).told()
    for rank, (first, second) in enumerate(told):
        assert first[:2] == [False, False] and second[0] == (rank == 0), told
        assert first[2] == second[2] and len(first[2]) == (rank == 0 != leaver), told
    for warning in told[0][0][2]:
        assert f"these calls are not drawn: rank {leaver} on " in warning and "no such score" in warning, warning
    assert (world.directory / "block.json").exists()


def test_a_file_of_no_known_form_is_refused_before_anything_is_called() -> None:
    with pytest.raises(ValueError, match=r"must end in .html or .json"):
        fsgather.trace("block.png")
