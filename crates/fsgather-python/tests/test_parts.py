"""Parts of an all-gather that are made when they are looked at, between real processes."""

from __future__ import annotations

import pytest

from conftest import World


@pytest.mark.parametrize("transport", ["auto", "filesys", "memory"])
def test_parts_are_used_as_a_list_is(world: World, transport: str) -> None:
    told = world.start(
        3,
        """
        import copy, pickle

        def value(r):
            return {"rank": r, "scores": [r / 7] * 20_000, "blob": bytes([r]) * 200_000}

        expected = [value(r) for r in range(3)]
        parts = fsgather.all_gather_parts(value(rank))
        assert len(parts) == 3 and repr(parts) == "<fsgather.Parts of 3 ranks, 0 looked at>"
        assert parts[1] == expected[1] and parts[-2] is parts[1]
        assert repr(parts) == "<fsgather.Parts of 3 ranks, 1 looked at>"
        for wrong in (3, -4):
            try:
                parts[wrong]
                raise SystemExit(f"there is a part {wrong}")
            except IndexError as error:
                assert str(error) == f"there are 3 ranks, and none at {wrong}"
        # They are there after the world has ended, and need nothing of it.
        fsgather.close()
        assert list(parts) == expected and parts[::2] == expected[::2] and list(reversed(parts)) == expected[::-1]
        assert parts == expected and expected == parts and parts == parts[:] and parts != expected[:2] and not parts != expected
        assert expected[2] in parts and parts.index(expected[2]) == 2
        assert pickle.loads(pickle.dumps(parts)) == expected and copy.copy(parts) == expected
        tell("done")
        """,
        FSGATHER_TRANSPORT=transport,
    ).told()
    assert told == [["done"]] * 3


def test_a_part_is_made_when_it_is_looked_at_and_once(world: World) -> None:
    told = world.start(
        2,
        """
        import threading

        made = []

        def make(whose):
            made.append(whose)
            return [whose]

        class Made:
            def __reduce__(self):
                return make, (rank,)

        # Both ranks run the same program, so that what one has pickled the other finds.
        sys.modules["program"] = sys.modules["__main__"]
        make.__module__ = "program"
        parts = fsgather.all_gather_parts(Made())
        assert made == []
        assert parts[1] == [1] and parts[1] is parts[1] and made == [1]

        # Threads that look at the same time get the same.
        start, seen = threading.Barrier(8), []

        def look():
            start.wait()
            seen.append(parts[0])

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 8 and all(part is parts[0] for part in seen)
        fsgather.close()
        tell("done")
        """,
    ).told()
    assert told == [["done"]] * 2


def test_what_cannot_be_made_is_an_error_each_time_and_harms_no_other_part(world: World) -> None:
    told = world.start(
        2,
        """
        import pickle

        tries = []

        def fail_once():
            tries.append(1)
            if len(tries) < 3:
                raise ValueError("not yet")
            return "made"

        class Stubborn:
            def __reduce__(self):
                return fail_once, ()

        sys.modules["program"] = sys.modules["__main__"]
        fail_once.__module__ = "program"
        parts = fsgather.all_gather_parts({"good": 0} if rank == 0 else Stubborn())
        for _ in range(2):
            try:
                parts[1]
                raise SystemExit("it was made")
            except ValueError as error:
                tell([str(error), getattr(error, "__notes__", None)])
        assert parts[1] == "made" and parts[0] == {"good": 0}
        fsgather.close()
        """,
    ).told()
    for rank in told:
        assert len(rank) == 2 and rank[0] == rank[1]
        message, notes = rank[0]
        assert "not yet" in message
        # Notes came with Python 3.11.
        assert notes is None or any("rank 1" in note for note in notes)


def test_arrays_are_read_in_place_and_written_to_alone(world: World) -> None:
    told = world.start(
        2,
        """
        import numpy

        parts = fsgather.all_gather_parts(numpy.full(300_000, rank, dtype="i4"))
        for r in range(2):
            assert (parts[r] == r).all() and parts[r].flags.writeable
            parts[r][:] = 7 + rank
        fsgather.barrier()
        assert all((part == 7 + rank).all() for part in parts)

        # A forked child looks at what nobody has looked at before, after its parent has let go of it.
        parts = fsgather.all_gather_parts(numpy.full(300_000, 10 + rank, dtype="i4"))
        go, gone = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(go, 1)
            right = all((part == 10 + r).all() for r, part in enumerate(parts))
            os._exit(0 if right else 1)
        del parts
        for turn in range(20):
            fsgather.all_gather_parts(numpy.full(300_000, turn, dtype="i4"))[1]
        os.write(gone, b"x")
        assert os.waitpid(child, 0)[1] == 0
        fsgather.close()
        tell("done")
        """,
    ).told()
    assert told == [["done"]] * 2


def test_a_world_of_one_and_a_group_have_parts(world: World) -> None:
    told = world.start(
        3,
        """
        with fsgather.Communicator.solo() as alone:
            value = {"a": [1]}
            parts = alone.all_gather_parts(value)
            assert list(parts) == [value] and parts[0] is not value
        with fsgather.Communicator() as world:
            half = world.split(rank % 2, key=-rank)
            parts = fsgather.all_gather_parts("x" * 10_000 + str(rank), group=half, tag="half")
            assert [part[10_000:] for part in parts] == (["2", "0"] if rank % 2 == 0 else ["1"])
        tell("done")
        """,
    ).told()
    assert told == [["done"]] * 3


@pytest.mark.parametrize("transport", ["auto", "filesys", "memory"])
def test_unpickling_that_writes_to_its_arrays_finds_them_as_handed_in_each_time(world: World, transport: str) -> None:
    told = world.start(
        2,
        """
        import threading
        import numpy

        at_once, failures = threading.Barrier(4), []

        class Scaled:
            def __init__(self, array):
                self.array = array

            def __setstate__(self, state):
                self.array = state["array"]
                self.array *= 2
                if failures:
                    failures.pop()
                    raise ValueError("not yet")
                # All have written before the first one is done.
                at_once.wait()

        sys.modules["program"] = sys.modules["__main__"]
        Scaled.__module__ = "program"
        # By whatever way payloads of these lengths come, mapped or held.
        for length in (5_000, 50_000, 500_000):
            parts = fsgather.all_gather_parts(Scaled(numpy.full(length, 1 + rank, dtype="i4")))
            threads = [threading.Thread(target=lambda: parts[1]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (parts[1].array == 4).all(), parts[1].array
            failures[:] = [1, 2]
            for _ in range(2):
                try:
                    parts[0]
                    raise SystemExit("it was made")
                except ValueError:
                    pass
            at_once = threading.Barrier(1)
            assert (parts[0].array == 2).all(), parts[0].array
            at_once = threading.Barrier(4)
        fsgather.close()
        tell("done")
        """,
        FSGATHER_TRANSPORT=transport,
    ).told()
    assert told == [["done"]] * 2
