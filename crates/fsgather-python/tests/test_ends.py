"""The end of a program whose threads go on."""

from __future__ import annotations


from conftest import World


def test_a_meeting_in_a_thread_ends_with_the_process(world: World) -> None:
    (end,) = world.start(
        1,
        """
        import pathlib, threading, time

        threading.Thread(target=fsgather.default_communicator, daemon=True).start()
        while not list(pathlib.Path(os.environ["FSGATHER_DIR"]).rglob("rendezvous-*")):
            time.sleep(0.01)
        """,
        FSGATHER_WORLD_SIZE="2",
    ).ends()
    assert end.code == 0, end.err
    # Who comes later is told, instead of waiting.
    left = [name for name in world.left() if name != "all_gather_via_filesys"]
    assert len(left) == 1 and "/refusal-" in left[0], left


def test_import_in_a_sub_interpreter_is_refused_and_the_process_ends(world: World) -> None:
    told = world.start(
        2,
        """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        # Python 3.12 and later refuses the import in an isolated one itself.
        options = {(3, 12): {"isolated": False}}.get(sys.version_info[:2], {})
        kind = ["legacy"] if sys.version_info >= (3, 13) else []
        program = "try: import fsgather\\nexcept ImportError as error: print('\\"' + str(error) + '\\"', flush=True)"
        tell(fsgather.all_gather(rank))
        interpreters.run_string(interpreters.create(*kind, **options), program)
        tell(fsgather.all_gather(rank))
        """,
    ).told()
    for before, refusal, after in told:
        assert before == after == [0, 1]
        assert "fsgather cannot be imported in a sub-interpreter" in refusal and "in the main interpreter" in refusal


def test_a_thread_that_goes_on_joins_nothing_while_the_process_ends(world: World) -> None:
    ends = world.start(
        3,
        """
        import threading

        def go_on():
            while True:
                fsgather.default_communicator().rank

        fsgather.barrier()
        threading.Thread(target=go_on, daemon=True).start()
        """,
    ).ends()
    for end in ends:
        # It sees that the world is over or, a moment later, that there is no other one, if it gets to that.
        said = [line for line in end.err.splitlines() if line.startswith("fsgather.")]
        told = ["fsgather.ConfigError: this communicator is closed", "fsgather.ConfigError: this process ends, and its threads join nothing any more"]
        assert end.code == 0 and all(line in told for line in said), end.err
    assert [name for name in world.left() if name != "all_gather_via_filesys"] == []


def test_calls_of_threads_end_before_the_interpreter(world: World) -> None:
    world.start(
        3,
        """
        import threading, time

        class Slow:
            def __setstate__(self, state):
                self.__dict__.update(state)

        def slow():
            slow = Slow()
            slow.number = rank
            return slow

        objects = [slow() for _ in range(20_000)]

        def call():
            began.set()
            while True:
                fsgather.all_gather(objects)

        began = threading.Event()
        fsgather.barrier()
        threading.Thread(target=call, daemon=True).start()
        began.wait()
        # In the middle of something.
        time.sleep(0.2)
        """,
    )
    # By no signal, which is what cleaning up after a thread that is ended by force comes to.
    for end in world.ends():
        assert end.code == 0, end.err


def test_python_code_in_a_call_that_never_ends_does_not_abort_the_process(world: World) -> None:
    world.start(
        2,
        """
        import threading, time
        from fsgather import _leaving

        class Endless:
            def __init__(self):
                self.rank = rank

            def __setstate__(self, state):
                began.set()
                while True:
                    time.sleep(0.001)

        _leaving._LAST_MOMENTS = 0.1
        # Its end is what the test waits for, on a machine of any speed.
        _leaving._RAISED_EXIT_SECONDS = 60
        began = threading.Event()
        fsgather.barrier()
        threading.Thread(target=fsgather.all_gather, args=(Endless(),), daemon=True).start()
        began.wait()
        sys.exit(7)
        """,
    )
    for end in world.ends():
        assert (end.code, end.err) == (7, "")


def test_close_after_a_failure_ends_results_that_were_not_read(world: World) -> None:
    told = world.start(
        2,
        """
        held = fsgather.gather_iter(bytes(300_000))
        first = next(held, None)

        class Unpicklable:
            def __reduce__(self):
                raise RuntimeError("cannot be pickled")

        try:
            fsgather.all_gather(Unpicklable() if rank == 1 else 1)
        except fsgather.PeerFailedError:
            fsgather.close()
        tell(fsgather.all_gather(rank))
        """,
    ).told()
    assert told == [[[0, 1]]] * 2


def test_rank_that_can_start_no_thread_is_named_at_once(world: World) -> None:
    world.start(
        2,
        """
        if rank == 1:
            # No memory is large enough for the stack of a thread.
            os.environ["RUST_MIN_STACK"] = str(1 << 60)
        try:
            fsgather.barrier()
        except fsgather.Error as error:
            tell([type(error).__name__, str(error)])
        """,
    )
    ((of_other,), (own,)) = world.told()
    assert own[0] == "ConfigError" and own[1].startswith("cannot start a thread: "), own
    assert of_other[0] == "PeerFailedError" and "rank 1" in of_other[1] and own[1] in of_other[1], of_other
