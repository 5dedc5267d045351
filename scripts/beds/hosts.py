"""Hosts made of namespaces, for scripts in Python: what hosts.sh does, and worlds of ranks on them."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BED = ROOT / "scripts/beds/hosts.sh"
MOUNTS = ROOT / "scripts/beds/fuse-double.sh"


def build_calls(is_release: bool = False) -> Path:
    """The program of a rank that makes equal calls: tests/examples/calls.rs."""
    build = ["cargo", "build", "--quiet", "-p", "fsgather-tests", "--example", "calls"]
    subprocess.run([*build, *(["--release"] if is_release else [])], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / ("release" if is_release else "debug") / "examples/calls"


@contextlib.contextmanager
def mounts(place: str) -> Iterator[dict[str, str]]:
    """Two mounts of one directory, as hosts.sh is told of them."""
    environment = {**os.environ, "BED_STATE": f"{place}/files"}
    subprocess.run([MOUNTS, "up"], env=environment, check=True)
    try:
        yield {f"HOST{host}_DIR": f"{place}/files/host{host}" for host in (1, 2)}
    finally:
        subprocess.run([MOUNTS, "down"], env=environment, check=True)


class Bed:
    """Hosts, each with a network card `eth0`."""

    def __init__(self, hosts: int, place: str) -> None:
        self.names = [f"node{host}" for host in range(1, hosts + 1)]
        self.environment = {**os.environ, "BED_STATE": f"{place}/bed"}
        self.has_files = False

    @classmethod
    @contextlib.contextmanager
    def up(cls, hosts: int, link: str = "", files: bool = False) -> Iterator["Bed"]:
        """So many hosts; with `link`, settings of link.py, on a network as bad as these say; with `files`, for two hosts, a directory
        that each mounts for itself (fuse-double.sh)."""
        with tempfile.TemporaryDirectory() as place, mounts(place) if files else contextlib.nullcontext({}) as seen:
            bed = cls(hosts, place)
            bed.environment.update(seen)
            bed.has_files = files
            if link:
                settings = Path(place) / "link"
                settings.write_text(link)
                bed.environment["BED_LINK"] = str(settings)
            try:
                subprocess.run([BED, "up", str(hosts)], env=bed.environment, check=True)
                yield bed
            finally:
                subprocess.run([BED, "down"], env=bed.environment, check=True)

    def cards(self) -> list[tuple[int, int]]:
        """What each host has received and sent by now, in bytes."""
        counts = []
        for name in self.names:
            command = [BED, "exec", name, "cat", "/proc/net/dev"]
            devices = subprocess.run(command, env=self.environment, check=True, stdout=subprocess.PIPE, text=True).stdout
            words = next(line for line in devices.splitlines() if "eth0:" in line).split(":")[1].split()
            counts.append((int(words[0]), int(words[8])))
        return counts

    def run(self, program: Path, hosts_of_ranks: list[int], operation: str, length: int, calls: int) -> str:
        """Has a rank on each of these hosts, counted from 0, make so many calls by memory, or by the files that hosts share; what rank 0
        has printed."""
        with tempfile.TemporaryDirectory() as directory:
            told = {
                "FSGATHER_DIR": directory, "FSGATHER_TRANSPORT": "memory", "FSGATHER_CONTROL": "tcp", "FSGATHER_JOB": "bed",
                "FSGATHER_WORLD_SIZE": str(len(hosts_of_ranks)), "FSGATHER_TRACE": "off",
            }
            if self.has_files:
                told |= {"FSGATHER_DIR": f"{self.environment['BED_STATE']}/shared", "FSGATHER_TRANSPORT": "auto"}
            started = []
            for rank, host in enumerate(hosts_of_ranks):
                command = [BED, "exec", self.names[host], program, operation, str(length), str(calls)]
                environment = {**self.environment, **told, "FSGATHER_RANK": str(rank)}
                started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
            printed = [process.communicate(timeout=600)[0] for process in started]
        if any(process.returncode for process in started):
            sys.exit(f"{operation} of {calls} calls has failed")
        return printed[0]


def parser(of: str | None) -> argparse.ArgumentParser:
    """Arguments of a script that is described so."""
    return argparse.ArgumentParser(description=of, formatter_class=argparse.RawDescriptionHelpFormatter)
