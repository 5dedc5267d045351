"""A control group of Linux with a limit of memory, in which the kernel kills processes that need more."""

from __future__ import annotations

import os
from pathlib import Path

LIMIT_BYTES = 768 << 20
"""Enough for six ranks that do nothing unusual."""


class MemoryGroup:
    """A control group inside that of this process, of version 2 or 1."""

    def __init__(self) -> None:
        """Makes the group; an OSError has the reason why that is impossible."""
        parent, self.version = own_group()
        self.path = parent / f"fsgather-samples-{os.getpid()}"
        self.path.mkdir()
        try:
            limit = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
            if not (self.path / limit).exists():
                raise OSError(f"{parent} does not limit the memory of its groups")
            (self.path / limit).write_text(str(LIMIT_BYTES))
        except OSError:
            self.path.rmdir()
            raise

    def command(self, words: list[str]) -> list[str]:
        """The command that runs these words in the group."""
        return ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.path / "cgroup.procs"), *words]

    def killed(self) -> int:
        """How many processes the kernel has killed so far because the memory was used up."""
        events = self.path / ("memory.events" if self.version == 2 else "memory.oom_control")
        return int(dict(line.split() for line in events.read_text().splitlines())["oom_kill"])

    def remove(self) -> None:
        self.path.rmdir()


def own_group() -> tuple[Path, int]:
    """The directory of this process's group that counts memory, and its version."""
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    for _, controllers, path in groups:
        for mount in mounts:
            if mount[2] == "cgroup" and "memory" in controllers.split(",") and "memory" in mount[3].split(","):
                return Path(mount[1] + path), 1
    for _, controllers, path in groups:
        for mount in mounts:
            if mount[2] == "cgroup2" and not controllers:
                return Path(mount[1] + path), 2
    raise OSError("no control groups are mounted")
