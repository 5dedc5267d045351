"""The programs of the guide of samples: killed, continued by fewer ranks, and compared with one process over the whole data set."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Iterator

import fsgather
import pytest
from conftest import World
from fsgather import _samples

PAGE = Path(__file__).resolve().parents[4] / "docs/guide/samples.md"
PROGRAMS = re.findall(r"```python(?: torch)?\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)

HOOKS = """
os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["GUIDE_PORT"])
opened, add, added = fsgather.samples, fsgather.Samples.add, 0


def open_and_count(*given, **named):
    samples = opened(*given, **named)
    tell(len(samples.missing))
    return samples


def add_and_stop(samples, ids, results):
    global added
    add(samples, ids, results)
    added += 1
    if os.environ["GUIDE_STOPS"] == "1" and added == 1 + rank % 2:
        samples.flush()
        tell("flushed")
        wait_for_go("never")


fsgather.samples, fsgather.Samples.add = open_and_count, add_and_stop
"""


class Evaluation:
    """Attempts of one program in one directory."""

    def __init__(self, directory: Path, program: str) -> None:
        directory.mkdir()
        self.world = World(directory)
        self.program = HOOKS + program

    def start(self, ranks: int, stops: bool) -> World:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self.world.ranks.clear()
        return self.world.start(ranks, self.program, GUIDE_PORT=str(port), GUIDE_STOPS=str(int(stops)), OMP_NUM_THREADS="1")

    def kill_in_the_middle(self, ranks: int) -> int:
        """The number of samples that there were to do."""
        self.start(ranks, stops=True)
        counts = [(self.world.hear(rank), self.world.hear(rank))[0] for rank in range(ranks)]
        self.world.kill()
        self.world.ends()
        assert len(set(counts)) == 1, counts
        return int(counts[0])

    def complete(self, ranks: int) -> tuple[int, fsgather.SampleResults]:
        """The number of samples that were still to do, and all results."""
        ended = self.start(ranks, stops=False).ends()
        assert [end.code for end in ended] == [0] * ranks, [end.err for end in ended]
        assert len(ended[0].out.splitlines()) > 1, "the program prints its results"
        (directory,) = (self.world.directory / "runs").iterdir()
        return int(ended[0].out.splitlines()[0]), fsgather.read_samples(directory)


@pytest.fixture(params=range(len(PROGRAMS)))
def evaluations(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Evaluation, Evaluation]]:
    """Two of the same program."""
    both = Evaluation(tmp_path / "alone", PROGRAMS[request.param]), Evaluation(tmp_path / "killed", PROGRAMS[request.param])
    yield both
    for evaluation in both:
        evaluation.world.end()


def test_killed_programs_of_the_guide_are_completed_by_fewer_ranks(evaluations: tuple[Evaluation, Evaluation]) -> None:
    alone, killed = evaluations
    count, wanted = alone.complete(ranks=1)
    assert count == len(wanted) + len(wanted.failed) > 0
    assert killed.kill_in_the_middle(ranks=3) == count
    left, results = killed.complete(ranks=2)
    assert 0 < left < count
    assert list(results) == list(wanted)
    assert _samples._are_equal(dict(results), dict(wanted))
    assert (results.missing, results.failed, results.conflicts) == ([], wanted.failed, [])
    # Nothing is left to do but what failed.
    again, unchanged = killed.complete(ranks=1)
    assert again == len(wanted.failed) and list(unchanged) == list(wanted)


def test_there_are_programs_in_the_guide() -> None:
    assert len(PROGRAMS) == 4
