"""The checks that every job must pass, whatever happens to its ranks."""

from __future__ import annotations

import re
from collections.abc import Collection

from jobs.processes import Outcome

LIBRARY_ERRORS = {10: "time-out", 11: "peer failed", 12: "storage", 13: "data that cannot be understood", 14: "desync", 15: "rendezvous"}
"""Exit codes of docs/reference/errors.md for errors of the library; the rank program ends with 1 if data is wrong."""


def judge_end(who: str, outcome: Outcome, codes: Collection[int]) -> list[str]:
    """Whether a process ended without a panic, with one of these codes."""
    if outcome.code is None:
        return [f"{who} does not end"]
    if "panicked" in outcome.err:
        return [f"{who} panicked"]
    if outcome.code not in codes:
        return [f"{who} ended with {outcome.code}: {outcome.error[:300] or outcome.err[-300:]}"]
    return []


def named_ranks(text: str) -> list[tuple[int, int]]:
    """Number and process id of each rank that an error names."""
    return [(int(rank), int(pid)) for rank, pid in re.findall(r"rank (\d+) on \S+ \(pid (\d+)\)", text)]
