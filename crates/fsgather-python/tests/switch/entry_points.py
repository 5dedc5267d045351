"""Prints the entry points of a ``pyproject.toml`` as an installed package has them, for tests that do not install it."""

from __future__ import annotations

import re
import sys


def main() -> None:
    """The tables ``project.scripts`` and ``project.entry-points."..."`` of the file that the command line names."""
    with open(sys.argv[1]) as file:
        text = file.read()
    # Without a parser: the standard library has one from Python 3.11 on.
    for table, body in re.findall(r"^\[project\.([^\]]+)\]\n((?:[^\[\n].*\n|\n)*)", text, re.MULTILINE):
        if table == "scripts" or table.startswith("entry-points."):
            name = "console_scripts" if table == "scripts" else table.partition(".")[2].strip('"')
            print(f"[{name}]")
            for key, value in re.findall(r'^(\S+) = "(.*)"$', body, re.MULTILINE):
                print(f"{key} = {value}")


if __name__ == "__main__":
    main()
