"""Draws bars as SVG, for light and for dark pages."""

from __future__ import annotations

from html import escape
from typing import Sequence

COLOURS = {
    "light": {"text": "#1f2328", "quiet": "#656d76", "bar": "#afb8c1", "own": "#0969da", "floor": "#d0d7de"},
    "dark": {"text": "#e6edf3", "quiet": "#8d96a0", "bar": "#484f58", "own": "#4493f8", "floor": "#30363d"},
}

WIDTH, ROW, HEAD = 860, 30, 44
NAMES, NUMBERS = 330, 80
"""How much of the width is for names, and for numbers."""


def bars(title: str, rows: Sequence[tuple[str, float, str]], colours: dict[str, str]) -> str:
    """One bar for each row: its name, its number, and which of the colours it has."""
    most = max(number for _, number, _ in rows)
    room = WIDTH - NAMES - NUMBERS
    height = HEAD + ROW * len(rows) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="14" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="8" y="24" fill="{colours["quiet"]}">{escape(title)}</text>',
    ]
    for place, (name, number, kind) in enumerate(rows):
        top = HEAD + ROW * place
        length = max(2.0, room * number / most)
        weight = ' font-weight="600"' if kind == "own" else ""
        shown = f"{number:.0f}" if number >= 100 else f"{number:.1f}"
        lines += [
            f'<text x="{NAMES - 10}" y="{top + 18}" text-anchor="end" fill="{colours["text"]}"{weight}>{escape(name)}</text>',
            f'<rect x="{NAMES}" y="{top + 4}" width="{length:.1f}" height="{ROW - 10}" rx="2" fill="{colours[kind]}"/>',
            f'<text x="{NAMES + length + 8:.1f}" y="{top + 18}" fill="{colours["text"]}"{weight}>{shown}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
