"""The programs of the guides and the examples of the package run. Blocks marked `python torch` need torch: `beds/test_samples_guide.py` runs them."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import fsgather
import pytest

from conftest import World

GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guide"


def blocks(guide: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (GUIDES / guide).read_text(), flags=re.DOTALL)


PROGRAMS = blocks("python.md") + blocks("samples.md") + blocks("switching.md")


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_in_the_guide_run_between_real_ranks(world: World, number: int) -> None:
    ended = world.start(2, "# The program of the guide.\n" + PROGRAMS[number]).ends()
    assert [end.code for end in ended] == [0, 0], [end.err for end in ended]
    assert ended[0].out
    assert "Traceback" not in ended[0].err + ended[1].err


def test_there_are_programs_in_the_guide() -> None:
    assert len(PROGRAMS) == 8


def test_examples_in_docstrings_show_what_they_print() -> None:
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for module in (fsgather, fsgather.compat):
        # `False`: most functions are defined in another module than the one that exports them.
        for test in finder.find(module, module.__name__, module=False, globs={"fsgather": fsgather}):  # type: ignore[arg-type]
            runner.run(test)
    assert runner.failures == 0 and runner.tries > 25
