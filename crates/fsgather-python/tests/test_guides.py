"""The programs of the guides run. Blocks marked `python torch` need torch: `beds/test_samples_guide.py` runs them."""

from __future__ import annotations

import re
from pathlib import Path

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
