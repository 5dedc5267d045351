"""What a round does and what is done to it, drawn from its seed."""

from __future__ import annotations

import dataclasses
import random
from typing import Optional

from harms import Harm, Trigger, draw_harms
from steps import Script, draw_python_script, draw_script

MODES = {
    "files": {"FSGATHER_TRANSPORT": "filesys"},
    "memory": {"FSGATHER_TRANSPORT": "memory"},
    "relay": {"FSGATHER_TRANSPORT": "memory", "FSGATHER_INLINE_LIMIT": "4MiB"},
    "any": {},
}
WAYS = [{}, {}, {"FSGATHER_COMPRESS": "zstd"}, {"FSGATHER_INLINE_LIMIT": "1"}, {"FSGATHER_ENCRYPT": "1"}]

FAMILIES = {
    "plain": ("FSGATHER_RANK", "FSGATHER_WORLD_SIZE", "FSGATHER_LOCAL_RANK", "FSGATHER_LOCAL_WORLD_SIZE"),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}

JOIN_TIMEOUT = 15.0
"""Seconds for which ranks look for each other."""


@dataclasses.dataclass
class Job:
    """One world."""

    number: int
    ranks: int
    mode: str
    control: str
    family: str
    job_id: Optional[str]
    timeout: float
    in_python: bool
    script: Script
    trigger: Optional[Trigger]
    harms: list[Harm]
    harm_kind: str
    variables: list[dict[str, str]]
    """Of each rank."""
    delays: list[float]
    """How long after the one before it each rank starts."""

    def environment(self, rank: int, directory: str) -> dict[str, str]:
        """What a rank is told."""
        names = dict(zip(FAMILIES[self.family], (rank, self.ranks, rank, self.ranks)))
        told = {name: str(value) for name, value in names.items()}
        told.update(FSGATHER_DIR=directory, FSGATHER_CONTROL=self.control, RUST_BACKTRACE="1")
        told.update(FSGATHER_TIMEOUT=f"{self.timeout}s", FSGATHER_JOIN_TIMEOUT=f"{JOIN_TIMEOUT}s", FSGATHER_LOG="info")
        if self.job_id is not None:
            told["FSGATHER_JOB"] = self.job_id
        told.update(MODES[self.mode])
        told.update(self.variables[rank])
        return told


@dataclasses.dataclass
class Round:
    """Jobs at the same time in one directory."""

    seed: int
    jobs: list[Job]


def draw(seed: int, with_python: bool) -> Round:
    """The round of a seed. Whether there are ranks in Python changes that, and nothing else does."""
    rng = random.Random(seed)
    together = rng.choice([1, 1, 1, 2, 2, 3])
    # Without an id only where there is something to be mixed.
    has_ids = together == 1 or rng.random() < 0.5
    family = "plain" if has_ids else rng.choice(list(FAMILIES))
    jobs = []
    for number in range(together):
        job_id = rng.choice([f"soak-{number}", f"soak-{number}-{seed}"]) if has_ids else None
        in_python = rng.random() < 0.15 and with_python
        jobs.append(draw_job(rng, number, seed, job_id, family, in_python, together))
    return Round(seed, jobs)


def draw_job(rng: random.Random, number: int, seed: int, job_id: Optional[str], family: str, in_python: bool, together: int) -> Job:
    """One of the jobs of a round."""
    ranks = rng.choice([2, 3, 4, 4, 8] if together == 1 else [2, 3, 4])
    control = rng.choice(["tcp", "tcp", "auto", "markers"])
    mode = rng.choice(list(MODES))
    bytes_of = seed * 4 + number + 1
    script = (draw_python_script if in_python else draw_script)(rng, ranks, bytes_of % (1 << 32))
    kind, harms, trigger = draw_harms(rng, ranks, script)
    suspended = kind == "suspended"
    everybody = rng.choice(WAYS)
    mixed = rng.random() < 0.3
    jitter = rng.choice([0, 0, 0.02, 0.2])
    return Job(
        number=number,
        ranks=ranks,
        mode=mode,
        control=control,
        family=family,
        job_id=job_id,
        # A job is suspended for longer than that, and a single rank for much less.
        timeout=6.0 if suspended else 40.0,
        in_python=in_python,
        script=script,
        trigger=trigger,
        harms=harms,
        harm_kind=kind,
        variables=[dict(rng.choice(WAYS) if mixed else everybody) for _ in range(ranks)],
        delays=[rng.random() * jitter for _ in range(ranks)],
    )
