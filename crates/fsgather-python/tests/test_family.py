"""The functions and methods, between real processes."""

from __future__ import annotations

import inspect

import fsgather
import pytest

from conftest import World


def test_what_takes_a_group_is_a_method_of_a_communicator_too() -> None:
    functions = {name for name in fsgather.__all__ if inspect.isfunction(getattr(fsgather, name))}
    take_a_group = {name for name in functions if "group" in inspect.signature(getattr(fsgather, name)).parameters}
    # Samples are not made by a communicator: they outlive it on disk.
    assert {name for name in take_a_group if not hasattr(fsgather.Communicator, name)} == {"gather_samples", "samples"}
    assert {"all_gather", "barrier", "gather_object"} <= take_a_group


@pytest.mark.parametrize("transport", ["filesys", "memory"])
def test_functions_return_what_the_originals_do(world: World, transport: str) -> None:
    told = world.start(
        3,
        """
        value = {"rank": rank, "text": "ä" * rank, "blob": bytes([rank]) * 200_000}
        expected = [{"rank": r, "text": "ä" * r, "blob": bytes([r]) * 200_000} for r in range(3)]
        assert fsgather.all_gather(value) == expected
        assert fsgather.compat.all_gather(value, True) == expected
        assert fsgather.compat.all_gather_object(value) == expected
        assert fsgather.compat.all_gather_list(rank) == [0, 1, 2]
        assert fsgather.gather_object(value, dst=1) == (expected if rank == 1 else None)
        assert fsgather.broadcast_object(value, src=2) == expected[2]
        assert list(fsgather.gather_iter(value, dst=2)) == (expected if rank == 2 else [])
        fsgather.barrier()
        pending = fsgather.start_all_gather(value)
        other = fsgather.start_gather(rank, dst=0)
        assert other.wait() == ([0, 1, 2] if rank == 0 else None)
        assert pending.wait() == expected and pending.done() and pending.wait() is pending.wait()
        fsgather.close()
        tell("done")
        """,
        FSGATHER_TRANSPORT=transport,
    ).told()
    assert told == [["done"]] * 3
    assert world.left() in ([], ["all_gather_via_filesys"])


def test_a_pending_call_can_be_awaited_while_the_loop_runs_on(world: World) -> None:
    told = world.start(
        3,
        """
        import asyncio, pathlib, time

        go = pathlib.Path(os.environ["FSGATHER_DIR"], "go")

        async def received(pending):
            return await pending

        async def work(world):
            if rank != 0:
                while not go.exists():
                    time.sleep(0.01)
            first = asyncio.create_task(received(world.start_all_gather(rank)))
            if rank == 0:
                # The others hand in once this loop has gone on beside what it awaits.
                await asyncio.sleep(0)
                go.touch()
            return await asyncio.gather(first, world.start_gather(rank, dst=1))

        with fsgather.Communicator() as world:
            tell(asyncio.run(work(world)))
        """,
    ).told()
    assert told == [[[[0, 1, 2], [0, 1, 2] if rank == 1 else None]] for rank in range(3)]


def test_via_filesys_uses_the_directory_that_is_named_and_leaves_it_empty(world: World) -> None:
    told = world.start(
        2,
        """
        place = os.environ["FSGATHER_DIR"] + "/elsewhere"
        os.makedirs(place, exist_ok=True)
        value = [rank] * 100_000
        gathered = fsgather.compat.all_gather_via_filesys(value, place)
        assert gathered == [[0] * 100_000, [1] * 100_000]
        gathered = fsgather.compat.all_gather_via_filesys(value, filesys_save_dir=place, gather_to_rank_0_only=True)
        tell(len(gathered))
        fsgather.close()
        """,
    ).told()
    assert told == [[2], [0]]
    assert [path for path in (world.directory / "elsewhere").rglob("*") if path.is_file()] == []


def test_variables_of_the_originals_switch(world: World) -> None:
    ended = world.start(
        2,
        """
        tell(fsgather.all_gather(rank))
        tell(fsgather.compat.all_gather(rank, force_cpu=True))
        """,
        MDETR_FILESYS_REDUCE_RANK_0_ONLY="1",
    ).ends()
    assert [end.told for end in ended] == [[[0, 1], [0, 1]], [[], []]]
    assert ended[0].err == ""
    assert ended[1].err.count("all_gather returns an empty list on every rank but 0") == 1


def test_groups_gather_at_the_same_time(world: World) -> None:
    told = world.start(
        4,
        """
        from concurrent.futures import ThreadPoolExecutor

        world = fsgather.Communicator()
        half = world.split(rank % 2, key=-rank)
        pair = world.group([0, 3]) if rank in (0, 3) else world.group([1, 2])
        with ThreadPoolExecutor(2) as pool:
            for turn in range(20):
                a = pool.submit(half.all_gather, (rank, turn))
                b = pool.submit(pair.all_gather, bytes([rank]) * 70_000)
                assert a.result() == [(r, turn) for r in ((2, 0) if rank % 2 == 0 else (3, 1))]
                assert [blob[0] for blob in b.result()] == ([0, 3] if rank in (0, 3) else [1, 2])
        assert world.split(None) is None if rank == 3 else world.split(7).world_size == 3
        assert fsgather.all_gather(rank, group=half) == ([2, 0] if rank % 2 == 0 else [3, 1])
        world.close()
        tell("done")
        """,
    ).told()
    assert told == [["done"]] * 4


def test_a_world_of_one_touches_nothing(world: World) -> None:
    told = world.start(
        1,
        """
        value = {"a": [1]}
        assert fsgather.all_gather(value)[0] is value
        assert fsgather.compat.all_gather_via_filesys(value)[0] is value
        assert fsgather.compat.all_gather_object(value)[0] is value
        assert fsgather.broadcast_object(value) is value
        assert list(fsgather.gather_iter(value)) == [value]
        with fsgather.Communicator.solo() as alone:
            assert alone.all_gather(value) == [value] and alone.all_gather(value)[0] is not value
        assert alone.closed and repr(alone) == "<fsgather.Communicator, closed>"
        tell("done")
        """,
    ).told()
    assert told == [["done"]]
    assert world.left() == []


def test_the_bound_of_a_list_is_told_to_all_ranks(world: World) -> None:
    told = world.start(
        3,
        """
        fits = b"x" * 16_300
        assert [len(part) for part in fsgather.compat.all_gather_list(fits)] == [16_300] * 3
        try:
            fsgather.compat.all_gather_list(b"x" * (20_000 if rank == 1 else 5), max_size=10_000)
        except fsgather.TooLargeError as error:
            tell([error.rank, error.size, error.bound, str(error)])
        # As callers of the original do, which raises before anything moves.
        tell([len(part) for part in fsgather.compat.all_gather_list(b"x" * (20_000 if rank == 1 else 5), max_size=30_000)])
        """,
    ).told()
    # What counts are the object's own bytes: seven before 20,000 others, and none of the header.
    assert told[0] == told[1] == told[2]
    first, later = told[0]
    assert first[:3] == [1, 20_007, 10_000]
    assert "needs 20007 bytes, but the call allows 10000" in first[3]
    assert later == [5, 20_000, 5]


def test_ranks_meet_through_a_channel_of_their_own(world: World) -> None:
    told = world.start(
        3,
        """
        import time, types

        note = os.environ["FSGATHER_DIR"] + "/note.py"

        def publish(record):
            with open(note + ".draft.py", "wb") as file:
                file.write(record)
            os.rename(note + ".draft.py", note)

        def fetch(seconds):
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if os.path.exists(note):
                    with open(note, "rb") as file:
                        return file.read()
                time.sleep(0.01)
            raise TimeoutError("no note")

        own = types.SimpleNamespace(rank=rank, world_size=world_size, publish=publish, fetch=fetch)
        with fsgather.Communicator(bootstrap=own, job="channel") as met:
            tell(met.all_gather(rank))
        """,
    ).told()
    assert told == [[[0, 1, 2]]] * 3


def test_calls_in_different_places_are_told_with_both(world: World) -> None:
    ended = world.start(
        2,
        """
        try:
            fsgather.barrier() if rank == 0 else fsgather.all_gather(1)
        except fsgather.DesyncError as error:
            tell([sorted(error.ranks), str(error)])
        """,
    ).told()
    assert ended[0] == ended[1]
    assert ended[0][0][0] == [0, 1]
    first, *stacks = ended[0][0][1].splitlines()
    assert first.count("program.py:") == 2
    assert stacks == [
        "  rank 0: barrier, from program.py:21 in <module>",
        "  rank 1: all_gather, from program.py:21 in <module>",
    ]
