"""Calls that code of the program makes inside another call."""

from __future__ import annotations

import signal

from conftest import World


def test_a_call_while_another_one_pickles_its_object_fails(world: World) -> None:
    told = world.start(
        2,
        """
        class Calls:
            def __reduce__(self):
                if rank == 1:
                    fsgather.all_gather("within")
                return int, (7,)

        try:
            fsgather.all_gather(Calls())
        except fsgather.Error as error:
            tell([type(error).__name__, str(error)])
        assert fsgather.default_communicator().failed
        """,
    ).told()
    (other, text), (own, reason) = told[0][0], told[1][0]
    assert (other, own) == ("PeerFailedError", "PeerFailedError")
    assert "rank 1" in text and "inside another call" in text and "inside another call" in reason


def test_a_call_while_another_one_unpickles_an_object_fails(world: World) -> None:
    told = world.start(
        2,
        """
        class Calls:
            def __setstate__(self, state):
                fsgather.barrier()

        value = Calls()
        value.state = 7
        try:
            fsgather.all_gather(value)
        except fsgather.Error as error:
            tell([type(error).__name__, str(error)])
        """,
    ).told()
    for ((kind, text),) in told:
        assert kind == "ConfigError" and "inside another call" in text


def test_a_call_of_a_signal_handler_inside_a_call_fails(world: World) -> None:
    world.start(
        2,
        """
        import signal

        signal.signal(signal.SIGUSR1, lambda *_: fsgather.all_gather("within"))
        fsgather.barrier()
        tell("met")
        if rank == 1:
            wait_for_go()
        try:
            fsgather.barrier()
        except fsgather.Error as error:
            tell([type(error).__name__, str(error)])
        """,
    )
    assert [world.hear(rank) for rank in range(2)] == ["met", "met"]
    world.until_it_waits(0)
    world.signal(0, signal.SIGUSR1)
    own, reason = world.hear(0)
    world.go()
    other, text = world.hear(1)
    assert (own, other) == ("ConfigError", "PeerFailedError")
    assert "inside another call" in reason and "rank 0" in text and reason in text
