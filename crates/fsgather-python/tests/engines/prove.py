"""Runs one job in each engine that is named, with four ranks, and judges what came of it.

``scripts/prove engines`` installs the engines. For each:

- two gathers of 1 MiB objects come to what they should;
- a rank that is killed is named on the others;
- where the engine tries again by itself, the ranks meet again and all comes to its end.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Callable

import conformance
import fsgather
from conformance import EXPECTED, RANKS, VICTIM

HERE = Path(__file__).resolve().parent
LIMIT = 240
"""No job takes more seconds, however busy the machine is."""

ENGINES: dict[str, Callable[[Path], None]] = {}

ON_SLURM = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}
"""What processes of Ray, Dask and Spark inherit where Slurm has started them: what it says of ranks is not meant."""


def engine(function: Callable[[Path], None]) -> Callable[[Path], None]:
    """The proof for one engine; gets a directory of its own."""
    ENGINES[function.__name__] = function
    return function


def named(notes: Path, others: int = RANKS - 1) -> None:
    """Checks that those who lived name the one that was killed."""
    heard = sorted(notes.glob("heard-*"))
    assert len(heard) == others, f"{len(heard)} ranks have heard of it"
    for file in heard:
        text = file.read_text()
        assert text.startswith("PeerFailedError: ") and f"rank {VICTIM} " in text, f"{file.name}: {text}"


@engine
def spark(notes: Path) -> None:
    from pyspark.sql import SparkSession

    # Two executors of two cores, in processes of their own, as on two nodes.
    session = SparkSession.builder.master("local-cluster[2,2,1024]").config("spark.ui.enabled", "false")
    session = session.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"]).getOrCreate()
    try:
        ranks = session.sparkContext.parallelize(range(RANKS), RANKS).barrier()
        assert ranks.mapPartitions(lambda _: [conformance.job()]).collect() == EXPECTED
        # The same processes again.
        assert ranks.mapPartitions(lambda _: [conformance.job()]).collect() == EXPECTED
        # Tasks of another stage are in no run, also where the same processes were ranks before.
        alone = session.sparkContext.parallelize(range(RANKS), RANKS).mapPartitions(lambda _: [fsgather.all_gather("alone", timeout=5)])
        assert alone.collect() == [["alone"]] * RANKS
        # A stage is tried again as a whole, unless it is the last one.
        ranks = session.sparkContext.parallelize(range(RANKS), RANKS).barrier()
        said = ranks.mapPartitions(lambda _: [(conformance.job(str(notes)), None)]).groupByKey().keys()
        assert sorted(said.collect()) == EXPECTED
        named(notes)
    finally:
        session.stop()


@engine
def ray(notes: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster
    from ray.util import list_named_actors

    # Two raylets, each of which takes itself for a host.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
    try:
        run = ray.remote(num_cpus=1, max_restarts=1, max_task_retries=1)(RayRank)
        ranks = [run.remote(rank, "good") for rank in range(RANKS)]
        assert ray.get([rank.run.remote() for rank in ranks], timeout=LIMIT) == EXPECTED
        for rank in ranks:
            ray.kill(rank)
        ranks = [run.remote(rank, "killed") for rank in range(RANKS)]
        said = [rank.run.options(retry_exceptions=True).remote(str(notes)) for rank in ranks]
        assert ray.get(said, timeout=LIMIT) == EXPECTED
        named(notes)
        for block in (True, False):
            (notes / "killed").unlink(missing_ok=True)
            said = [rank.by_functions.options(retry_exceptions=True).remote(str(notes), block) for rank in ranks]
            assert ray.get(said, timeout=LIMIT) == [list(range(RANKS))] * RANKS
        for rank in ranks:
            ray.kill(rank)
        # Two runs at once in the same actors, and one in the block of another.
        both = ray.remote(num_cpus=1, max_concurrency=2)(RayRank)
        ranks = [both.remote(rank, "both") for rank in range(2)]
        said = {word: [rank.gathered.remote(word) for rank in ranks] for word in ("one", "other")}
        for word, results in said.items():
            wanted = [[f"{word} {turn} of {rank}" for rank in range(2)] for turn in range(3)]
            assert ray.get(results, timeout=LIMIT) == [wanted] * 2
        assert ray.get([rank.nested.remote() for rank in ranks], timeout=LIMIT) == [[[0, 1], [1, 0], [0, 1], "told"]] * 2
        # A method that raises, and the next one behind it.
        for rank in ranks:
            ray.kill(rank)
        one_by_one = ray.remote(num_cpus=1)(RayRank)
        ranks = [one_by_one.remote(rank, "epochs") for rank in range(2)]
        behind = [(rank.epoch.remote(1), rank.epoch.remote(2)) for rank in ranks]
        for first, second in behind:
            try:
                ray.get(first, timeout=LIMIT)
                raise AssertionError("one rank has raised")
            except ray.exceptions.RayTaskError as error:
                assert "no such score" in str(error) or "has begun another run" in str(error), error
            assert ray.get(second, timeout=LIMIT) == [[2, 0], [2, 1]]
        # Other ranks under the same name, of which the middle one stays.
        ranks = [*ranks, one_by_one.remote(2, "turned")]
        for order in ((0, 1, 2), (2, 1, 0)):
            said = [actor.turned.remote(order.index(place)) for place, actor in enumerate(ranks)]
            wanted = [order.index(place) for place in range(3)]
            assert ray.get(said, timeout=LIMIT) == [sorted(wanted)] * 3
        for rank in ranks:
            ray.kill(rank)
        # Coroutines of one actor, which come to two runs in different orders.
        coroutines = ray.remote(num_cpus=1)(RayCoroutines)
        ranks = [coroutines.remote(rank) for rank in range(2)]
        for in_thread in (True, False):
            said = [ranks[place].run.remote(word, word == ("one", "other")[place], in_thread) for word in ("one", "other") for place in range(2)]
            wanted = [[f"{word} of {place}" for place in range(2)] for word in ("one", "one", "other", "other")]
            found = ray.get(said, timeout=LIMIT)
            assert found == wanted if in_thread else all("await asyncio.to_thread(" in text for text in found), found
        # Meetings that fail: two processes are one rank, and one does not come. Nothing stays of them.
        said = [actor.alone.remote(place, 3, "doubled") for actor, place in zip([*ranks, coroutines.remote(2)], (0, 1, 1))]
        found = ray.get(said, timeout=LIMIT)
        assert any("rank 1" in text and ("a name of its own" in text) for text in found), found
        assert not any("FSGATHER_JOB" in text for text in found), found
        said = [actor.alone.remote(place, 3, "missed") for place, actor in enumerate(ranks)]
        assert all(text.startswith("TimeoutError: ") for text in ray.get(said, timeout=LIMIT))
        until = time.monotonic() + LIMIT
        while (left := [actor for actor in list_named_actors(all_namespaces=True) if actor["name"].startswith("fsgather-")]):
            assert time.monotonic() < until, left
            time.sleep(0.1)
    finally:
        ray.shutdown()
        cluster.shutdown()


@engine
def ray_train(notes: Path) -> None:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    ray.init(num_cpus=RANKS, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
    try:
        for arguments in ([], [str(notes)]):

            def loop() -> None:
                said = conformance.job(*arguments)
                Path(notes, f"said-{said.split()[1]}").write_text(said)

            configured = RunConfig(name="eval", storage_path=str(notes / "storage"), failure_config=FailureConfig(max_failures=1))
            DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=RANKS), run_config=configured).fit()
            assert sorted(said.read_text() for said in notes.glob("said-*")) == EXPECTED
            for said in notes.glob("said-*"):
                said.unlink()
        # Train ends the other ranks as soon as it misses one, perhaps before they have heard of it.
        assert (notes / "killed").exists()
        named(notes, len(list(notes.glob("heard-*"))))
    finally:
        ray.shutdown()


class RayRank:
    """An actor that is a rank."""

    def __init__(self, rank: int, name: str) -> None:
        self._who = (rank, RANKS, name)

    def run(self, *arguments: str) -> str:
        from fsgather.bootstraps import ray as bootstrap

        bootstrap.be_rank(*self._who)
        return conformance.job(*arguments)

    def gathered(self, word: str) -> list[list[str]]:
        from fsgather.bootstraps import ray as bootstrap

        rank = self._who[0]
        with bootstrap.be_rank(rank, 2, word):
            return [fsgather.all_gather(f"{word} {turn} of {rank}") for turn in range(3)]

    def nested(self) -> list[Any]:
        from fsgather.bootstraps import ray as bootstrap

        rank = self._who[0]
        with bootstrap.be_rank(rank, 2, "outer"):
            found: list[Any] = [fsgather.all_gather(rank)]
            with bootstrap.be_rank(1 - rank, 2, "inner"):
                found.append(fsgather.all_gather(rank))
            found.append(fsgather.all_gather(rank))
        try:
            fsgather.all_gather(rank)
        except fsgather.ConfigError:
            found.append("told")
        return found

    def turned(self, rank: int) -> list[int]:
        from fsgather.bootstraps import ray as bootstrap

        bootstrap.be_rank(rank, 3, "turned")
        return fsgather.all_gather(rank)

    def epoch(self, number: int) -> Any:
        from fsgather.bootstraps import ray as bootstrap

        rank = self._who[0]
        bootstrap.be_rank(rank, 2, "epochs")
        fsgather.barrier()
        if (rank, number) == (1, 1):
            raise KeyError("no such score")
        return fsgather.all_gather([number, rank])

    def by_functions(self, notes: str, block: bool) -> list[int]:
        from fsgather.bootstraps import ray as bootstrap

        being = bootstrap.be_rank(*self._who)
        if not block:
            return conformance.by_functions(notes)
        with being:
            return conformance.by_functions(notes)


class RayCoroutines:
    """An actor whose methods are coroutines of one event loop."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._said = asyncio.Event()

    async def run(self, word: str, comes_first: bool, in_thread: bool) -> Any:
        from fsgather.bootstraps import ray as bootstrap

        with bootstrap.be_rank(self._rank, 2, word):
            if comes_first:
                # The other run has been said by then, and would be kept waiting.
                await self._said.wait()
                self._said.clear()
            else:
                self._said.set()
                await asyncio.sleep(0.5)
            if in_thread:
                return await asyncio.to_thread(fsgather.all_gather, f"{word} of {self._rank}")
            try:
                return fsgather.all_gather(f"{word} of {self._rank}")
            except fsgather.ConfigError as error:
                return str(error)

    async def alone(self, rank: int, size: int, name: str) -> str:
        from fsgather.bootstraps import ray as bootstrap

        try:
            with bootstrap.be_rank(rank, size, name), fsgather.Communicator(join_timeout=10) as world:
                return f"met: {world.all_gather(rank)}"
        except fsgather.Error as error:
            # It keeps the frames of the meeting.
            self._error = error
            return f"{type(error).__name__}: {error}"


@engine
def dask(notes: Path) -> None:
    from distributed import Client, LocalCluster

    from fsgather.bootstraps import dask as bootstrap

    cluster = LocalCluster(n_workers=RANKS, threads_per_worker=1, dashboard_address=None)
    try:
        with Client(cluster) as client:
            assert bootstrap.run(client, conformance.job) == EXPECTED
            # Its nanny starts the worker anew.
            assert bootstrap.run(client, conformance.job, str(notes), retries=3) == EXPECTED
            (notes / "killed").unlink()
            assert bootstrap.run(client, conformance.by_functions, str(notes), retries=3) == [list(range(RANKS))] * RANKS
        named(notes)
    finally:
        cluster.close(timeout=LIMIT)


@engine
def dask_hosts(notes: Path) -> None:
    # Two hosts with two workers each, and one for the scheduler, in namespaces of their own.
    bed = {**os.environ, "BED_STATE": str(notes / "bed"), "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "60s"}
    hosts = str(HERE.parents[3] / "scripts/beds/hosts.sh")
    python = [sys.executable, "-m"]
    address = "10.78.0.10"
    client = (
        "import sys, conformance; from distributed import Client; from fsgather.bootstraps import dask;"
        f"client = Client('{address}:8786'); client.wait_for_workers({RANKS}, timeout={LIMIT});"
        "assert len({worker['host'] for worker in client.scheduler_info(n_workers=-1)['workers'].values()}) == 2;"
        "assert dask.run(client, conformance.job) == conformance.EXPECTED;"
        "assert dask.run(client, conformance.job, sys.argv[1], retries=3) == conformance.EXPECTED"
    )
    subprocess.run([hosts, "up", "2"], env=bed, check=True, timeout=LIMIT)
    try:
        scheduler = [*python, "distributed.cli.dask_scheduler", "--host", address, "--port", "8786", "--no-dashboard"]
        started = [subprocess.Popen([hosts, "exec", "head", *scheduler], env=bed, stderr=subprocess.DEVNULL)]
        for node in (1, 2):
            worker = [*python, "distributed.cli.dask_worker", f"{address}:8786", "--host", f"10.78.0.{10 + node}"]
            worker += ["--nworkers", "2", "--nthreads", "1", "--no-dashboard", "--local-directory", str(notes)]
            started.append(subprocess.Popen([hosts, "exec", f"node{node}", *worker], env=bed, stderr=subprocess.DEVNULL))
        ran = [hosts, "exec", "head", sys.executable, "-c", client, str(notes)]
        subprocess.run(ran, cwd=HERE, env=bed, check=True, timeout=LIMIT)
        named(notes)
        # Who is killed leaves semaphores behind.
        for process in reversed(started):
            process.terminate()
            process.wait(LIMIT)
    finally:
        subprocess.run([hosts, "down"], env=bed, check=True, timeout=LIMIT)


@engine
def jax(notes: Path) -> None:
    program = (
        "import sys, jax; short = dict(heartbeat_timeout_seconds=10, shutdown_timeout_seconds=10);"
        "jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), **short);"
        # A rank that looks once more than the others meets them all the same.
        "import fsgather; sys.argv[3] == '1' and fsgather.bootstraps._choice.find();"
        "import conformance; print(conformance.job(*sys.argv[4:]))"
    )

    def start(*arguments: str) -> list[subprocess.Popen[str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        ranks = ([sys.executable, "-c", program, address, str(RANKS), str(rank), *arguments] for rank in range(RANKS))
        return [subprocess.Popen(rank, cwd=HERE, stdout=subprocess.PIPE, text=True) for rank in ranks]

    ended = [rank.communicate(timeout=LIMIT)[0].strip() for rank in start()]
    assert ended == EXPECTED, ended
    for rank in start(str(notes)):
        rank.communicate(timeout=LIMIT)
    named(notes)


NO_RANKS = """
from mpi4py import MPI
import fsgather
world = MPI.COMM_WORLD
parity = world.Split(world.rank % 2)
freed = world.Dup()
freed.Free()
between = parity.Create_intercomm(0, world, 1 - world.rank % 2)
for comm in (freed, MPI.COMM_NULL, between):
    try:
        fsgather.Communicator(comm=comm)
    except fsgather.ConfigError:
        print("refused")
with fsgather.Communicator(comm=parity) as of_parity:
    assert of_parity.all_gather(world.rank) == parity.allgather(world.rank)
"""
"""Communicators of MPI that introduce nobody, and one that does."""


LATE = """
import sys, time
from mpi4py import MPI
import fsgather
world = MPI.COMM_WORLD
late = int(sys.argv[1])
for attempt in range(100):
    if attempt == 0 and world.rank == late:
        # Until the others have tried in vain for the second time.
        for rank in range(world.size):
            if rank != late:
                world.recv(source=rank, tag=1)
    try:
        with fsgather.Communicator(comm=world, join_timeout=3) as met:
            assert met.all_gather(world.rank) == list(range(world.size))
        break
    except fsgather.Error:
        if attempt == 1 and world.rank != late:
            world.send(None, dest=late, tag=1)
else:
    raise AssertionError("they never met")
assert world.allreduce(1) == world.size
with fsgather.Communicator(comm=world) as again:
    assert again.all_gather(world.rank) == list(range(world.size))
print(f"rank {world.rank} has met")
"""
"""A rank that comes when the others have given up twice; all go on trying."""


RECEIVING = """
from mpi4py import MPI
import fsgather
world = MPI.COMM_WORLD
if world.rank == 0:
    # From whomever, whatever comes, as a program says that has one kind of messages.
    got = sorted(world.recv() for _ in range(1, world.size))
    assert got == list(range(1, world.size)), got
    world.send("go on", dest=2)
elif world.rank == 2:
    # Rank 1 asks rank 0 to introduce it before.
    world.recv(source=1, tag=7)
    world.send(world.rank, dest=0)
    assert world.recv() == "go on"
else:
    world.send(world.rank, dest=0)
if world.rank == 1:
    import threading, time
    from fsgather.bootstraps.mpi4py import _post_of
    def let_go():
        while not _post_of(world).values:
            time.sleep(0.01)
        world.send(None, dest=2, tag=7)
    threading.Thread(target=let_go).start()
with fsgather.Communicator(comm=world) as met:
    assert met.all_gather(world.rank) == list(range(world.size))
print(f"rank {world.rank} has met")
"""
"""A rank that receives from whomever while others already meet gets what the program has sent, and nothing else."""


@engine
def mpi4py(notes: Path) -> None:
    program = (
        "import sys; from mpi4py import MPI; import fsgather, conformance;"
        "world = fsgather.Communicator(comm=MPI.COMM_WORLD); conformance.gather(world, 1); world.close();"
        "print(conformance.job(*sys.argv[1:]))"
    )
    launcher = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(RANKS), sys.executable, "-c", program]
    variables = {**os.environ, "FSGATHER_RENDEZVOUS": "mpi:"}
    ended = subprocess.run(launcher, cwd=HERE, env=variables, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    # The launcher may join the lines of different ranks.
    assert sorted(re.findall(r"rank \d of \d", ended.stdout)) == EXPECTED, ended.stdout
    ended = subprocess.run([*launcher[:-1], NO_RANKS], cwd=HERE, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    assert ended.stdout.count("refused") == 3 * RANKS, ended.stdout
    for late in ("0", "2"):
        ended = subprocess.run([*launcher[:-1], LATE, late], cwd=HERE, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
        assert ended.stdout.count("has met") == RANKS, ended.stdout
    ended = subprocess.run([*launcher[:-1], RECEIVING], cwd=HERE, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    assert ended.stdout.count("has met") == RANKS, ended.stdout
    # MPI ends all ranks when one is killed; what they had heard by then is there, or nothing. Its own memory stays.
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    subprocess.run([*launcher, str(notes)], cwd=HERE, env=variables, timeout=LIMIT, check=False)
    for left in set(Path("/dev/shm").glob("mpich_shm_*")) - before:
        left.unlink()
    assert (notes / "killed").exists()


def main() -> int:
    """Runs the proofs; how many have failed."""
    wanted = sys.argv[1:]
    failed = 0
    for name in wanted:
        began = time.monotonic()
        if name.startswith(("ray", "dask", "spark")):
            os.environ.update(ON_SLURM)
        else:
            for variable in ON_SLURM:
                os.environ.pop(variable, None)
        # Sockets of Ray lie in there, and their paths have to be short.
        with tempfile.TemporaryDirectory(prefix="fsg") as notes:
            try:
                ENGINES[name](Path(notes))
            except Exception:
                traceback.print_exc()
                failed += 1
                print(f"FAILED {name}", flush=True)
            else:
                print(f"ok {name} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"summary: {len(wanted) - failed} right, {failed} failed", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
