"""What ranks hear when something goes wrong."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fsgather
from conftest import LIMIT, World


def test_communicator_is_closed_after_a_failure_that_was_caught(world: World) -> None:
    told = world.start(
        2,
        """
        with fsgather.Communicator() as communicator:
            try:
                communicator.all_gather(lambda: rank)
            except fsgather.PeerFailedError as error:
                tell(type(error).__name__)
        tell(communicator.closed)
        """,
    ).told()
    assert told == [["PeerFailedError", True]] * 2


@pytest.mark.parametrize(("raised", "said"), [("KeyboardInterrupt()", "KeyboardInterrupt"), ("SystemExit(3)", "SystemExit: 3")])
@pytest.mark.parametrize(
    "call",
    [
        "fsgather.all_gather(value)",
        "fsgather.gather_object(value)",
        "fsgather.default_communicator().start_all_gather(value).wait()",
    ],
)
def test_what_ends_a_program_while_an_object_is_pickled_is_raised_as_it_is(world: World, call: str, raised: str, said: str) -> None:
    told = world.start(
        2,
        f"""
        class Ends:
            def __reduce__(self):
                raise {raised}

        value = Ends() if rank == 1 else 1
        try:
            {call}
        except BaseException as error:
            tell([type(error).__name__, str(error)])
        """,
    ).told()
    assert told[1][0][0] == raised.partition("(")[0]
    assert told[0][0][0] == "PeerFailedError" and f"failed ({said}) while" in told[0][0][1]


def test_an_object_that_cannot_be_carried_is_the_same_error_on_all_ranks(world: World) -> None:
    told = world.start(
        3,
        """
        value = (x for x in []) if rank == 1 else rank
        for turn in range(2):
            try:
                fsgather.all_gather(value)
            except fsgather.Error as error:
                tell([type(error).__name__, error.rank, type(error.__cause__).__name__, str(error)])
        """,
    ).told()
    for rank, (first, second) in enumerate(told):
        assert first[:2] == ["PeerFailedError", 1]
        assert "generator" in first[3] and first[3] == told[0][0][3]
        assert first[2] == ("TypeError" if rank == 1 else "NoneType")
        assert second[0] in ("PoisonedError", "PeerFailedError")


def test_a_program_that_gets_over_a_failure_closes_and_meets_anew(world: World) -> None:
    told = world.start(
        3,
        """
        try:
            fsgather.all_gather((x for x in []) if rank == 1 else rank)
        except fsgather.PeerFailedError:
            failed = fsgather.default_communicator().failed
            fsgather.close()
        tell([failed, fsgather.all_gather(rank), fsgather.default_communicator().failed])
        """,
    ).told()
    assert [said for (said,) in told] == [[True, [0, 1, 2], False]] * 3


def test_a_killed_rank_is_named(world: World) -> None:
    world.start(
        3,
        """
        with_all = fsgather.Communicator()
        with_all.barrier()
        tell(os.getpid())
        try:
            with_all.all_gather(rank) if rank != 2 else wait_for_go()
        except fsgather.PeerFailedError as error:
            tell([error.rank, error.pid, bool(error.host), error.phase, error.is_transient])
        """,
    )
    pid = [world.hear(rank) for rank in range(3)][2]
    world.signal(2, signal.SIGKILL)
    for end in world.ends()[:2]:
        assert end.told == [[2, pid, True, "computing", True]], end.err


def test_an_exception_that_leaves_the_block_is_told_to_the_others(world: World) -> None:
    ended = world.start(
        3,
        """
        with fsgather.Communicator() as communicator:
            communicator.barrier()
            if rank == 1:
                raise MemoryError("the device has no more")
            try:
                communicator.all_gather(rank)
            except fsgather.PeerFailedError as error:
                tell([error.rank, error.reason])
        """,
    ).ends()
    assert ended[1].code == 1
    assert ended[0].told == ended[2].told == [[1, "MemoryError: the device has no more"]]


BY_MULTIPROCESSING = """
import multiprocessing, sys
import fsgather


def main(rank, directory, how):
    world = fsgather.Communicator(rank=rank, world_size=2, directory=directory, job="by multiprocessing", timeout=60)
    world.barrier()
    if rank == 1 and how == "written down":
        try:
            raise KeyError("no such score")
        except KeyError:
            sys.exit(1)
    if rank == 1:
        raise KeyError("no such score")
    try:
        world.barrier()
    except fsgather.PeerFailedError as error:
        print(error.reason, flush=True)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    ranks = [context.Process(target=main, args=(rank, *sys.argv[2:])) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("how", ["uncaught", "written down"])
def test_an_exception_of_a_process_of_multiprocessing_is_told_to_the_others(tmp_path: Path, method: str, how: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(BY_MULTIPROCESSING)
    started = [sys.executable, str(program), method, str(tmp_path), how]
    ended = subprocess.run(started, capture_output=True, text=True, timeout=LIMIT)
    assert ended.stdout == "KeyError: 'no such score'\n", ended


def test_an_uncaught_exception_is_told_to_the_others(world: World) -> None:
    ended = world.start(
        2,
        """
        fsgather.barrier()
        if rank == 0:
            raise RuntimeError("out of luck")
        try:
            fsgather.all_gather(rank)
        except fsgather.PeerFailedError as error:
            tell([error.rank, error.reason])
        """,
    ).ends()
    assert ended[0].code == 1
    assert ended[1].told == [[0, "RuntimeError: out of luck"]]


HARD_TO_SAY = {
    "not-utf-8": (r'ValueError(os.fsdecode(b"no \xff"))', r"ValueError: no \udcff"),
    "no-words": ("Speechless()", "Speechless: <exception str() failed>"),
}
"""Exceptions, and what is told of them."""


@pytest.mark.parametrize("way", ["raise", "with", "fail"])
@pytest.mark.parametrize("kind", HARD_TO_SAY)
def test_an_exception_whose_text_is_broken_is_told_all_the_same(world: World, kind: str, way: str) -> None:
    made, said = HARD_TO_SAY[kind]
    ended = world.start(
        2,
        f"""
        import os

        class Speechless(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        def fail():
            raise {made}

        communicator = fsgather.default_communicator()
        communicator.barrier()
        if rank == 0:
            if {way!r} == "raise":
                fail()
            elif {way!r} == "with":
                with communicator:
                    fail()
            communicator.fail({made})
            raise SystemExit(1)
        try:
            communicator.barrier()
        except fsgather.PeerFailedError as error:
            tell([error.rank, error.reason])
        """,
    ).ends()
    assert ended[0].code == 1
    # Nothing has got into the way of what the program raised.
    assert "_leaving.py" not in ended[0].err and "UnicodeEncodeError" not in ended[0].err, ended[0].err
    assert ended[1].told == [[0, said]]


def test_places_that_are_not_utf_8_are_told(world: World) -> None:
    """A file of the program, and a thread that was told to call us itself."""
    ended = world.start(
        2,
        """
        import os, threading

        broken = os.fsdecode(b"no \\xff")
        failed = []
        threading.excepthook = lambda raised: failed.append(str(raised.exc_value))
        thread = threading.Thread(target=fsgather.barrier, name=broken)
        thread.start()
        thread.join()
        tell(failed)
        if rank == 0:
            exec(compile("fsgather.barrier()", "/nowhere/" + broken + ".py", "exec"))
        else:
            try:
                fsgather.all_gather(rank)
            except fsgather.DesyncError as error:
                tell(str(error))
            raise SystemExit(0)
        """,
    ).ends()
    assert ended[0].told == [[]]
    failed, said = ended[1].told
    assert failed == [] and r"no \udcff.py:1" in said, said


def test_a_failure_before_the_first_call_names_a_place_in_the_program(world: World) -> None:
    ended = world.start(
        2,
        """
        communicator = fsgather.default_communicator()
        if rank == 0:
            raise RuntimeError("out of luck")
        try:
            communicator.barrier()
        except fsgather.PeerFailedError as error:
            tell(str(error))
        """,
    ).ends()
    [said] = ended[1].told
    assert "while computing after set-up at " in said, said
    assert ".rs" not in said and said.rsplit(":", 1)[1].isdigit(), said


def test_ctrl_c_ends_a_wait_on_all_ranks(world: World) -> None:
    world.start(
        2,
        """
        fsgather.barrier()
        tell("ready")
        if rank == 0:
            try:
                fsgather.all_gather(rank)
            except KeyboardInterrupt:
                tell("interrupted")
        else:
            # Until the other one has ended.
            wait_for_go()
            try:
                fsgather.all_gather(rank)
            except fsgather.PeerFailedError as error:
                tell([error.rank, error.reason])
        """,
    )
    assert [world.hear(rank) for rank in range(2)] == ["ready", "ready"]
    world.until_it_waits(0)  # inside of its call; earlier would be a test of Python
    world.signal(0, signal.SIGINT)
    assert world.hear(0) == "interrupted"
    world.go()
    ended = world.ends()
    assert ended[1].told == [[0, "KeyboardInterrupt"]], ended[1].err


@pytest.mark.parametrize("transport", ["filesys", "memory"])
def test_sigterm_to_all_ranks_leaves_no_payloads_and_ends_them_as_ever(world: World, transport: str) -> None:
    world.start(
        4,
        """
        fsgather.barrier()
        tell("ready")
        if rank == 3:
            # It does not come any more.
            wait_for_go()
        fsgather.all_gather(b"x" * 2_000_000)
        """,
        FSGATHER_TRANSPORT=transport,
    )
    assert [world.hear(rank) for rank in range(4)] == ["ready"] * 4
    for rank in range(3):
        world.until_it_waits(rank)
    for rank in range(4):
        world.signal(rank, signal.SIGTERM)
    ended = world.ends()
    assert [end.code for end in ended] == [-signal.SIGTERM] * 4, [end.err for end in ended]
    left = list((world.directory / "all_gather_via_filesys").glob("**/*"))
    left = [path for path in left if not path.name.startswith(("calls-", "refusal-"))]
    assert left == []


def test_sigterm_in_a_call_is_the_programs_own_where_it_handles_it(world: World) -> None:
    world.start(
        2,
        """
        import signal

        def handle(number, frame):
            raise SystemExit(7)

        fsgather.barrier()
        before = signal.getsignal(signal.SIGTERM)
        fsgather.barrier()
        tell([before is signal.SIG_DFL, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL])
        signal.signal(signal.SIGTERM, handle)
        if rank == 1:
            wait_for_go()
        fsgather.all_gather(rank)
        """,
    )
    assert [world.hear(rank) for rank in range(2)] == [[True, True]] * 2
    world.until_it_waits(0)
    world.signal(0, signal.SIGTERM)
    assert world.ranks[0].wait() == 7
    world.go()
    world.ends()


def test_a_child_that_is_forked_while_a_call_waits_dies_of_sigterm(world: World) -> None:
    world.start(
        2,
        """
        import signal, threading, time

        def fork():
            wait_for_go("fork")
            told, tell_it = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(tell_it, b"x")
                while True:
                    time.sleep(0.1)
            os.read(told, 1)
            os.kill(child, signal.SIGTERM)
            tell(os.WTERMSIG(os.waitpid(child, 0)[1]))

        fsgather.barrier()
        if rank == 0:
            threading.Thread(target=fork).start()
            tell("ready")
        else:
            wait_for_go()
        fsgather.barrier()
        """,
    )
    assert world.hear(0) == "ready"
    world.until_it_waits(0)
    world.go("fork")
    assert world.hear(0) == signal.SIGTERM
    world.go()
    assert [end.code for end in world.ends()] == [0, 0]


def start_with_a_late_reader(world: World) -> subprocess.Popen[str]:
    """Rank 0 ends without close while rank 1 has not read yet, which it does when told to go on; rank 0's process."""
    world.start(
        2,
        """
        pending = fsgather.start_all_gather(b"x" * 300_000)
        fsgather.barrier()
        if rank == 0:
            tell(len(pending.wait()))
        else:
            tell("late")
            wait_for_go()
            tell([len(part) for part in pending.wait()])
        """,
        FSGATHER_TRANSPORT="memory",
    )
    assert [world.hear(rank) for rank in range(2)] == [2, "late"]
    return world.ranks[0]


def test_ctrl_c_ends_the_stay_of_a_program_without_close(world: World) -> None:
    stays = start_with_a_late_reader(world)
    assert stays.stderr is not None
    # It says for whom, after some seconds.
    said = stays.stderr.readline()
    assert "this process stays, for" in said and f"until rank 1 on {os.uname().nodename} (pid {world.ranks[1].pid}) has read" in said
    world.signal(0, signal.SIGINT)
    said = stays.stderr.read()
    assert "this process ends although rank 1 on" in said and "has not read what was handed over; KeyboardInterrupt" in said


def test_a_program_without_close_stays_until_others_have_read(world: World) -> None:
    stays = start_with_a_late_reader(world)
    assert stays.stderr is not None
    assert "this process stays, for" in stays.stderr.readline()
    world.go()
    assert world.told() == [[], [[300_000, 300_000]]]
    assert world.left() in ([], ["all_gather_via_filesys"])


def test_ctrl_c_reaches_the_main_thread_while_others_wait_too(world: World) -> None:
    world.start(
        2,
        """
        import threading

        def wait():
            try:
                group.barrier()
            except BaseException as error:
                told.append(type(error).__name__)

        told = []
        world = fsgather.Communicator()
        group = world.group([0, 1])
        if rank == 0:
            thread = threading.Thread(target=wait)
            thread.start()
            tell("ready")
            try:
                world.barrier()
            except KeyboardInterrupt:
                thread.join()
                tell(told)
        else:
            tell("ready")
            wait_for_go()
        """,
    )
    assert [world.hear(rank) for rank in range(2)] == ["ready", "ready"]
    world.until_it_waits(0)  # inside of its call
    world.signal(0, signal.SIGINT)
    assert world.hear(0) == ["PeerFailedError"]


def test_ctrl_c_ends_a_meeting(world: World) -> None:
    world.start(
        1,
        """
        tell("ready")
        try:
            fsgather.Communicator(rank=1, world_size=2)
        except KeyboardInterrupt:
            tell("interrupted")
        """,
    )
    assert world.hear(0) == "ready"
    world.until_it_waits(0)
    world.signal(0, signal.SIGINT)
    assert world.hear(0) == "interrupted"
    assert world.ends()[0].code == 0


def test_a_missing_rank_is_named(world: World) -> None:
    world.start(
        2,
        """
        communicator = fsgather.Communicator()
        try:
            if rank == 0:
                communicator.all_gather(rank, timeout=1.0)
            else:
                wait_for_go()
                communicator.all_gather(rank)
        except TimeoutError as error:
            tell([error.missing, error.missing_peers[0].rank, error.timeout])
        except fsgather.Error as error:
            tell(type(error).__name__)
        """,
    )
    assert world.hear(0) == [[1], 1, 1.0]
    world.go()
    assert world.told()[1] in ([["TimeoutError"]], [[[1], 1, 1.0]])


def test_pickle_is_refused_with_the_type_and_its_place(world: World) -> None:
    told = world.start(
        2,
        """
        class Box:
            pass

        plain = {"boxes": [1.5, (2, "three")]}
        assert fsgather.all_gather(plain) == [plain, plain]
        try:
            fsgather.all_gather({"boxes": [1, Box()]} if rank == 0 else plain)
        except fsgather.PeerFailedError as error:
            tell([error.rank, str(error)])
        """,
        FSGATHER_PICKLE="0",
    ).told()
    assert told[0] == told[1]
    rank, text = told[0][0]
    assert rank == 0
    assert "['boxes'][1]" in text and "Box" in text and "FSGATHER_PICKLE" in text


def test_an_object_that_cannot_be_read_names_the_rank_that_handed_it_in(world: World) -> None:
    told = world.start(
        3,
        """
        import traceback

        class Odd:
            def __init__(self, text):
                self.text = text

            def __reduce__(self):
                return int, (self.text,)

        def read(call):
            try:
                return call()
            except ValueError as error:
                return "".join(traceback.format_exception(type(error), error, error.__traceback__))

        with fsgather.Communicator() as world:
            for call in (
                lambda: world.all_gather(Odd("two") if rank == 1 else rank),
                lambda: world.gather_object(Odd("two") if rank == 1 else rank),
                lambda: world.start_all_gather(Odd("two") if rank == 1 else rank).wait(),
                lambda: world.broadcast_object(Odd("two") if rank == 1 else None, src=1),
                lambda: world.split(0, key=-rank).all_gather(Odd("two") if rank == 1 else rank),
            ):
                tell(str(read(call)))
            # What could not be read has harmed nobody.
            tell(world.all_gather(rank))
        """,
    ).told()
    for rank, answers in enumerate(told):
        received = [True, rank == 0, True, rank != 1, True]
        for answer, reads in zip(answers, received):
            assert ("invalid literal for int() with base 10: 'two'" in answer) == reads, answer
            assert ("while reading the object that rank 1 handed in" in answer) == reads, answer
        assert answers[-1] == [0, 1, 2]


def test_errors_are_exceptions_of_python_too() -> None:
    assert issubclass(fsgather.TimeoutError, TimeoutError)
    assert issubclass(fsgather.ConfigError, ValueError)
    with pytest.raises(fsgather.ConfigError, match="world size"):
        fsgather.Communicator(rank=3)
    with pytest.raises(ValueError, match="auto, filesys or memory"):
        fsgather.Communicator(transport="carrier pigeon")
    with pytest.raises(ValueError, match="timeout=0 is not a number of seconds above 0"):
        fsgather.Communicator(timeout=0)


def test_errors_survive_pickling() -> None:
    error = fsgather.PeerFailedError("rank 3 on n7 was lost")
    error.rank, error.host = 3, "n7"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.rank, again.host) == (fsgather.PeerFailedError, str(error), 3, "n7")


def test_a_wrong_variable_is_named(world: World) -> None:
    ended = world.start(1, "fsgather.barrier()", FSGATHER_TRANSPORT="pigeon").ends()
    assert ended[0].code == 1
    assert "FSGATHER_TRANSPORT" in ended[0].err and "pigeon" in ended[0].err
