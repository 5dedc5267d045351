"""Handles of one communicator whose payloads travel in other ways."""

from __future__ import annotations

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
        except fsgather.Desync as error:
            tell(str(error))
        """,
    ).told()
    assert told[0] == told[1] and "different transports" in str(told[0]), told
