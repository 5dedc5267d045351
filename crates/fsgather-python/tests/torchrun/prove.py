"""Proves ``torchrun --rdzv-backend=fsgather`` on hosts of namespaces whose names are in no table; ``scripts/prove torchrun`` starts it.

Arguments name some of the proofs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
HOSTS = str(HERE.parents[3] / "scripts/beds/hosts.sh")
LIMIT = 150
"""No proof takes more seconds, however busy the machine is."""

PROOFS: dict[str, Callable[[Bed], None]] = {}


def proof(function: Callable[[Bed], None]) -> Callable[[Bed], None]:
    """One of the proofs; gets hosts of its own."""
    PROOFS[function.__name__] = function
    return function


class Bed:
    """Three hosts that share a directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.variables = {**os.environ, "BED_STATE": str(place / "bed"), "OMP_NUM_THREADS": "1", "RES_OPTIONS": "timeout:1 attempts:1"}
        self.shared = place / "shared"
        self.shared.mkdir()
        self.agents: dict[str, subprocess.Popen[str]] = {}
        self.logs: dict[str, Path] = {}
        self.deadline = time.monotonic() + LIMIT

    def hosts(self, *arguments: str) -> None:
        subprocess.run([HOSTS, *arguments], env=self.variables, check=True, timeout=LIMIT)

    def notes(self, job: str) -> Path:
        notes = self.place / job
        notes.mkdir(exist_ok=True)
        return notes

    def start(self, host: int, job: str = "job", nodes: str = "2", options: tuple[str, ...] = (), **variables: str) -> str:
        """Starts an agent on a host whose name nobody knows; its own name."""
        name = f"{job}-on-{host}-{len(self.logs)}"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", "2", "--max-restarts", "3"]
        torchrun += ["--rdzv-backend=fsgather", f"--rdzv-endpoint={self.shared}", f"--rdzv-id={job}", *options]
        torchrun += [str(HERE / "job.py"), str(self.notes(job))]
        # Processes of its own, which end with it, as those of a host do.
        rename = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", f'hostname stranger-{host} && exec "$@"', "-"]
        self.logs[name] = self.place / f"{name}.log"
        with self.logs[name].open("w") as log:
            command = [HOSTS, "exec", f"node{host}", *rename, *torchrun]
            self.agents[name] = subprocess.Popen(command, env={**self.variables, **variables}, stdout=log, stderr=log, text=True)
        return name

    def met(self, *hosts: int, job: str = "job") -> str:
        """Waits until these hosts have met, two ranks on each; the address of the first rank's."""
        expected = sorted(f"stranger-{host}" for host in hosts for _ in range(2))
        note = self.notes(job) / "met"
        while True:
            if note.exists():
                master, *names = note.read_text().split()
                if sorted(names) == expected:
                    return master
            self.pause()

    def end(self, job: str = "job", *, but: tuple[str, ...] = ()) -> None:
        """Has a job end, and sees that all its agents end well."""
        (self.notes(job) / "end").touch()
        for name, agent in self.agents.items():
            if name.startswith(f"{job}-") and name not in but:
                assert agent.wait(max(1.0, self.deadline - time.monotonic())) == 0, f"{name} ended with {agent.returncode}"

    def pause(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError
        time.sleep(0.1)

    def nothing_is_left(self) -> None:
        left = [str(path) for path in self.shared.rglob("*") if path.name != "all_gather_via_filesys"]
        assert not left, left


@proof
def hosts_without_names_meet(bed: Bed) -> None:
    for host in (1, 2, 3):
        bed.start(host, nodes="3")
    bed.met(1, 2, 3)
    bed.end()
    bed.nothing_is_left()


@proof
def objects_go_through_fsgather(bed: Bed) -> None:
    for host in (1, 2):
        bed.start(host, FSGATHER_PATCH="torch")
    bed.met(1, 2)
    bed.end()
    said = "".join(log.read_text() for log in bed.logs.values())
    assert "object collectives of this job go through fsgather" in said
    bed.nothing_is_left()


@proof
def a_failed_worker_is_started_again(bed: Bed) -> None:
    for host in (1, 2):
        bed.start(host)
    bed.met(1, 2)
    note = bed.notes("job") / "met"
    (bed.notes("job") / "die").touch()
    while (bed.notes("job") / "die").exists():
        bed.pause()
    note.unlink()
    bed.met(1, 2)
    bed.end()
    bed.nothing_is_left()


def lost(bed: Bed, which: int) -> None:
    """A host is lost, the one with the first rank (0) or the other one (1), and a third takes its place."""
    agents = {host: bed.start(host) for host in (1, 2)}
    master = bed.met(1, 2)
    first = int(master.rpartition(".")[2]) - 10
    gone = first if which == 0 else 3 - first
    bed.hosts("link", str(gone), "down")
    bed.agents[agents[gone]].kill()
    bed.start(3)
    master = bed.met(3 - gone, 3)
    assert master != f"10.78.0.{10 + gone}"
    bed.end(but=(agents[gone],))
    # What the host that is gone has left shows that it was here.
    left = sorted(path.name.partition("-")[0] for path in bed.shared.rglob("torchrun-*/here-*"))
    assert left == ["here"], left


@proof
def a_lost_host_is_replaced(bed: Bed) -> None:
    lost(bed, 1)


@proof
def the_host_of_the_first_rank_is_replaced(bed: Bed) -> None:
    lost(bed, 0)


@proof
def a_host_that_is_lost_before_others_come_is_replaced(bed: Bed) -> None:
    gone = bed.start(1)
    while not list(bed.shared.rglob("torchrun-*/state-*")):
        bed.pause()
    bed.agents[gone].kill()
    # They come before it counts as lost, so that one of them meets it.
    for host in (2, 3):
        bed.start(host)
    bed.met(2, 3)
    bed.end(but=(gone,))
    left = sorted(path.name.partition("-")[0] for path in bed.shared.rglob("torchrun-*/here-*"))
    assert left == ["here"], left


@proof
def a_host_that_comes_later_is_taken_in(bed: Bed) -> None:
    elastic = ("--rdzv-conf", "last_call_timeout=2")
    bed.start(1, nodes="1:2", options=elastic)
    bed.met(1)
    bed.start(2, nodes="1:2", options=elastic)
    bed.met(1, 2)
    bed.end()
    bed.nothing_is_left()


@proof
def two_jobs_share_a_directory(bed: Bed) -> None:
    for job in ("one", "other"):
        for host in (1, 2):
            bed.start(host, job)
    for job in ("one", "other"):
        bed.met(1, 2, job=job)
        bed.end(job)
    bed.nothing_is_left()


@proof
def a_job_may_have_the_name_of_one_that_has_ended(bed: Bed) -> None:
    for _ in range(2):
        for host in (1, 2):
            bed.start(host)
        bed.met(1, 2)
        bed.end()
        bed.nothing_is_left()
        for note in bed.notes("job").iterdir():
            note.unlink()


@proof
def clocks_may_differ(bed: Bed) -> None:
    library = bed.place / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O", "-o", str(library), str(HERE.parents[3] / "scripts/beds/clock.c"), "-ldl"], check=True)
    bed.start(1)
    (bed.place / "ahead").write_text("600")
    bed.start(2, LD_PRELOAD=str(library), SHIFTED_CLOCK=str(bed.place / "ahead"))
    bed.met(1, 2)
    # A spare one takes nobody's place, for longer than an agent without a new sign of life counts as alive.
    spare = bed.start(3)
    until = time.monotonic() + 25
    while time.monotonic() < until:
        bed.met(1, 2)
        bed.pause()
    said = "".join(log.read_text() for log in bed.logs.values())
    assert "closing signal" not in said, said
    bed.end(but=(spare,))


@proof
def an_agent_that_is_terminated_while_it_waits_leaves_nothing(bed: Bed) -> None:
    for signaled in (signal.SIGTERM, signal.SIGINT):
        name = bed.start(1)
        while not list(bed.shared.rglob("state-*")):
            bed.pause()
        (agent,) = agents(bed)
        os.kill(agent, signaled)
        assert bed.agents[name].wait(LIMIT) != 0
        bed.nothing_is_left()


@proof
def an_agent_is_terminated_while_torch_connects(bed: Bed) -> None:
    for signaled in (signal.SIGTERM, signal.SIGINT):
        name = bed.start(1, nodes="1", options=("--local-addr", "10.99.99.99"))
        # Its store of keys is there, to which torch connects by an address that leads nowhere.
        while not any(thread.startswith("pt_tcpstore") for agent in agents(bed) for thread in threads(agent)):
            bed.pause()
        (agent,) = agents(bed)
        os.kill(agent, signaled)
        assert bed.agents[name].wait(LIMIT) != 0
        bed.nothing_is_left()


def agents(bed: Bed) -> list[int]:
    """The processes that are agents themselves, rather than what has started them and hands no signal on."""
    return [int(pid.name) for pid in Path("/proc").glob("[0-9]*") if is_agent(pid, bed.shared)]


def threads(process: int) -> list[str]:
    """What the threads of a process are called."""
    names = []
    for thread in Path(f"/proc/{process}/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            names.append(thread.read_text())
    return names


def is_agent(process: Path, shared: Path) -> bool:
    """Whether a process is the agent itself, rather than what has started it."""
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return command[0] == sys.executable.encode() and f"--rdzv-endpoint={shared}".encode() in command


@proof
def what_cannot_work_is_refused(bed: Bed) -> None:
    for options, text in (
        (("--rdzv-id=none",), "add --rdzv-id="),
        (("--rdzv-endpoint=node1:29500",), "is not the path of a directory that all hosts share"),
        (("--rdzv-endpoint=/nowhere",), "/nowhere"),
    ):
        name = bed.start(1, "job", "2", options)
        assert bed.agents[name].wait(LIMIT) != 0
        assert text in bed.logs[name].read_text()


def main() -> int:
    """Runs the proofs; whether one has failed."""
    failed = 0
    wanted = sys.argv[1:] or list(PROOFS)
    for name in wanted:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fsg") as place:
            bed = Bed(Path(place))
            try:
                bed.hosts("up", "3")
                PROOFS[name](bed)
            except Exception:
                traceback.print_exc()
                for log in bed.logs.values():
                    print(f"-- {log.name}\n{log.read_text()[-3000:]}")
                failed += 1
                print(f"FAILED {name}", flush=True)
            else:
                print(f"ok {name} ({time.monotonic() - began:.0f} s)", flush=True)
            finally:
                for agent in bed.agents.values():
                    agent.kill()
                    agent.wait()
                bed.hosts("down")
    print(f"summary: {len(wanted) - failed} right, {failed} failed", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
