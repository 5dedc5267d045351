"""The tables of ``docs/works-with.md``, from what was found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[4] / "docs/works-with.md"
BEGIN, END = "<!-- From scripts/prove projects --table -->", "<!-- Up to here. -->"


def in_short(told: list[dict[str, Any]], others: int, limit: float) -> str:
    """What the other ranks were told of harm, in a cell of a table."""
    heard = [each for each in told if each["kind"]]
    if not told:
        return f"no error within {limit:.0f} s"
    if not heard:
        return "no error"
    count = "" if len(heard) == others else f"{len(heard)} of {others}: "
    named = all(re.search(r"\brank 2\b", each["text"]) for each in heard)
    kinds = ", ".join(sorted({f"`{each['kind']}`" for each in heard}))
    return f"{count}{kinds}{' naming rank 2' if named else ''}, {max(each['seconds'] for each in heard):.1f} s"


def write(found: dict[str, Any]) -> None:
    """Puts the tables into the page."""
    lines = [
        "| project | version | what | `FSGATHER_PATCH` | seconds | MiB at the peak |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in sorted(found.items()):
        seconds = " → ".join(f"{value:.2f}" for value in one["seconds"])
        mib = " → ".join(f"{value:.0f}" for value in one["mib"])
        lines.append(f"| {name.replace('_', '-')} | {one['version']} | {one['what']} | `{one['patch']}` | {seconds} | {mib} |")
    lines += ["", "| project | rank 2 is killed: without | with | rank 2 is silent: without | with |", "|---|---|---|---|---|"]
    for name, one in sorted(found.items()):
        lines.append(f"| {name.replace('_', '-')} | {' | '.join(one['killed'])} | {' | '.join(one['silent'])} |")
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(head + "\n".join([BEGIN, "", *lines, "", END]) + tail)
