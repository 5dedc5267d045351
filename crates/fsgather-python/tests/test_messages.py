"""What a program's user sees of us: lines on standard error that say whose they are."""

from __future__ import annotations

from conftest import World

WARNS = """
import logging
if os.environ["CASE"] == "own log":
    logging.basicConfig(format="mine: %(message)s")
if os.environ["CASE"] == "late log":
    fsgather.barrier()
    logging.basicConfig(format="mine: %(message)s")
fsgather.all_gather(rank)
fsgather.default_communicator()
"""


def test_lines_on_standard_error_begin_with_our_name(world: World) -> None:
    for case, start in (("no log", "fsgather: "), ("own log", "mine: "), ("late log", "mine: ")):
        other = World(world.directory)
        ended = other.start(2, WARNS, CASE=case, MDETR_FILESYS_REDUCE_RANK_0_ONLY="1").ends()
        other.end()
        lines = ended[1].err.splitlines()
        assert len(lines) == 1 and lines[0].startswith(start), (case, lines)
