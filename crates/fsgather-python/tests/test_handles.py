"""Handles of one communicator whose payloads travel in other ways."""

from __future__ import annotations

import os

from conftest import World


def test_handles_share_calls_and_closing(world: World) -> None:
    told = world.start(
        2,
        """
        communicator = fsgather.Communicator(transport="memory")
        other = os.path.join(os.environ["FSGATHER_DIR"], "other")
        if rank == 0:
            os.mkdir(other)
        communicator.barrier()
        files = communicator.with_options(transport="filesys", directory=other)
        large = [rank] * 100_000
        told = [files.all_gather(large), communicator.all_gather(rank), files.split(0).all_gather(large)]
        assert told[0] == told[2] == [[0] * 100_000, [1] * 100_000] and told[1] == [0, 1]
        tell(os.listdir(other))
        communicator.barrier()
        files.close()
        assert communicator.closed and files.closed
        communicator.close()
        """,
    ).told()
    assert told == [[["all_gather_via_filesys"]]] * 2


def test_ranks_that_ask_for_different_ways_are_told_so(world: World) -> None:
    told = world.start(
        2,
        """
        communicator = fsgather.Communicator()
        handle = communicator.with_options(transport="memory" if rank else "filesys")
        try:
            handle.all_gather([rank] * 100_000)
        except fsgather.DesyncError as error:
            tell(str(error))
        """,
    ).told()
    assert told[0] == told[1] and "different transports" in str(told[0]), told


def test_relative_directories_outlive_chdir(world: World) -> None:
    relative = os.path.relpath(world.directory)
    told = world.start(
        2,
        """
        start = os.getcwd()
        os.chdir("/")
        sizes = [[len(part) for part in fsgather.all_gather(bytes(300_000))]]
        os.chdir(start)
        other = fsgather.default_communicator().with_options(directory=os.environ["FSGATHER_DIR"] + "/other")
        if rank == 0:
            os.mkdir(os.environ["FSGATHER_DIR"] + "/other")
        fsgather.barrier()
        os.chdir("/")
        sizes.append([len(part) for part in other.all_gather(bytes(300_000))])
        os.chdir("/proc")
        sizes.append([len(part) for part in fsgather.all_gather(bytes(3_000_000))])
        fsgather.close()
        tell(sizes)
        """,
        FSGATHER_DIR=relative,
        FSGATHER_TRANSPORT="filesys",
        FSGATHER_SHARED_MEMORY="0",
    ).told()
    assert told == [[[[300_000] * 2, [300_000] * 2, [3_000_000] * 2]]] * 2
    assert [path for path in world.left() if "payload" in path] == []


def test_missing_directory_of_a_call_is_made(world: World) -> None:
    told = world.start(
        2,
        """
        new = os.environ["FSGATHER_DIR"] + "/new/deep"
        assert fsgather.compat.all_gather_via_filesys(bytes(100_000), new)[1] == bytes(100_000)
        tell(os.listdir(new))
        try:
            fsgather.compat.all_gather_via_filesys(bytes(100_000), "/proc/new")
        except fsgather.StorageError as error:
            tell(str(error))
        """,
    ).told()
    for made, said in told:
        assert made == ["all_gather_via_filesys"]
        assert "cannot make directory /proc/new: No such file or directory (os error 2); name an existing directory" in said
        assert "FSGATHER_DIR" not in said


def test_missing_directory_of_the_originals_variable_is_made(world: World) -> None:
    new = str(world.directory / "new" / "deep")
    told = world.start(
        2,
        """
        assert fsgather.compat.all_gather_via_filesys(bytes(100_000))[1] == bytes(100_000)
        tell(os.listdir(os.environ["EXP_DIR"]))
        """,
        FSGATHER_DIR="",
        EXP_DIR=new,
    ).told()
    assert told == [[["all_gather_via_filesys"]]] * 2
