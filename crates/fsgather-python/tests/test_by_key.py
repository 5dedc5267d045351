"""Tags of calls, and dictionaries joined by key."""

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
                fsgather.all_gather_object(score, tag=name)
        except fsgather.Desync as error:
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
            except fsgather.Timeout as error:
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
    with pytest.raises(fsgather.Config, match="tag"):
        fsgather.Communicator(rank=0, world_size=1).barrier(tag=tag)  # type: ignore[arg-type]


def test_dictionaries_in_any_order_are_joined_by_key(world: World) -> None:
    told = world.start(
        3,
        """
        keys = ["bleu", 7, ("size", 2.5)]
        own = {key: [rank, str(key)] for key in (reversed(keys) if rank == 1 else keys)}
        expected = {key: [[r, str(key)] for r in range(3)] for key in keys}
        here = fsgather.gather_by_key(own)
        assert here == (expected if rank == 0 else None), here
        assert fsgather.gather_by_key(own, None) == expected
        assert fsgather.gather_by_key({}, dst=2) == ({} if rank == 2 else None)
        fsgather.close()
        tell("done")
        """,
    ).told()
    assert told == [["done"]] * 3


def test_a_rank_that_lacks_a_key_is_named_on_all_and_the_communicator_lives_on(world: World) -> None:
    told = world.start(
        4,
        """
        own = {"bleu": rank, "rouge": -rank}
        if rank == 1:
            del own["rouge"]
        if rank == 2:
            own["meteor"] = 0
        try:
            fsgather.gather_by_key(own)
        except fsgather.Mismatch as error:
            tell([str(error), sorted(error.table.items())])
        tell(fsgather.gather_by_key(own, dst=None, default=-9))
        try:
            fsgather.gather_by_key([1] if rank == 1 else own)
        except fsgather.Mismatch as error:
            tell(str(error))
        fsgather.close()
        """,
    ).told()
    assert told[0] == told[1] == told[2] == told[3]
    (text, table), joined, other = told[0]
    assert text == "the dictionaries to be joined differ between ranks: ranks 0, 3 lack 'meteor'; rank 1 lacks 'rouge', 'meteor'"
    assert table == [[0, "lacks 'meteor'"], [1, "lacks 'rouge', 'meteor'"], [3, "lacks 'meteor'"]]
    assert joined == {"bleu": [0, 1, 2, 3], "rouge": [0, -9, -2, -3], "meteor": [-9, -9, 0, -9]}
    assert other == "the dictionaries to be joined differ between ranks: rank 1 handed in list, which is no dictionary"


def test_keys_that_are_not_plain_data_and_defaults_of_some_ranks_are_told_on_all(world: World) -> None:
    told = world.start(
        2,
        """
        import pathlib

        def attempt(*given, **how):
            try:
                tell(fsgather.gather_by_key(*given, **how))
            except fsgather.Mismatch as error:
                tell(str(error))

        attempt({"a": 1, pathlib.PurePosixPath("b"): 2} if rank else {"a": 1})
        attempt({"a": 1} if rank else {}, **({"default": 0} if rank else {}))
        attempt({("a", float("nan")): rank})
        attempt({"x" * 10_000: rank} if rank else {})
        attempt({"a": rank}, dst=None)
        fsgather.close()
        """,
    ).told()
    beginning = "the dictionaries to be joined differ between ranks: "
    key = "rank 1 handed in a key of type pathlib.PurePosixPath, and keys are plain data, such as strings"
    default = "rank 0 gave no default; rank 1 gave a default"
    nan = "ranks 0, 1 handed in the key ('a', nan), which equals no other rank's (as nan does not)"
    long = "rank 0 lacks '" + "x" * 99 + "... (10002 characters)"
    assert told == [[*(beginning + text for text in (key, default, nan, long)), {"a": [0, 1]}]] * 2
