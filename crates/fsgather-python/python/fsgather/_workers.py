"""Which processes are workers of a rank, and so not the rank: those that would join in its place are refused.

A worker process has inherited what its rank is told by: the variables of the launcher, and after a fork torch's process groups.
But not every child is a worker, since launchers start ranks as children, too. What tells them apart is who was told to be that
rank first. A process is a worker if it is told the same rank by the very same variables as

- the process that has made or looked up that rank's communicator, which leaves a mark in its environment for that,
- or the process that has forked it, or started it by ``multiprocessing``, where that one was itself started with these variables.

A launcher that gives each child a rank of its own changes the variables, and was not started with them.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, Optional

from fsgather._errors import ConfigError

__all__ = ["check_environment", "check_group", "is_told_rank", "leave_mark", "refusal", "state_and_start"]

MARK = "_FSGATHER_RANK_IN"
"""Names the process that is the rank, when it began, which rank it is, and by which variables it was told."""

RANKS = (
    "FSGATHER_RANK",
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "LWS_WORKER_INDEX",
    "JOB_COMPLETION_INDEX",
)
"""What launchers say a rank by, those first that go before others."""

_IDENTITY = (
    *RANKS,
    *("FSGATHER_WORLD_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"),
    *("JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"),
    *("LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS"),
    *("FSGATHER_JOB", "FSGATHER_RENDEZVOUS", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "FLUX_JOB_ID", "PMIX_NAMESPACE", "PMI_FD"),
)
"""What tells a rank of one job from all others."""

_forked_from: Optional[int] = None
"""The process that has forked this one, where that had loaded this module."""

_inherited_groups: list[Any] = []
"""Process groups of torch that are the parent's."""


def is_told_rank() -> bool:
    """Whether variables of a launcher say which rank this process is."""
    return any(os.environ.get(name) for name in RANKS)


def check_environment() -> None:
    """Refuses a process that would join in the place of the rank whose worker it is.

    Raises:
        fsgather.ConfigError: names the rank.
    """
    rank = next((os.environ[name] for name in RANKS if os.environ.get(name)), None)
    if rank is None:
        return
    told = _identity(os.environ)
    marked = _marked(told)
    if marked is not None:
        raise refusal(marked)
    for pid in {_parent_by_multiprocessing(), _forked_from} - {None, os.getpid()}:
        if told == _identity(_started_with(pid)):
            raise refusal(rank)


def check_group(process_group: Any, rank: int) -> None:
    """Refuses a forked child that would use its parent's process group.

    Raises:
        fsgather.ConfigError: names the rank.
    """
    if any(process_group is inherited for inherited in _inherited_groups):
        raise refusal(rank, "have it make a process group of its own")


def leave_mark(rank: int) -> None:
    """Has children of this process know whose they are."""
    told = _identity(os.environ)
    if told:
        os.environ[MARK] = f"{os.getpid()} {_start_of(os.getpid())} {rank} {told}"


def refusal(rank: Any, way_out: str = "pass rank= and world_size=") -> ConfigError:
    """What a worker of that rank is told."""
    process = sys.modules.get("multiprocessing.process")
    name = process.current_process().name if process is not None else "MainProcess"
    if name == "MainProcess":
        name = f"pid {os.getpid()}"
    return ConfigError(
        f"this is a worker process ({name}) of rank {rank}; only the rank itself can gather. To let it take part, {way_out}"
    )


def _marked(told: str) -> Optional[str]:
    """The rank whose process has left its mark in the variables that this one was started with, if that is another process."""
    pid, start, rank, by = (os.environ.get(MARK, "").split(" ", 3) + [""] * 4)[:4]
    if by != told or not pid.isdecimal() or (int(pid) == os.getpid() and start == _start_of(os.getpid())):
        return None
    return rank


def _identity(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={variables[name]}" for name in _IDENTITY if variables.get(name))


def _parent_by_multiprocessing() -> Optional[int]:
    process = sys.modules.get("multiprocessing.process")
    parent = process.parent_process() if process is not None else None
    return None if parent is None else parent.pid


def _started_with(pid: Optional[int]) -> dict[str, str]:
    """The variables with which a process was started; nothing where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as source:
            entries = os.fsdecode(source.read()).split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def state_and_start(pid: int) -> Optional[tuple[str, int]]:
    """Returns the state of a process of this host, and when it began; ``None`` if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
            fields = source.read().rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _start_of(pid: int) -> str:
    found = state_and_start(pid)
    return "0" if found is None else str(found[1])


def _before_fork() -> None:
    global _forking
    _forking = os.getpid()


def _after_fork() -> None:
    global _forked_from
    _forked_from = _forking
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    known = getattr(getattr(c10d, "_world", None), "pg_map", None) or getattr(c10d, "_pg_map", None) or {}
    _inherited_groups.extend(known)


_forking: Optional[int] = None

if sys.platform != "win32":
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
