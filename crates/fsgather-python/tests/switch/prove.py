"""Runs the jobs of this directory under a real torchrun with four ranks, and judges what came of them.

Needs a Python with torch, and fsgather in ``PYTHONPATH`` with the metadata of an installed package, so that torch
finds it: ``scripts/prove torch`` provides both. Names of proofs as arguments choose some of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, Iterator

HERE = Path(__file__).resolve().parent
RANKS = 4
NOTICE = "object collectives of this job go through fsgather"

PROOFS: dict[str, Callable[[Path], None]] = {}


def proof(function: Callable[[Path], None]) -> Callable[[Path], None]:
    """One thing that has to be true; gets a directory of its own."""
    PROOFS[function.__name__] = function
    return function


LIMIT = 600
"""Seconds after which a job hangs."""

PATIENT = {"FSGATHER_JOIN_TIMEOUT": "20m"}
"""A time-out that no job reaches, as that of the process group: an error that comes before LIMIT came for another reason, in time."""


def has_module(name: str) -> bool:
    """Whether this Python has it."""
    return importlib.util.find_spec(name) is not None


def start(job: str, output: Path, succeeds: bool = True, ranks: int = RANKS, **variables: str) -> str:
    """Runs a job on all ranks; what it has said."""
    output.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FSGATHER_", "MDETR_"))}
    environment = {**kept, "SWITCH_OUTPUT": str(output), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    environment.update(variables)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), str(HERE / job)]
    # Torch removes the launcher's children only when it is asked politely.
    with subprocess.Popen(command, env=environment, cwd=output, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            try:
                said, _ = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
            raise AssertionError(f"{job} did not end:\n{said[-4000:]}") from None
    assert (process.returncode == 0) == succeeds, f"{job} ended with {process.returncode}:\n{said[-4000:]}"
    return said


def launched(output: Path, job: str, case: str, code: int = 0, **variables: str) -> list[str]:
    """Runs a job without a launcher that would end all ranks with the first; what each has said. Rank 2 may end as it likes, others with ``code``."""
    output.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FSGATHER_", "MDETR_"))}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    kept.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS))
    kept.update(SWITCH_OUTPUT=str(output), SWITCH_CASE=case, OMP_NUM_THREADS="1", **variables)
    said = [open(output / f"said-{rank}", "w+") for rank in range(RANKS)]
    ranks = []
    for rank, file in enumerate(said):
        kept.update(RANK=str(rank), LOCAL_RANK=str(rank))
        command = [sys.executable, str(HERE / job)]
        ranks.append(subprocess.Popen(command, env=kept, cwd=output, stdout=file, stderr=subprocess.STDOUT))
    try:
        for rank in (0, 1, 3):
            assert ranks[rank].wait(timeout=LIMIT) == code, (rank, case, (output / f"said-{rank}").read_text()[-4000:])
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        for file in said:
            file.close()
    return [(output / f"said-{rank}").read_text() for rank in range(RANKS)]


def results(output: Path, ranks: int = RANKS) -> dict[str, str]:
    """What each rank has written."""
    found = {path.name: path.read_text() for path in sorted(output.glob("rank-*"))}
    assert len(found) == ranks, found.keys()
    return found


def same(job: str, directory: Path, patch: str, **variables: str) -> str:
    """Runs a job without and with a patch, compares, and returns what the latter said."""
    plain = start(job, directory / "plain", **variables)
    assert NOTICE not in plain, plain
    said = start(job, directory / "patched", FSGATHER_PATCH=patch, FSGATHER_DIR=str(directory), **variables)
    before, after = results(directory / "plain"), results(directory / "patched")
    for rank in before:
        for old, new in zip(before[rank].splitlines(), after[rank].splitlines()):
            assert old == new, f"{rank}:\n{old[:500]}\n{new[:500]}"
    assert before == after
    assert said.count(NOTICE) == 1, said
    return said


@proof
def objects_are_the_same(directory: Path) -> None:
    """The object functions, on the default group and others, with every kind of argument."""
    same("objects.py", directory, "torch")


@proof
def everything_comes_back_as_from_torch(directory: Path) -> None:
    """Every kind of object, under every state of a process, and down to memory that is shared."""
    start("alike.py", directory / "out", ranks=2, FSGATHER_PATCH="torch", FSGATHER_DIR=str(directory))
    for rank, found in results(directory / "out", ranks=2).items():
        comparisons, wrong = re.findall(r"\d+", found)[:2]
        assert int(comparisons) > 4000 and wrong == "0", f"{rank}: {found}"


def mmengine_evaluates(directory: Path, patch: str) -> None:
    if not has_module("mmengine"):
        raise NotImplementedError("mmengine is not installed")
    same("evaluation.py", directory, patch)
    assert (directory / "plain/.dist_test").exists()
    assert not (directory / "patched/.dist_test").exists()


@proof
def mmengine_evaluates_the_same(directory: Path) -> None:
    """Unmodified MMEngine, both ways of collecting; its own files are not made."""
    mmengine_evaluates(directory, "mmengine,torch")


@proof
def mmengine_alone_evaluates_the_same(directory: Path) -> None:
    """The same where torch's own functions stay."""
    mmengine_evaluates(directory, "mmengine")


@proof
def accelerate_gathers_the_same(directory: Path) -> None:
    """Unmodified Accelerate, objects and tensors."""
    if not has_module("accelerate"):
        raise NotImplementedError("accelerate is not installed")
    same("accelerated.py", directory, "torch")


@proof
def torchmetrics_stays_as_it_is(directory: Path) -> None:
    """Unmodified TorchMetrics, beside objects that go our way."""
    if not has_module("torchmetrics"):
        raise NotImplementedError("torchmetrics is not installed")
    same("metrics.py", directory, "torch")


@proof
def reference_functions_return_the_same(directory: Path) -> None:
    """Functions of the SAM, MDETR and DPR code and single ones, by the path that they take and with results on rank 0 alone."""
    reference_functions(directory, "", "MDETR_FILESYS_REDUCE_RANK_0_ONLY")


@proof
def reference_functions_by_other_paths_return_the_same(directory: Path) -> None:
    """Those by the paths that their variables name."""
    reference_functions(directory, "MDETR_CPU_REDUCE", "MDETR_FILESYS_REDUCE")


def reference_functions(directory: Path, *variables_set: str) -> None:
    single = [f"own_gathers:{name}" for name in ("all_gather", "gather", "all_gather_flat", "all_gather_tensors", "nothing")]
    for variable in variables_set:
        place = directory / (variable or "none")
        place.mkdir()
        variables = {variable: "1"} if variable else {}
        said = same("reference_jobs.py", place, ",".join(["sam", "dpr", *single]), **variables)
        for rank in range(RANKS):
            ran = (place / f"patched/calls-{rank}").read_text().splitlines()
            # Once on each process group, if they are gathers.
            own = {"all_gather": 1 + (rank in (1, 2)), "all_gather_flat": 3, "all_gather_tensors": 1, "gather": 1 + (rank in (1, 2))}
            assert f"own_gathers: {own}" in ran, ran
            assert "sam3.train.utils.distributed: {'gather_to_rank_0_via_filesys': 1}" in ran[1:2], ran
            assert all(line.endswith("{}") for line in (ran[0], *ran[2:4])), ran
        for words in ("(data, directory, retries)", "all_gather_tensors takes (tensor)", "no own_gathers:nothing", "own_gathers:all_gather_flat is left as"):
            assert said.count(words) == 1, (words, said)


@proof
def digits_are_recognised_the_same(directory: Path) -> None:
    """The evaluation that newcomers are shown; it compares with a single process itself."""
    job = str(HERE.parents[1] / "examples/evaluate_digits.py")
    (directory / "plain").mkdir()
    accuracy = "accuracy of 4 ranks: "
    plain = start(job, directory / "plain")
    said = start(job, directory / "plain", FSGATHER_PATCH="torch", FSGATHER_DIR=str(directory))
    assert said.count(NOTICE) == 1 and said.count(accuracy) == 1, said
    assert said[said.index(accuracy) :].splitlines()[0] == plain[plain.index(accuracy) :].splitlines()[0], said


@proof
def failures_are_told(directory: Path) -> None:
    """An object that cannot be pickled, and a rank that ends by an exception."""
    start("failures.py", directory / "out", succeeds=False, FSGATHER_PATCH="torch", **PATIENT)
    # They have seen the error before the launcher ended them.
    for rank in (0, 2, 3):
        assert (directory / f"out/told-{rank}").exists(), rank


@proof
def a_rank_that_ends_is_named(directory: Path) -> None:
    """However it ends, before the first call, at once."""
    ends(directory, "at once")


@proof
def a_rank_that_ends_alone_on_its_host_is_named(directory: Path) -> None:
    """The same where nobody can look whether its process is still there."""
    ends(directory, "at once, alone")


@proof
def a_rank_that_ends_later_is_named(directory: Path) -> None:
    """When the ranks have met, or between two calls."""
    ends(directory, "later", "between")


def ends(directory: Path, *moments: str) -> None:
    reasons = {
        "killed": r"was lost \(its (process has ended|connection closed).*\) while",
        "raises": r"failed \(MemoryError: out of luck\) while",
        "destroys": r"failed \(MemoryError: out of luck\) while",
        "exits": r"had already left( after| before|$)",
    }
    for when in moments:
        for how, reason in reasons.items():
            output = directory / f"{when}-{how}".replace(", ", "-").replace(" ", "-")
            launched(output, "ends.py", f"{when}, {how}", FSGATHER_PATCH="torch", FSGATHER_DIR=str(directory), **PATIENT)
            for name, text in results(output, ranks=RANKS - 1).items():
                kind, said, took = json.loads(text)
                assert kind == "PeerFailedError" and re.match(rf"rank 2 on \S+ \(pid \d+\) {reason}", said), (name, said)
                print(f"     {when}, {how}: {name} after {took:.1f} s", flush=True)


@proof
def a_rank_that_is_missed_in_a_collective_of_tensors_is_named(directory: Path) -> None:
    """Torch's own error names no rank; each rank that ends by it says which has gone, whatever the program makes of that error."""
    for how, reason in (("killed", "was lost"), ("raises", "failed (MemoryError: out of luck")):
        for end in ("raises", "destroys", "aborts", "exits", "destroys later"):
            output = directory / f"{how}-{end}".replace(" ", "-")
            case = f"{how}, {end}"
            said = launched(output, "tensors.py", case, code=1, FSGATHER_PATCH="torch", FSGATHER_DIR=str(directory))
            for rank in (0, 1, 3):
                (line,) = [line for line in said[rank].splitlines() if line.endswith("which fsgather does not carry")]
                assert line.startswith("fsgather: rank 2 on ") and reason in line, (case, line)
                assert f"; rank {rank} was in torch's own all_reduce at tensors.py:" in line, line


@proof
def a_job_without_object_functions_notices_nothing(directory: Path) -> None:
    """Its ranks end in any order and say nothing; that it was switched delays no end and leaves nothing behind."""
    for order in ("first to last", "last to first", "at once"):
        for destroys in ("destroying", "not destroying"):
            output = directory / f"{order}-{destroys}".replace(" ", "-")
            case = f"{order}, {destroys}"
            # In an order each rank waits for the end of the one before it, which so ends long before its time-out.
            said = launched(output, "unused.py", case, FSGATHER_PATCH="torch", FSGATHER_DIR=str(directory), **PATIENT)
            assert said == [""] * RANKS, said
            assert not (directory / "all_gather_via_filesys").exists()
            results(output)


@proof
def a_module_that_the_job_never_imports_is_named_at_its_end(directory: Path) -> None:
    """Where it was asked for by its name, whatever names it; once, and nothing where all that there is was asked for."""
    never = {
        "sam": "training.utils.distributed or sam3.train.utils.distributed or util.dist",
        "torch,dpr": "dpr.utils.dist_utils",
        "torch,mycod.dist:gather": "mycod.dist",
        "all": None,
    }
    for place, (patch, modules) in enumerate(never.items()):
        said = launched(directory / str(place), "unused.py", "at once, destroying", FSGATHER_PATCH=patch, FSGATHER_DIR=str(directory))
        told = "" if modules is None else f"fsgather: FSGATHER_PATCH: this job has never imported {modules}, so nothing of that was replaced\n"
        assert said == [told, "", "", ""], (patch, said)


@proof
def groups_are_channels_of_a_world(directory: Path) -> None:
    """They cost nothing each, fail by themselves, and do not depend on ranks that are not in them."""
    said = launched(directory / "out", "channels.py", "", FSGATHER_PATCH="torch", FSGATHER_DIR=str(directory))
    assert "".join(said).count(NOTICE) == 1, said
    for name, text in results(directory / "out").items():
        assert text == "went on" or name in ("rank-0", "rank-2"), (name, text)


@proof
def ranks_of_a_group_are_called_by_their_numbers_in_the_job(directory: Path) -> None:
    """Ranks 1 and 3 are a group, and would be 0 and 1 in a world of their own: in errors, what these have, stacks and warnings."""
    who = {1: r"rank 1 on \S+ \(pid \d+", 3: r"rank 3 on \S+ \(pid \d+"}
    group = "in the group of ranks 1 3"
    cases = {
        "desync, second": rf"DesyncError: .*: {who[1]}\) called all_gather at .* {group}, {who[3]}\) called broadcast from rank 3 at .* {group}",
        "roots, second": rf"DesyncError: .*: {who[1]}\) called gather to rank 1 at .* {group}, {who[3]}\) called gather to rank 3 at .* {group}",
        "late, second": rf"TimeoutError: timed out after 4 s .* {group} at .*: waiting for {who[3]}, .*\n  rank 3: ",
        "first call, first": rf"TimeoutError: timed out after 4 s .* {group} at .*: waiting for {who[1]}, .*\n  rank 1: ",
        "raises, second": rf"PeerFailedError: {who[3]}\) failed \(MemoryError: out of luck\)",
        "warned, first": rf"TimeoutError: timed out after 35 s .* {group} at .*: waiting for {who[1]}, .*\n  rank 1: ",
        "warned first, first": rf"TimeoutError: timed out after 35 s .* first call {group} at subgroups.py:.*: waiting for {who[1]}, .*\n  rank 1: ",
    }
    facts = {"desync": {"ranks": [1, 3], "stacks": [1, 3]}, "roots": {"ranks": [1, 3], "stacks": [1, 3]}, "raises": {"rank": 3, "stacks": []}}
    facts |= {"late": {"missing": [3], "timeout": 4.0, "stacks": [3]}, "first call": {"missing": [1], "timeout": 4.0, "stacks": [1]}}
    facts["warned"] = facts["warned first"] = {"missing": [1], "timeout": 35.0, "stacks": [1]}
    # The time-out of the process group counts.
    how = {"FSGATHER_PATCH": "torch", "FSGATHER_DIR": str(directory), "FSGATHER_TIMEOUT": "20m"}
    for case, wanted in cases.items():
        output, name = directory / case.replace(", ", "-").replace(" ", "-"), case.partition(",")[0]
        said = start("subgroups.py", output, succeeds=name != "raises", SWITCH_CASE=case, **how)
        told = [json.loads(path.read_text()) for path in sorted(output.glob("rank-*"))]
        assert len(told) == 1 + (name != "raises"), told
        for text, has in told:
            assert re.match(wanted, text, re.S) and has == facts[name], (case, text, has)
        if name.startswith("warned"):
            speaker, times = (3, 2) if name == "warned" else (0, 1)
            assert len(re.findall("^[0-3] is told: .*still wait", said, re.M)) == times, said
            told_of = rf"^{speaker} is told: .* {group} at .* \(1 of 2 ranks is in\) is still waiting for {who[1]}, .*\n  rank 1: "
            assert len(re.findall(told_of, said, re.M)) == 1, said


@proof
def groups_over_several_jobs_are_their_own(directory: Path) -> None:
    """Two jobs of two ranks, joined over a store of their own: the numbers of ranks there are not those of the jobs."""
    variables = {**os.environ, "FSGATHER_PATCH": "torch", "FSGATHER_DIR": str(directory), "OMP_NUM_THREADS": "1"}
    for case in ("all", "one of each"):
        command = [sys.executable, str(HERE / "joined.py"), case]
        ended = subprocess.run(command, env=variables, cwd=directory, capture_output=True, text=True, timeout=LIMIT)
        assert ended.returncode == 0, ended


@proof
def a_rank_of_torch_multiprocessing_that_raises_is_told_with_its_reason(directory: Path) -> None:
    """Torch catches the exception there, so that Python's own hook never hears of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = {**os.environ, "FSGATHER_PATCH": "torch", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, str(HERE / "spawned.py"), port], env=variables, cwd=directory, capture_output=True, text=True, timeout=LIMIT
    )
    told = sorted(re.findall(r"^(\d): PeerFailedError: rank 1 on \S+ \(pid \d+\) failed \(KeyError: 'no such score'\)", ended.stdout, re.M))
    assert told == ["0", "2", "3"], ended


@proof
def a_late_rank_is_told_what_the_others_were(directory: Path) -> None:
    """Also when those who waited have ended since, one of them with the store; and all may call again if they have not."""
    for case in ("here", "gone"):
        launched(directory / case, "late.py", case, FSGATHER_PATCH="torch", FSGATHER_DIR=str(directory))
        told = results(directory / case)
        assert len({told[f"rank-{rank}"] for rank in (0, 1, 3)}) == 1, told
        assert re.match(r"TimeoutError: timed out after 4 s .* waiting for rank 2 on \S+ \(pid \d+, last known computing", told["rank-0"]), told
        assert "init_process_group" in told["rank-0"], told
        assert re.search(r"\n  rank 2: late.py:\d+ in main \((running|waiting, in clock_nanosleep)\)", told["rank-0"]), told
        if case == "here":
            assert told["rank-2"] == told["rank-0"], told
        else:
            # Of whoever is missed first.
            assert re.match(r"(TimeoutError|PeerFailedError): .*rank \d on \S+ \(pid", told["rank-2"]), told


@proof
def mistakes_are_told_at_import(directory: Path) -> None:
    """Once on each host, on standard error, and never where that would break the import."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("FSGATHER_")}
    code = "import subprocess, sys, torch; subprocess.run([sys.executable, '-c', 'import torch'], check=True)"
    for local_rank, times in (("0", 1), ("1", 0)):
        variables = {**base, "FSGATHER_PATCH": "toch", "LOCAL_RANK": local_rank}
        ended = subprocess.run([sys.executable, "-c", code], env=variables, cwd=directory, capture_output=True, text=True)
        assert ended.returncode == 0 and ended.stdout == "", ended
        assert ended.stderr.count("fsgather: FSGATHER_PATCH=toch: there is no 'toch' (did you mean torch?)") == times, ended
        assert len(ended.stderr.splitlines()) == times, ended.stderr
    # What torch calls at its end, without torch, which takes seconds to import.
    hook = "import importlib.metadata as m\nfor p in m.entry_points(group='torch.backends'):\n    if p.name == 'fsgather': p.load()()"
    names = {"FSGATHER_PACTH": code, "FSGATER_PATCH": hook, "fsgather_patch": hook, "FSGATHER_PATH": hook}
    for name, program in names.items():
        variables = {**base, name: "torch", "FSGATHER_DIR": "/nowhere", "FSGATHER_PORT": "0"}
        ended = subprocess.run([sys.executable, "-c", program], env=variables, cwd=directory, capture_output=True, text=True)
        told = f"fsgather: {name} is set, and means nothing: did you mean FSGATHER_PATCH? Nothing is replaced\n"
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", told), ended
    # Where it cannot be loaded at all.
    broken = directory / "broken"
    (broken / "fsgather").mkdir(parents=True)
    (broken / "fsgather/__init__.py").write_text("raise ImportError('built for another Python')\n")
    variables = {**base, "FSGATHER_PATCH": "torch", "PYTHONPATH": f"{broken}{os.pathsep}{os.environ['PYTHONPATH']}"}
    ended = subprocess.run([sys.executable, "-c", code], env=variables, cwd=directory, capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stderr.count("cannot be loaded on this rank: built for another Python") == 1, ended


@proof
def a_rank_without_the_patch_is_named(directory: Path) -> None:
    """And one that is only late is not."""
    for odd in ("2", "0"):
        case = {"SWITCH_CASE": "missing", "SWITCH_ODD": odd}
        said = start("without_patch.py", directory / odd, FSGATHER_PATCH="torch", **case, **PATIENT)
        assert said.count(f"nothing is replaced on rank {odd}, as far as is known") == 1, said
        for rank, told in results(directory / odd).items():
            if rank == f"rank-{odd}":
                assert told == "alone", told
            else:
                assert re.match(rf"rank {odd} did not say hello within .* is FSGATHER_PATCH set to the same", told), (rank, told)
    said = start("without_patch.py", directory / "late", FSGATHER_PATCH="torch", SWITCH_CASE="late")
    assert set(results(directory / "late").values()) == {"in time"}
    assert "nothing is replaced" not in said, said


@proof
def the_launcher_names_the_rank_that_failed(directory: Path) -> None:
    """And not one of those that have heard of it and were gone first. They say one sentence each."""
    how = {"succeeds": False, "FSGATHER_PATCH": "torch", "FSGATHER_DIR": str(directory)}
    said = start("blamed.py", directory / "exits", SWITCH_CASE="exits", **how)
    others, _, first = said.rpartition("Root Cause")
    assert re.search(r"rank +: 2 \(", first) and "ended without an exception" in first, said
    assert re.search(r"PeerFailedError: rank 2 on \S+ \(pid \d+\) had already left.*; its last call was all_gather #1 at ", others), said
    said = start("blamed.py", directory / "raises", SWITCH_CASE="raises", **how)
    others, _, first = said.rpartition("Root Cause")
    assert re.search(r"rank +: 2 \(", first) and "in main\n" in first and "MemoryError: out of luck" in first, said
    assert others.count("traceback : fsgather.PeerFailedError: rank 2 on ") == RANKS - 1, said
    assert "raise without_our_frames(error)" in others and "_switch/meeting.py" not in said, said
    said = start("blamed.py", directory / "cannot", SWITCH_CASE="cannot be pickled", **how)
    others, _, first = said.rpartition("Root Cause")
    assert re.search(r"rank +: 2 \(", first) and "traceback : ValueError: not me; rank 2 on " in first, said
    said = start("blamed.py", directory / "over", SWITCH_CASE="gets over it", **how)
    others, _, first = said.rpartition("Root Cause")
    assert re.search(r"rank +: 1 \(", first) and "MemoryError: out of luck" in first and "not me" not in said, said


@proof
def engine_with_its_own_world_is_noticed(directory: Path) -> None:
    start("engine_world.py", directory / "first", SWITCH_CASE="at_once")
    for rank, said in results(directory / "first").items():
        assert f"rank 0 of 1, but this process is {rank.replace('-', ' ')} of 4" in said, said
    start("engine_world.py", directory / "later", SWITCH_CASE="after_a_call")
    assert results(directory / "later") == {f"rank-{r}": f"['0', '1', '2', '3']\n['{r}']" for r in range(RANKS)}
    for job, patch in (("renumbered.py", ""), ("late_refusal.py", ""), ("late_refusal.py", "torch")):
        start(job, directory / f"{job}-{patch}", FSGATHER_PATCH=patch, FSGATHER_DIR=str(directory), **PATIENT)


@proof
def groups_threads_and_forks_do_not_mix(directory: Path) -> None:
    """Several groups at the same time, made anew, and children with a job of their own."""
    said = start("concurrently.py", directory / "out", FSGATHER_PATCH="torch")
    assert said.count(NOTICE) == 1 + RANKS, said


@proof
def the_backend_works(directory: Path) -> None:
    """By its name alone, registered by hand, and with ranks that meet in a directory."""
    import torch

    by_name = "torch.distributed.backends" in Path(torch.distributed.distributed_c10d.__file__).read_text()
    for case in ("found by name", "registered", "directory"):
        if case == "found by name" and not by_name:
            continue
        said = start("backend.py", directory / case.replace(" ", "-"), SWITCH_CASE=case)
        assert said.count(f"used {case}") == RANKS * (2 if case == "directory" else 1), said
    start("backend.py", directory / "launcher", SWITCH_CASE="directory, by the launcher", FSGATHER_PATCH="torch")


@proof
def torch_passes_its_own_tests(directory: Path) -> None:
    """Its tests of the object functions."""
    start("torch_own.py", directory / "out", FSGATHER_PATCH="torch+internal")
    for said in results(directory / "out").values():
        assert len(re.findall(r": passed, [1-9]\d* calls", said)) == 6, said


@proof
def older_torch_is_switched_from_outside(directory: Path) -> None:
    """By a ``sitecustomize`` that comes first and runs the next one, with a torch that does not look for us."""
    old = os.environ.get("FSGATHER_OLD_PYTHON")
    if not old:
        raise NotImplementedError("FSGATHER_OLD_PYTHON names no Python with a torch before 2.5")
    from fsgather import _switch

    mine = directory / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import os\nos.environ['MINE_RAN'] = '1'\n")
    path = os.pathsep.join([_switch.site_directory(), str(mine), os.environ["PYTHONPATH"]])
    for case in ("plain", "patched"):
        output = directory / case
        output.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        base = {name: value for name, value in os.environ.items() if not name.startswith("FSGATHER_")}
        base.update(SWITCH_OUTPUT=str(output), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(RANKS))
        base.update(LOCAL_WORLD_SIZE=str(RANKS), PYTHONPATH=path, OMP_NUM_THREADS="1")
        if case == "patched":
            base["FSGATHER_PATCH"] = "torch"
        # Its torchrun does not run with every Python that it is packaged for.
        ranks = []
        for rank in range(RANKS):
            base.update(RANK=str(rank), LOCAL_RANK=str(rank))
            command = [old, str(HERE / "objects.py")]
            ranks.append(subprocess.Popen(command, env=base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        try:
            said = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        assert all(rank.returncode == 0 for rank in ranks), said
        assert "".join(said).count(NOTICE) == (case == "patched"), said
    assert results(directory / "plain") == results(directory / "patched")
    ran = subprocess.check_output([old, "-c", "import os; print(os.environ['MINE_RAN'])"], env=base, text=True)
    assert ran == "1\n", ran


@proof
def workers_are_silent(directory: Path) -> None:
    """Processes that load data have the hook, say nothing and join nothing; wrong words are said by all ranks, once."""
    said = start("workers.py", directory / "out", FSGATHER_PATCH="torch")
    assert said.count(NOTICE) == 1, said
    assert "fsgather" not in said.replace(f"fsgather: {NOTICE}", ""), said
    said = start("workers.py", directory / "wrong", succeeds=False, FSGATHER_PATCH="torch,mmengin")
    assert "there is no 'mmengin' (did you mean mmengine?)" in said, said
    # By the launcher, whose children need not say it again.
    assert said.startswith("fsgather: FSGATHER_PATCH=torch,mmengin: ") and said.count("\nfsgather: FSGATHER_PATCH") == 0, said


@proof
def it_costs_nothing_when_unset(directory: Path) -> None:
    """The hook: loading and calling it imports one small module besides those that were there. What it takes is printed."""
    code = (
        "import time, os, sys, importlib.metadata as m\n"
        "points = [p for p in m.entry_points(group='torch.backends') if p.name == 'fsgather']\n"
        "before = set(sys.modules)\n"
        "start = time.process_time()\n"
        "for point in points: point.load()()\n"
        "took = time.process_time() - start\n"
        "loaded = sorted(set(sys.modules) - before)\n"
        "assert len(points) == 1 and not set(loaded) - {'__future__', 'fsgather_autoload'}, loaded\n"
        "print(took)\n"
    )
    if sys.version_info < (3, 10):
        raise NotImplementedError("this Python selects entry points differently")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FSGATHER_")}
    took = [float(subprocess.check_output([sys.executable, "-c", code], env=kept, cwd=directory)) for _ in range(21)]
    print(f"     hook without FSGATHER_PATCH: median {statistics.median(took) * 1e6:.0f} us, most {max(took) * 1e6:.0f} us")


@proof
def tensors_are_carried(directory: Path) -> None:
    """The tests of the package that need torch and no launcher."""
    if not (has_module("pytest") and has_module("hypothesis")):
        raise NotImplementedError("pytest or hypothesis is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={directory / 'tests'}", str(HERE.parent / "beds")]
    ended = subprocess.run(command, cwd=HERE.parent.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    assert ended.returncode == 0, ended.stdout[-4000:]


def run(names: list[str]) -> Iterator[bool]:
    """Whether each of them holds."""
    chosen = [name for name in names if not name.startswith("-")]
    for name, function in PROOFS.items():
        if (chosen and name not in chosen) or f"-{name}" in names:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fsgather-switch-") as directory:
            try:
                function(Path(directory))
            except NotImplementedError as reason:
                print(f"SKIPPED {name}: {reason}", flush=True)
                continue
            except AssertionError as error:
                print(f"FAILED {name}: {error}", flush=True)
                yield False
                continue
        print(f"ok {name} ({time.monotonic() - started:.0f} s)", flush=True)
        yield True


def main() -> int:
    """Runs the proofs, says how it went."""
    outcomes = list(run(sys.argv[1:]))
    print(f"summary: {outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if outcomes and all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
