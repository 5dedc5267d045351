"""What type checkers make of programs that use the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fsgather

PROGRAM = Path(__file__).with_name("typed_program.py")


def test_a_type_checker_finds_the_wrong_calls_and_no_others(tmp_path: Path) -> None:
    wrong = {number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith("# wrong")}
    package = Path(fsgather.__file__).parent.parent
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "--follow-imports=silent", str(PROGRAM)],
        env={**os.environ, "MYPYPATH": str(package)},
        stdout=subprocess.PIPE,
        timeout=300,
        text=True,
    ).stdout
    found = {int(line.split(":")[1]) for line in checked.splitlines() if ": error:" in line}
    assert found == wrong and len(wrong) == 7, checked
