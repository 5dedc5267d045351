"""Programs that the tests do not run, such as those for engines and benchmarks, use names that the package has."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import fsgather

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = sorted(
    path
    for place in ("crates/fsgather-python/benches", "crates/fsgather-python/examples", "crates/fsgather-python/tests", "scripts")
    for path in (ROOT / place).rglob("*.py")
    if not path.name.startswith(("test_", "typed_")) and "import fsgather" in path.read_text()
)


def missing(program: str) -> Iterator[str]:
    """The chains of names that begin at the package, each up to the first name that is not there."""
    for node in ast.walk(ast.parse(program)):
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if not names or not isinstance(node, ast.Name) or node.id != "fsgather":
            continue
        found: object = fsgather
        for number, name in enumerate(names, 1):
            if not hasattr(found, name):
                yield ".".join(["fsgather", *names[:number]])
            found = getattr(found, name, None)
            if not inspect.ismodule(found) and not inspect.isclass(found):
                break


def test_a_name_that_is_not_there_is_found() -> None:
    assert set(missing("fsgather.Communicator.solo()")) == set()
    assert set(missing("fsgather.Communicator.unheard_of()")) == {"fsgather.Communicator.unheard_of"}
    assert set(missing("fsgather.unheard_of.too")) == {"fsgather.unheard_of"}


def test_names_in_programs_are_there() -> None:
    assert len(PROGRAMS) > 10
    found = {str(path.relative_to(ROOT)): set(missing(path.read_text())) for path in PROGRAMS}
    assert {path: names for path, names in found.items() if names} == {}
