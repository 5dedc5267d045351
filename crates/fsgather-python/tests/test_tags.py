"""Tags of calls."""

from __future__ import annotations

import fsgather
import pytest

from conftest import World


def test_ranks_that_come_to_one_line_with_different_tags_are_told_both(world: World) -> None:
    told = world.start(
        2,
        """
        scores = {"bleu": 1, "rouge": 2} if rank == 0 else {"rouge": 2, "bleu": 1}
        try:
            for name, score in scores.items():
                fsgather.all_gather(score, tag=name)
        except fsgather.DesyncError as error:
            tell(str(error))
        """,
    ).told()
    assert told[0] == told[1]
    (text,) = told[0]
    assert "(different tags)" in text
    assert text.count('all_gather "bleu" at program.py:') == text.count('all_gather "rouge" at program.py:') == 1


@pytest.mark.parametrize("tag", ["right\\u202eleft", "\\x1b[1mbold", "a\\0b", "two\\nlines"])
@pytest.mark.parametrize("in_group", [False, True])
def test_a_tag_may_have_any_characters(world: World, tag: str, in_group: bool) -> None:
    told = world.start(
        2,
        f"""
        with fsgather.Communicator() as communicator:
            used = communicator.group([0, 1]) if {in_group} else communicator
            tell(used.all_gather(rank, tag="{tag}"))
        """,
    ).told()
    assert told == [[[0, 1]], [[0, 1]]]


def test_a_tag_that_is_the_same_everywhere_changes_nothing_and_late_ranks_are_missed_in_it(world: World) -> None:
    world.start(
        2,
        """
        with fsgather.Communicator() as communicator:
            assert communicator.all_gather(rank, tag="bleu") == [0, 1]
            communicator.barrier(tag="bleu")
            assert list(communicator.gather_iter(rank, tag="each")) == ([0, 1] if rank == 0 else [])
            tell("bleu")
        communicator = fsgather.Communicator()
        if rank == 0:
            try:
                communicator.all_gather(rank, tag="rouge", timeout=1)
            except fsgather.TimeoutError as error:
                tell(str(error))
        else:
            wait_for_go()
        """,
    )
    assert [world.hear(0), world.hear(1)] == ["bleu", "bleu"]
    text = world.hear(0)
    assert 'all_gather #1 "rouge" at program.py:' in text, text
    world.go()
    world.told()


@pytest.mark.parametrize("tag", ["", "x" * 257, 3])
def test_a_tag_is_a_short_text(tag: object) -> None:
    with pytest.raises(fsgather.ConfigError, match="tag"):
        fsgather.Communicator(rank=0, world_size=1).barrier(tag=tag)  # type: ignore[arg-type]
