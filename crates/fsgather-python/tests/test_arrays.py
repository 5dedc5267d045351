"""Arrays and tensors of all ranks, joined along a dimension."""

from __future__ import annotations

import pytest

from conftest import World


@pytest.mark.parametrize("transport", ["filesys", "memory"])
def test_arrays_of_uneven_length_are_joined(world: World, transport: str) -> None:
    told = world.start(
        3,
        """
        import numpy as np

        whole = np.arange(6 * 5 * 4000, dtype="i4").reshape(6, 5, 4000)
        own = whole[[slice(0, 1), slice(1, 1), slice(1, 6)][rank]]  # rank 1 has none
        assert np.array_equal(fsgather.gather(own), whole)
        assert np.array_equal(fsgather.gather(np.asfortranarray(own)), whole)
        joined = fsgather.gather(own, dst=2)
        assert (joined is None) if rank != 2 else np.array_equal(joined, whole) and joined.flags.writeable
        last = whole[:, :, [slice(0, 100), slice(100, 4000), slice(4000, 4000)][rank]]  # not contiguous
        assert np.array_equal(fsgather.gather(last, dim=-1), whole)
        for dtype in ["?", "i1", "u8", "f2", ">f8", "c16", "M8[ns]", "S3", "U2"]:
            one = np.zeros(rank, dtype=dtype)
            joined = fsgather.gather(one)
            assert joined.dtype == one.dtype and joined.shape == (3,)
        tell("done")
        """,
        FSGATHER_TRANSPORT=transport,
    ).told()
    assert told == [["done"]] * 3


def test_what_does_not_fit_together_is_told_to_all_with_a_table(world: World) -> None:
    told = world.start(
        3,
        """
        import numpy as np

        own = [np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((2, 3), dtype="f4")][rank]
        try:
            fsgather.gather(own)
        except fsgather.MismatchError as error:
            tell([error.table, str(error)])
        assert fsgather.gather(np.ones((1, 1))).shape == (3, 1)  # nothing is broken
        """,
    ).told()
    assert told[0] == told[1] == told[2]
    table, text = told[0][0]
    assert table == {"0": "float64 [2, 3] along 0", "1": "float64 [2, 4] along 0", "2": "float32 [2, 3] along 0"}
    assert "rank 1: float64 [2, 4]" in text


def test_one_rank_without_an_array_leaves_nobody_waiting(world: World) -> None:
    told = world.start(
        2,
        """
        import numpy as np

        try:
            fsgather.gather(np.zeros(3) if rank == 0 else np.array(7))
        except ValueError as error:
            tell([type(error).__name__, str(error)])
        assert fsgather.gather(np.ones(1)).shape == (2,)
        """,
    ).told()
    (mismatch, text), (own, reason) = told[0][0], told[1][0]
    assert (mismatch, own) == ("MismatchError", "ConfigError")
    assert "rank 0: float64 [3] along 0" in text and f"rank 1: none ({reason})" in text


def test_an_array_that_would_lose_its_mask_is_an_error_on_all_ranks(world: World) -> None:
    told = world.start(
        2,
        """
        import numpy as np

        try:
            fsgather.gather(np.ma.array([1.0, 2.0], mask=[0, 1]) if rank else np.zeros(2))
        except fsgather.Error as error:
            tell([type(error).__name__, str(error)])
        assert fsgather.gather(np.ones(1)).shape == (2,)
        """,
    ).told()
    (mismatch, text), (own, reason) = told[0][0], told[1][0]
    assert (mismatch, own) == ("MismatchError", "ConfigError")
    assert "MaskedArray" in reason and f"rank 1: none ({reason})" in text


def test_what_is_no_array_is_refused_by_name(world: World) -> None:
    told = world.start(
        1,
        """
        import numpy as np

        for wrong, dim in [([1, 2], 0), (np.array(7), 0), (np.zeros(3), 1)]:
            try:
                fsgather.gather(wrong, dim)
            except fsgather.ConfigError as error:
                tell(str(error))
        """,
    ).told()
    assert [text.split(" ")[0] for text in told[0]] == ["gather", "an", "dim=1"]


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_memory_that_is_written_to_while_it_goes_into_a_file_arrives_with_old_or_new_bytes(world: World, compress: str) -> None:
    told = world.start(
        2,
        """
        import threading

        import numpy as np

        states = [np.random.default_rng(seed).bytes(12 << 20) for seed in (1, 2)]  # what cannot be compressed is stored as it is
        states = [np.frombuffer(state, dtype="u1") for state in states]
        own = states[0].copy()
        over = threading.Event()

        def scribble():
            while not over.is_set():
                for state in states:
                    own[:] = state

        scribbling = threading.Thread(target=scribble)
        scribbling.start()
        try:
            for _ in range(6):
                for part in fsgather.all_gather(own):
                    assert np.all((part == states[0]) | (part == states[1]))
        finally:
            over.set()
            scribbling.join()
        tell("done")
        """,
        FSGATHER_TRANSPORT="filesys",
        FSGATHER_COMPRESS=compress,
    ).told()
    assert told == [["done"]] * 2
