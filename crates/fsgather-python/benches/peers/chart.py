"""Draws bars as SVG, for light and for dark pages."""

from __future__ import annotations

import math
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


def lines(title: str, along: Sequence[int], series: dict[str, Sequence[float]], colours: dict[str, str]) -> str:
    """One line for each name, over numbers that double; both axes are logarithmic."""
    wide, high, left, top = 560, 300, 60, HEAD
    most = math.ceil(math.log10(max(max(line) for line in series.values())))
    least = math.floor(math.log10(min(min(line) for line in series.values())))

    def across(number: float) -> float:
        return left + wide * math.log(number / along[0]) / math.log(along[-1] / along[0])

    def down(number: float) -> float:
        return top + high * (most - math.log10(number)) / (most - least)

    height = top + high + 40
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="14" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="8" y="24" fill="{colours["quiet"]}">{escape(title)}</text>',
    ]
    for power in range(least, most + 1):
        y = down(10.0**power)
        drawn += [
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + wide}" y2="{y:.1f}" stroke="{colours["floor"]}"/>',
            f'<text x="{left - 8}" y="{y + 5:.1f}" text-anchor="end" fill="{colours["quiet"]}">{10.0**power:g}</text>',
        ]
    for number in along:
        x = f"{across(number):.1f}"
        drawn.append(f'<text x="{x}" y="{top + high + 22}" text-anchor="middle" fill="{colours["quiet"]}">{number}</text>')
    for place, (name, line) in enumerate(series.items()):
        colour = colours[["own", "text", "quiet"][place % 3]]
        points = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in zip(along, line))
        drawn += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{left + wide + 10}" y="{down(line[-1]) + 5:.1f}" fill="{colour}">{escape(name)}</text>',
        ]
    return "\n".join([*drawn, "</svg>", ""])
