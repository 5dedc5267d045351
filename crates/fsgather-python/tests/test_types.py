"""What type checkers find in programs that use the package, and in the package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import fsgather

from test_guides import GUIDES

TESTS = Path(__file__).parent
PACKAGE = Path(fsgather.__file__).parent.parent


def findings(place: Path, *arguments: str) -> set[tuple[str, int]]:
    """The files and lines in which mypy finds errors. What it prints is shown if a test fails."""
    # Torch is not installed where this runs, and Dask has few annotations.
    options = ["--strict", "--ignore-missing-imports", "--allow-subclassing-any", "--allow-untyped-decorators"]
    options += ["--untyped-calls-exclude=distributed", "--cache-dir", str(place / "cache")]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *arguments],
        cwd=place,
        env={**os.environ, "MYPYPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        timeout=300,
        text=True,
    ).stdout
    print(checked)
    assert re.search(r"^(Found|Success)", checked, re.MULTILINE)
    return {(file, int(line)) for file, line in re.findall(r"^([^:]+):(\d+): error:", checked, re.MULTILINE)}


def test_a_type_checker_finds_the_wrong_calls_and_no_others(tmp_path: Path) -> None:
    program = TESTS / "typed_program.py"
    wrong = {(str(program), number) for number, line in enumerate(program.read_text().splitlines(), 1) if line.endswith("# wrong")}
    assert len(wrong) == 10
    assert findings(tmp_path, str(program)) == wrong


def test_a_type_checker_finds_nothing_in_the_package_the_guides_and_the_examples(tmp_path: Path) -> None:
    files = [str(path) for path in (TESTS.parent / "examples").glob("*.py")]
    for page in GUIDES.glob("*.md"):
        for number, program in enumerate(re.findall(r"```python(?: torch)?\n(.*?)```", page.read_text(), flags=re.DOTALL)):
            file = tmp_path / f"{page.stem.replace('-', '_')}_{number}.py"
            file.write_text(program)
            files.append(str(file))
    assert len(files) > 12
    assert findings(tmp_path, *files) == set()
    assert findings(tmp_path, "-p", "fsgather", "-p", "fsgather_autoload") == set()
