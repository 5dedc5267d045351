"""SIGTERM in the moments at which a call begins and ends, and calls that can open no file."""

from __future__ import annotations

import signal

import pytest

from conftest import World


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


def test_handler_restored_after_a_call_ends_the_process(world: World) -> None:
    world.start(
        2,
        """
        import signal

        def replace(number, frame):
            global before
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
                signal.setitimer(signal.ITIMER_REAL, 0)
                tell("replaced")

        fsgather.barrier()
        if rank == 1:
            wait_for_go()
            fsgather.barrier()
            fsgather.close()
            raise SystemExit
        signal.signal(signal.SIGALRM, replace)
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        fsgather.barrier()
        fsgather.close()
        alone = fsgather.Communicator.solo()
        signal.signal(signal.SIGTERM, before)
        alone.barrier()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signal.signal(signal.SIGTERM, before)
        os.kill(os.getpid(), signal.SIGTERM)
        """,
    )
    assert world.hear(0) == "replaced"
    world.go()
    ended = world.ends()
    assert [end.code for end in ended] == [-signal.SIGTERM, 0], ended[0].err
    assert ended[0].err == ""


def test_calls_without_a_free_descriptor_raise_the_own_exception(world: World) -> None:
    told = world.start(
        1,
        """
        import resource

        class Odd:
            def __reduce__(self):
                raise ValueError("not to be pickled")

        communicator, held, said = fsgather.Communicator.solo(), [], ""
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        communicator.barrier()
        try:
            communicator.all_gather(Odd())
        except fsgather.PeerFailedError as error:
            said = repr(error.__cause__)
        for descriptor in held:
            os.close(descriptor)
        tell(said)
        """,
    ).told()
    assert told == [["ValueError('not to be pickled')"]]
