"""SIGTERM where Python code of the program runs within a call, and in the moments at which a call begins and ends."""

from __future__ import annotations

import signal

import pytest

from conftest import World


@pytest.mark.parametrize("catching", ["nothing", "Exception", "BaseException"])
def test_sigterm_while_records_are_made_ends_the_call_and_then_the_process(world: World, catching: str) -> None:
    world.start(
        2,
        f"""
        import time

        class nothing(Exception):
            pass

        def records():
            number = 0
            while True:
                try:
                    if number == 1 and rank == 1:
                        tell("under way")
                    time.sleep(0.01)
                except {catching}:
                    pass
                number += 1
                yield number

        for _ in fsgather.gather_records(records()):
            pass
        """,
    )
    assert world.hear(1) == "under way"
    world.signal(1, signal.SIGTERM)
    other, ended = world.ends()
    assert ended.code == -signal.SIGTERM and ended.err == "", ended.err
    assert other.code == 1 and ") failed (SIGTERM) while " in other.err, other.err


@pytest.mark.parametrize("moment", ["begins", "ends"])
def test_sigterm_as_a_call_begins_or_ends_ends_the_process(world: World, moment: str) -> None:
    world.start(
        2,
        f"""
        import signal
        from fsgather import _terminating

        class Hit:
            def signal(self, number, handler):
                is_begun = handler is _terminating._terminate
                if moment == "ends" and not is_begun:
                    os.kill(os.getpid(), number)
                signal.signal(number, handler)
                if moment == "begins" and is_begun:
                    os.kill(os.getpid(), number)

            def getsignal(self, number):
                return signal.getsignal(number)

        moment = {moment!r}
        fsgather.barrier()
        if rank == 1:
            _terminating._plain = Hit()
        fsgather.barrier()
        fsgather.barrier()
        """,
    )
    other, ended = world.ends()
    assert ended.code == -signal.SIGTERM and "Traceback" not in ended.err, ended.err
    assert other.code == 1 and "rank 1 on " in other.err, other.err


def test_ctrl_c_as_a_call_begins_leaves_sigterm_as_it_was(world: World) -> None:
    told = world.start(
        1,
        """
        import signal
        from fsgather import _terminating

        plain = _terminating._plain

        class Hit:
            def signal(self, number, handler):
                plain.signal(number, handler)
                os.kill(os.getpid(), signal.SIGINT)

            def getsignal(self, number):
                return plain.getsignal(number)

        alone = fsgather.Communicator.solo()
        _terminating._plain = Hit()
        try:
            alone.barrier()
            tell("not interrupted")
        except KeyboardInterrupt:
            tell("interrupted")
        tell(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        """,
    ).told()
    assert told == [["interrupted", True]]


def test_a_handler_that_a_program_puts_back_after_the_call_ends_the_process(world: World) -> None:
    ended = world.start(
        1,
        """
        import signal

        def records():
            global before
            before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
            yield 1

        alone = fsgather.Communicator.solo()
        assert list(alone.gather_records(records())) == [(0, 1)]
        signal.signal(signal.SIGTERM, before)
        alone.barrier()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signal.signal(signal.SIGTERM, before)
        os.kill(os.getpid(), signal.SIGTERM)
        """,
    ).ends()
    assert [end.code for end in ended] == [-signal.SIGTERM], ended[0].err
    assert ended[0].err == ""
