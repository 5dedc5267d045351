"""Forked children hold nothing open that belongs to a rank, so that its end is noticed although they live on."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from conftest import World

#: Each way gives this process a child that runs on after it, having inherited what it had.
WAYS = {
    "os.fork": """
        def leave_a_child():
            if os.fork() == 0:
                live()
        """,
    "a thread that forks": """
        import threading

        def leave_a_child():
            def fork():
                if os.fork() == 0:
                    live()

            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        """,
    "multiprocessing": """
        import multiprocessing

        def leave_a_child():
            multiprocessing.get_context("fork").Process(target=live).start()
        """,
    "a child of a child": """
        def leave_a_child():
            if os.fork() == 0:
                if os.fork() == 0:
                    live()
                os._exit(0)
        """,
    "subprocess": """
        import subprocess

        def leave_a_child():
            subprocess.Popen(["sleep", "1000"], close_fds=False)
            subprocess.Popen(["sleep", "1000"], close_fds=False, preexec_fn=lambda: None)
        """,
}

PROGRAM = """
import signal, time


def live():
    time.sleep(1000)
    os._exit(0)
{way}

communicator = fsgather.Communicator(transport={transport!r})
assert communicator.all_gather(bytes([rank]) * 300_000)[1][0] == 1
if rank == {victim}:
    leave_a_child()
    communicator.barrier()
    # Its child is seen by nobody else: each rank has numbers of its own for processes.
    os.kill(os.getpid(), signal.SIGKILL)
communicator.barrier()
try:
    communicator.all_gather(rank)
except fsgather.Error as error:
    tell([type(error).__name__, str(error)])
# Not by the end of the interpreter, so that nothing else can be heard of it.
os._exit(0)
"""


def alone(directory: Path) -> str:
    """A Python that runs in a namespace of processes of its own, where its children outlive it."""
    script = directory / "alone.sh"
    script.write_text(
        "#!/bin/sh\n"
        f"""exec unshare --pid --fork --kill-child sh -c '"$0" "$@" & exec sleep 1000' {sys.executable} "$@"\n"""
    )
    script.chmod(0o700)
    return str(script)


@pytest.mark.bed("root, for namespaces of processes")
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("way, transport", [*((way, "auto") for way in WAYS), ("os.fork", "memory")])
def test_the_end_of_a_rank_is_noticed_although_its_child_lives(world: World, way: str, transport: str, victim: int) -> None:
    source = PROGRAM.format(way=textwrap.dedent(WAYS[way]), victim=victim, transport=transport)
    world.start(3, source, python=alone(world.directory))
    for rank in {0, 1, 2} - {victim}:
        name, text = world.hear(rank)
        assert name == "PeerFailedError" and f"rank {victim} " in text, text


def test_a_child_that_drops_what_it_inherited_takes_nothing_from_its_parent(world: World) -> None:
    told = world.start(
        2,
        """
        import gc

        def sockets():
            paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            names = [os.readlink(path) for path in paths if os.path.islink(path)]
            return {name for name in names if name.startswith("socket:")}

        communicator = fsgather.Communicator(transport="memory")
        for turn in range(3):
            assert communicator.all_gather(bytes([rank]) * 300_000)[1][0] == 1
            ours = sockets()
            child = os.fork()
            if child == 0:
                theirs = sockets()
                del communicator
                gc.collect()
                os._exit(0 if ours and not ours & theirs else 3)
            assert os.waitpid(child, 0)[1] == 0
        assert communicator.all_gather(rank) == [0, 1]
        communicator.close()
        tell("done")
        """,
    ).told()
    assert told == [["done"]] * 2
