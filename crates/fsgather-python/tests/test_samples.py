"""Samples: results by name, on disk as they come, gathered by any number of ranks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsgather
from conftest import World

EVALUATION = """
    samples = fsgather.samples(os.environ["FSGATHER_DIR"] + "/run", expected=60, config={"model": "tiny"})
    tell(len(samples.missing))
    for sample in samples.share:
        samples.add(sample, {"answer": f"text {sample}", "score": sample / 7})
"""


def expected(sample: int) -> dict[str, Any]:
    return {"answer": f"text {sample}", "score": sample / 7}


def test_killed_evaluation_is_completed_by_other_ranks(world: World, tmp_path: Path) -> None:
    world.start(
        4,
        EVALUATION
        + """
        if len(samples.share) - 5 == samples.share.index(sample):
            samples.flush()
            tell("flushed")
            wait_for_go("never")
    """,
    )
    for rank in range(4):
        assert [world.hear(rank), world.hear(rank)] == [60, "flushed"]
    world.kill()
    world.ends()
    world.ranks.clear()
    told = world.start(
        3,
        EVALUATION
        + """
    results = samples.gather(out=os.environ["FSGATHER_DIR"] + "/results.jsonl")
    tell(results and list(results.items()))
    """,
    ).told()
    assert [first for first, _ in told] == [16] * 3
    whole = [[sample, expected(sample)] for sample in range(60)]
    assert [results for _, results in told] == [whole, None, None]
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"id": sample, "result": result} for sample, result in whole]
    assert list(fsgather.read_samples(tmp_path / "run").items()) == [(sample, result) for sample, result in whole]


@pytest.mark.parametrize("end", ["exception", "sys.exit(3)", "os.kill(os.getpid(), 15)"])
def test_results_are_on_disk_however_a_process_ends(tmp_path: Path, end: str) -> None:
    program = f"""
import os, sys, time, fsgather
samples = fsgather.samples({str(tmp_path)!r}, expected=10)
with samples:
    samples.add([1, 2, 3], ["a", "b", "c"])
    if {end!r} == "os.kill(os.getpid(), 15)":
        samples.flush()
    {"raise ValueError" if end == "exception" else end}
"""
    alone = {**os.environ, "FSGATHER_WORLD_SIZE": "1"}
    ended = subprocess.run([sys.executable, "-c", program], env=alone, capture_output=True, text=True)
    assert ended.returncode == {"exception": 1, "sys.exit(3)": 3}.get(end, -signal.SIGTERM), ended.stderr
    results = fsgather.read_samples(tmp_path)
    assert dict(results.items()) == {1: "a", 2: "b", 3: "c"}
    assert results.missing == [0, 4, 5, 6, 7, 8, 9]


def test_attempts_that_open_together_know_of_each_other(tmp_path: Path) -> None:
    program = f"""
import sys, fsgather
print("ready", flush=True)
sys.stdin.readline()
samples = fsgather.samples({str(tmp_path / "run")!r}, expected=2)
print(samples.attempt, flush=True)
sys.stdin.readline()
samples.add(samples.attempt - 1, "one")
"""
    alone = {**os.environ, "FSGATHER_WORLD_SIZE": "1"}
    pipe = subprocess.PIPE
    ranks = [subprocess.Popen([sys.executable, "-c", program], env=alone, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    answers = []
    for _ in ["ready", "attempt"]:
        answers.append({rank.stdout.readline() for rank in ranks if rank.stdout})
        for rank in ranks:
            assert rank.stdin
            rank.stdin.write("go\n")
            rank.stdin.flush()
    warnings = "".join(rank.communicate(timeout=60)[1] for rank in ranks)
    assert answers == [{"ready\n"}, {"1\n", "2\n"}], warnings
    assert re.search(r"attempt [12] also adds samples to .*/run: process [0-9]+ on .*, last .* ago; both count", warnings), warnings
    assert fsgather.read_samples(tmp_path / "run").missing == []


def test_results_are_written_at_the_end_of_the_interpreter(tmp_path: Path) -> None:
    program = f"import fsgather\nsamples = fsgather.samples({str(tmp_path)!r}, expected=3)\nsamples.add(range(3), 'abc'.split() * 3)"
    alone = {**os.environ, "FSGATHER_WORLD_SIZE": "1"}
    subprocess.run([sys.executable, "-c", program], env=alone, check=True)
    assert fsgather.read_samples(tmp_path).missing == []


def test_results_that_are_lost_at_the_end_of_the_interpreter_are_counted(tmp_path: Path) -> None:
    program = f"""
import shutil, fsgather
samples = fsgather.samples({str(tmp_path / "run")!r}, expected=3)
samples.add(0, "kept")
samples.flush()
shutil.rmtree({str(tmp_path / "run")!r})
samples.add(1, "lost")
"""
    alone = {**os.environ, "FSGATHER_WORLD_SIZE": "1"}
    ended = subprocess.run([sys.executable, "-c", program], env=alone, capture_output=True, text=True)
    # The guide says that the exit code cannot tell.
    assert ended.returncode == 0 and re.search("to the end, [12] of 2 results are on disk: .*removed or replaced", ended.stderr), ended.stderr


def test_limit_of_file_sizes_costs_only_results_that_are_larger(tmp_path: Path) -> None:
    program = f"""
import resource, fsgather
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
samples = fsgather.samples({str(tmp_path)!r}, expected=51)
for number in range(50):
    samples.add(number, bytes(100_000))
try:
    samples.add(50, bytes(2_000_000))
except fsgather.StorageError as error:
    print(error)
samples.add(50, "short")
samples.flush()
print(len(samples.gather()))
"""
    alone = {**os.environ, "FSGATHER_WORLD_SIZE": "1"}
    ended = subprocess.run([sys.executable, "-c", program], env=alone, capture_output=True, text=True, check=True)
    refused, count = ended.stdout.splitlines()
    assert "sample 50 takes 1.9 MiB" in refused and "`ulimit -f`" in refused and "of the 50 results" in refused, refused
    assert (count, ended.stderr) == ("51", "")
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 1 << 20


def test_ids_are_integers_texts_and_tuples_of_these(tmp_path: Path) -> None:
    ids = [7, "7", ("mmlu", 3, ("x",)), -(2**127), 2**127 - 1, "é\n"]
    with fsgather.samples(tmp_path, expected=ids) as samples:
        samples.add(np.int64(7), 0)
        for number, sample in enumerate(ids[1:], 1):
            samples.add(sample, number)
        results = samples.gather()
    assert results is not None
    assert list(results.items()) == [(sample, number) for number, sample in enumerate(ids)]
    assert results[np.int32(7)] == 0 and np.array(7) in results and 8 not in results and 7.0 not in results
    with pytest.raises(KeyError):
        results[8]


@pytest.mark.parametrize("sample", [True, 1.5, None, b"x", 2**127, [("a", True)], "\ud800", np.bool_(True), {1: 2}])
def test_other_ids_are_refused_with_the_reason(tmp_path: Path, sample: Any) -> None:
    samples = fsgather.samples(tmp_path)
    with pytest.raises(fsgather.ConfigError, match="an int|one for each|give a list"):
        samples.add(sample, 1)
    with pytest.raises(fsgather.ConfigError):
        fsgather.samples(tmp_path, expected=[sample])
    samples.close()
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_ids_take_arrays_of_results(tmp_path: Path) -> None:
    samples = fsgather.samples(tmp_path, expected=4)
    samples.add(np.array([2, 3]), np.array([[1.0, 2.0], [3.0, np.nan]]))
    samples.add((i for i in [0, 1]), [{"boxes": np.zeros((2, 4)), "labels": ["a", "b"]}, None])
    results = samples.gather()
    assert results is not None and results[1] is None
    np.testing.assert_array_equal(results[3], [3.0, np.nan])
    assert results[0]["boxes"].shape == (2, 4)


def test_tuple_of_expected_ids_is_a_batch_unless_it_is_an_id(tmp_path: Path) -> None:
    ids = ["a", "b", ("a", "b"), ("gsm8k", np.array(3)), 4]
    samples = fsgather.samples(tmp_path, expected=ids)
    samples.add(("a", "b"), [1, 2])
    samples.add(("a", "b", ("gsm8k", 3)), [3, 4, 5])
    samples.add(("b", np.int64(4)), np.array([4, 6]))
    with pytest.raises(fsgather.ConfigError, match="2 ids came with 3 results"):
        samples.add(("a", 4), [1, 2, 3])
    with pytest.raises(fsgather.ConfigError, match="an int"):
        samples.add(("a", ["b"]), [1, 2])
    results = samples.gather()
    assert results is not None and results.unexpected == 0
    assert list(results.items()) == [("a", 3), ("b", 4), (("a", "b"), [1, 2]), (("gsm8k", 3), 5), (4, 6)]


def test_tuple_is_one_id_if_all_ids_count(tmp_path: Path) -> None:
    samples = fsgather.samples(tmp_path)
    samples.add(("a", "b"), [1, 2])
    assert dict(samples.gather() or {}) == {("a", "b"): [1, 2]}


@pytest.mark.parametrize("results", [[1], [1, 2, 3], "ab", {0: 1, 1: 2}, 7, np.array(5)])
def test_ids_and_results_of_other_lengths_are_refused(tmp_path: Path, results: Any) -> None:
    samples = fsgather.samples(tmp_path)
    with pytest.raises(fsgather.ConfigError, match="2 ids"):
        samples.add([0, 1], results)


def test_results_that_are_not_plain_data_name_the_place_inside(tmp_path: Path) -> None:
    samples = fsgather.samples(tmp_path)
    with pytest.raises(fsgather.ConfigError, match=r"sample 7\['a'\]\[1\] is of type object, which is not plain data.*encode="):
        samples.add(7, {"a": [1, object()]})


def test_results_and_ids_that_are_nested_too_deep_are_refused(tmp_path: Path) -> None:
    result: Any = 1
    sample: Any = "x"
    for _ in range(1000):
        result, sample = [result], (sample,)
    samples = fsgather.samples(tmp_path)
    with pytest.raises(fsgather.ConfigError, match="the result of sample 'deep' has a list inside more than 200 containers".replace("'", '"')):
        samples.add("deep", result)
    with pytest.raises(fsgather.ConfigError, match="tuples inside each other, more than 32"):
        samples.add(sample, 1)


def test_directory_may_be_a_link_to_one(tmp_path: Path) -> None:
    link = tmp_path / "link"
    (tmp_path / "run").mkdir()
    link.symlink_to(tmp_path / "run")
    with fsgather.samples(link, expected=2) as samples:
        samples.add(1, "one")
    assert fsgather.read_samples(link)[1] == "one"
    assert fsgather.samples(link, expected=2).missing == [0]


def test_calls_of_samples_have_no_type_of_rust(world: World) -> None:
    told = world.start(
        2,
        """
        samples = fsgather.samples(os.environ["FSGATHER_DIR"] + "/run", expected=0)
        try:
            samples.gather() if rank else fsgather.barrier()
        except fsgather.DesyncError as error:
            tell(str(error))
        """,
    ).told()
    assert all('all_gather "gathering samples"' in text and "::" not in text for (text,) in told), told


def test_closed_samples_of_the_same_job_are_no_other_attempt(world: World) -> None:
    ended = world.start(
        2,
        """
        for _ in range(2):
            with fsgather.samples(os.environ["FSGATHER_DIR"] + "/run", expected=2) as samples:
                samples.add(rank, 1)
            fsgather.barrier()
        """,
    ).ends()
    assert [rank.code for rank in ended] == [0, 0] and not any("also adds" in rank.err for rank in ended), ended


def test_results_that_memory_has_no_room_for_are_an_error(tmp_path: Path) -> None:
    program = f"""
import resource, fsgather
samples = fsgather.samples({str(tmp_path)!r}, expected=3)
samples.add(0, "small")
result = bytes(3 << 30)
with open("/proc/self/statm") as sizes:
    used = int(sizes.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
try:
    samples.add(1, result)
except fsgather.ConfigError as error:
    print(error)
samples.add(2, "small")
"""
    alone = {**os.environ, "FSGATHER_WORLD_SIZE": "1"}
    ended = subprocess.run([sys.executable, "-c", program], env=alone, capture_output=True, text=True)
    assert ended.returncode == 0 and "no memory for the result of sample 1, which takes 3.0 GiB" in ended.stdout, ended
    assert dict(fsgather.read_samples(tmp_path)) == {0: "small", 2: "small"}


def test_own_types_are_encoded_and_decoded(tmp_path: Path) -> None:
    samples = fsgather.samples(tmp_path, expected=["x"], encode=lambda text: list(str(text)), decode="".join)
    samples.add("x", 123)
    results = samples.gather()
    assert results is not None and results["x"] == "123" and list(results.values()) == ["123"]
    assert fsgather.read_samples(tmp_path)["x"] == ["1", "2", "3"]


def test_another_configuration_is_shown_by_its_difference(tmp_path: Path) -> None:
    with fsgather.samples(tmp_path, config={"model": {"name": "a", "temperature": 0.0}, "stop": ["x"]}) as samples:
        samples.add(1, 1)
    with pytest.raises(fsgather.ConfigError, match=r"configuration \(model.temperature: 0.0 -> 0.7\)"):
        fsgather.samples(tmp_path, config={"model": {"name": "a", "temperature": 0.7}, "stop": ["x"]})
    with pytest.raises(fsgather.ConfigError, match="none is stated now"):
        fsgather.samples(tmp_path)
    with pytest.raises(fsgather.ConfigError, match="config at model.f is not plain JSON data"):
        fsgather.samples(tmp_path, config={"model": {"f": object()}})
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ({"a.b": 1}, {"a": {"b": 1}}, r'"a\.b": 1 -> not set, a\.b: not set -> 1'),
        ({"a": {"b": 1}, "a.c": 2}, {"a.b": 1, "a": {"c": 2}}, r'"a\.b": not set -> 1'),
        ({"a": {"": 1}}, {"a.": 1}, r'a\."": 1 -> not set'),
        ({"a": 1}, {'"a"': 1}, "a: 1 -> not set"),
        ({"a": {}}, {"a": "{}"}, r'a: \{\} -> "\{\}"'),
        ({"a": 1}, {"a": 1.0}, r"a: 1 -> 1\.0"),
        ({"a": 2**70}, {"a": 2**70 + 1}, "a: 11805"),
        ({"a\x1b": 1}, {"a\\u{1b}": 1}, "u001b"),
    ],
)
def test_configurations_with_other_values_are_different(tmp_path: Path, one: Any, other: Any, difference: str) -> None:
    with fsgather.samples(tmp_path, config=one) as samples:
        samples.add(1, 1)
    with pytest.raises(fsgather.ConfigError, match=difference):
        fsgather.samples(tmp_path, config=other)
    fsgather.samples(tmp_path, config=dict(reversed(one.items()))).close()


def test_keys_of_a_configuration_are_texts_at_any_depth(tmp_path: Path) -> None:
    with pytest.raises(fsgather.ConfigError, match="config at a has the key 1"):
        fsgather.samples(tmp_path, config={"a": [{1: 2}]})


def test_output_is_a_regular_file_or_a_link_to_one(tmp_path: Path) -> None:
    fifo, device, link, target = (tmp_path / name for name in ["fifo", "device", "link", "target"])
    os.mkfifo(fifo)
    device.symlink_to("/dev/null")
    target.write_text("old")
    link.symlink_to(target)
    with fsgather.samples(tmp_path / "run") as samples:
        samples.add(1, 2)
        for path, kind in [(fifo, "a FIFO"), (device, "a device"), (tmp_path, "a directory")]:
            with pytest.raises(fsgather.ConfigError, match=f"{path}' is {kind}"):
                samples.gather(out=path)
            with pytest.raises(fsgather.ConfigError, match=f"is {kind}"):
                fsgather.read_samples(tmp_path / "run").write_jsonl(path)
        samples.gather(out=link)
    assert fifo.is_fifo() and device.is_symlink() and link.is_symlink()
    assert target.read_text() == '{"id": 1, "result": 2}\n'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["device", "fifo", "link", "run", "target"]


def test_results_that_json_cannot_express_are_named(tmp_path: Path) -> None:
    itself: list[Any] = [1]
    itself.append(itself)
    out = tmp_path / "out.jsonl"
    for number, (result, reason) in enumerate(
        [
            ({"a": [1, "\ud800"]}, r"\['a'\]\[1\] cannot be written as JSON: .* has characters that are not valid"),
            ({"a": np.array([1], np.longdouble)}, r"\['a'\] cannot be written as JSON: JSON has no numbers of type longdouble"),
            ([{1: 0, "1": 1}], r"\[0\] cannot be written as JSON: keys of .* would be the same text"),
            (itself, " cannot be written as JSON: it is nested too deep, or holds itself"),
        ]
    ):
        with fsgather.samples(tmp_path / str(number)) as samples:
            samples.add(("x", 1), result)
            with pytest.raises(fsgather.Error, match=rf"rank 0 cannot write the samples to {out}: the result of sample \('x', 1\){reason}"):
                samples.gather(out=out)
        shown = subprocess.run(
            [sys.executable, "-m", "fsgather", "samples", str(tmp_path / str(number)), "--out", "-"], capture_output=True, text=True
        )
        assert shown.returncode != 0 and re.search(reason.replace(r"\) ", ""), shown.stderr), shown.stderr


def test_results_that_differ_are_counted_by_value(tmp_path: Path) -> None:
    samples = fsgather.samples(tmp_path, expected=3)
    samples.add([0, 0], [{"a": 1, "b": float("nan")}, {"b": float("nan"), "a": 1}])
    samples.add([1, 1], [0.5, 0.25])
    samples.add([2, 2], [np.array([1.0, np.nan]), np.array([1.0, np.nan])])
    results = samples.gather()
    assert results is not None
    assert (results.repeated, results.conflicts, results[1]) == (2, [1], 0.5)
    assert repr(results) == "<SampleResults: 3 of 3 samples, 2 repeated, 1 with results that differ, of which the first counts>"
    with pytest.raises(fsgather.IncompleteError, match="1 sample has results that differ: 1") as caught:
        samples.gather(on_conflict="error")
    assert dict(caught.value.results.items())[1] == 0.5


def test_failed_samples_are_listed_and_done_again(tmp_path: Path) -> None:
    with fsgather.samples(tmp_path, expected=["a", "b", "c"]) as samples:
        samples.add("a", 1)
        samples.add_error("b", ValueError("too long"))
        with pytest.raises(fsgather.IncompleteError, match=r'1 of 3 samples is missing: "c"; 1 of 3 samples has failed: "b" \(ValueError: too long\)'):
            samples.gather()
        partial = samples.gather(partial=True)
        assert partial is not None
        assert (dict(partial), partial.missing, partial.failed) == ({"a": 1}, ["c"], {"b": "ValueError: too long"})
    with fsgather.samples(tmp_path, expected=["a", "b", "c"]) as samples:
        assert (samples.missing, samples.failed, samples.attempt) == (["b", "c"], {"b": "ValueError: too long"}, 2)
        samples.add(["b", "c"], [2, 3])
        assert dict(samples.gather() or {}) == {"a": 1, "b": 2, "c": 3}


def test_failed_samples_are_done_again_if_all_ids_count(tmp_path: Path) -> None:
    with fsgather.samples(tmp_path) as samples:
        samples.add_error("a", "boom")
        with pytest.raises(fsgather.IncompleteError, match=r'1 of 1 samples has failed: "a" \(boom\)'):
            samples.gather()
    with fsgather.samples(tmp_path) as samples:
        assert (samples.missing, samples.share, samples.failed) == (["a"], ["a"], {"a": "boom"})
        samples.add("a", 1)
        assert dict(samples.gather() or {}) == {"a": 1}
    assert fsgather.samples(tmp_path).missing == []


def test_tuple_ids_that_a_loader_has_changed_are_hinted_at(tmp_path: Path) -> None:
    samples = fsgather.samples(tmp_path)
    with pytest.raises(fsgather.ConfigError, match="2 ids came with 4 results; give one for each; a DataLoader changes ids that are tuples"):
        samples.add([("a", "b", "c", "d"), (1, 2, 3, 4)], [1, 2, 3, 4])


def test_counts_of_added_results_leave_other_entries_out(tmp_path: Path) -> None:
    samples = fsgather.samples(tmp_path, expected=3)
    assert "0 added, none of them" in repr(samples)
    samples.add(1, 1)
    assert re.search(r"1 added, (1|none) of them", repr(samples))
    samples.flush()
    assert "1 added, none of them" in repr(samples)


def test_results_in_memory_are_gathered_by_name(world: World) -> None:
    told = world.start(
        3,
        """
        own = {sample: sample * 2 for sample in range(rank, 10, 2)}
        results = fsgather.gather_samples(own, expected=range(10), dst=1)
        tell(results and [list(results.items()), results.repeated])
        try:
            fsgather.gather_samples({str(rank): 1}, expected=4)
        except fsgather.IncompleteError as error:
            tell(str(error))
            tell(error.results is not None and len(error.results))
        tell(sorted(fsgather.gather_samples({rank: None}, dst=None)))
        """,
    ).told()
    assert [first for first, *_ in told] == [None, [[[sample, sample * 2] for sample in range(10)], 4], None]
    assert len({text for _, text, *_ in told}) == 1
    assert told[0][1].startswith("4 of 4 samples are missing: 0, 1, 2, 3; ranks 0 to 2 have added 1, 1, 1; ")
    assert [count for _, _, count, _ in told] == [0, False, False]
    assert [ids for *_, ids in told] == [[0, 1, 2]] * 3


def test_a_forked_child_adds_nothing(tmp_path: Path) -> None:
    program = f"""
import os, fsgather
samples = fsgather.samples({str(tmp_path)!r}, expected=2)
samples.add(0, "parent")
child = os.fork()
if child == 0:
    try:
        samples.add(1, "child")
    except fsgather.ConfigError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
samples.add(1, "parent")
print(dict(samples.gather()))
"""
    alone = {**os.environ, "FSGATHER_WORLD_SIZE": "1"}
    ended = subprocess.run([sys.executable, "-c", program], env=alone, capture_output=True, text=True, check=True)
    refused, results = ended.stdout.splitlines()
    assert "forked from it" in refused and results == "{0: 'parent', 1: 'parent'}"


def test_results_of_shell_jobs_are_read_and_not_continued(tmp_path: Path) -> None:
    lines = tmp_path / "part.jsonl"
    run = tmp_path / "run"
    command = [sys.executable, "-m", "fsgather", "samples", str(run)]

    def add(*objects: str) -> subprocess.CompletedProcess[str]:
        lines.write_text("\n".join(objects))
        return subprocess.run([*command, "--add", str(lines), "--key", "id"], capture_output=True, text=True)

    refused = add('{"id": 1}', '{"id": 7, "score": NaN}')
    assert refused.returncode == 2 and "line 2: not JSON at column 20: NaN and infinities are not JSON; write null" in refused.stderr
    refused = add('{"id": 1}', '{"id": 7, "score": 1, "score": 2}')
    assert refused.returncode == 2 and 'line 2: not JSON at column 33: the key "score" comes twice' in refused.stderr
    assert not run.exists()
    for score in ["0.5", "0.50", "0.25"]:
        assert add('{"id": 7, "score": %s}' % score, '{"id": ["a", 1], "score": null}').returncode == 0
    results = fsgather.read_samples(run)
    assert dict(results) == {7: {"id": 7, "score": 0.5}, ("a", 1): {"id": ["a", 1], "score": None}}
    assert (results.repeated, results.conflicts) == (3, [7])
    with pytest.raises(fsgather.ConfigError, match=r"json -> plain data.*shell jobs.*fsgather.read_samples read them; name another directory"):
        fsgather.samples(run)
    written = subprocess.run([*command, "--out", "-"], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert [json.loads(line)["id"] for line in written.splitlines()] == [7, ["a", 1]]
    assert not (tmp_path / "-").exists()


def test_directories_without_samples_are_named(tmp_path: Path) -> None:
    with pytest.raises(fsgather.ConfigError, match="has no samples"):
        fsgather.read_samples(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(fsgather.StorageError, match="file"):
        fsgather.samples(tmp_path / "file", expected=1)


def test_wrong_arguments_of_one_rank_fail_on_all(world: World) -> None:
    told = world.start(
        2,
        """
        place = os.environ["FSGATHER_DIR"] + "/run"
        open(place + ".txt", "w").close()

        def raising():
            yield 1
            raise RuntimeError("no loader")

        def refused(call, **wrong):
            try:
                call(**(wrong if rank else {}))
            except (fsgather.ConfigError, fsgather.StorageError) as error:
                tell(str(error))

        def opening(directory=place, expected=3, **options):
            fsgather.samples(directory, expected, **options)

        for wrong in [-1, [1.5], {1, 2}, [1, 1], ["\\ud800"], raising()]:
            refused(opening, expected=wrong)
        for wrong in [{1: 2}, {"a": {"\\ud800": 1}}, {"a": object()}, 7]:
            refused(opening, config=wrong)
        for wrong in ["", None, "\\ud800", place + ".txt"]:
            refused(opening, directory=wrong)
        refused(opening, encode=3)
        samples = fsgather.samples(place, expected=0)
        short = lambda **options: fsgather.gather_samples({}, **options)
        for call in samples.gather, short:
            for wrong in [{"dst": 2}, {"partial": "x"}, {"on_conflict": "x"}]:
                refused(call, **wrong)
        for wrong in ["", "\\ud800"]:
            refused(samples.gather, out=wrong)
        refused(lambda results={}: fsgather.gather_samples(results), results=[1])
        refused(lambda results={}: fsgather.gather_samples(results), results={"\\ud800": 1})
        for how in ({"dst": rank}, {"out": f"{place}/{rank}"}, {"partial": bool(rank)}):
            try:
                samples.gather(**how)
            except fsgather.ConfigError as error:
                tell(str(error))
        for out in ["/no/such/directory/x.jsonl", os.environ["FSGATHER_DIR"]]:
            try:
                samples.gather(out=out)
            except fsgather.Error as error:
                tell(str(error))
        tell(samples.gather() is None)
        """,
    ).told()
    assert told[0][:-1] == told[1][:-1] and [told[0][-1], told[1][-1]] == [False, True]
    options = ["dst=2 is not a rank", "partial='x' is not True", "on_conflict='x' is not"]
    of_rank_1 = [
        *("expected=-1 is out of range", "expected: 1.5 (float)", "has no order", "expected twice", "expected: '\\ud800'", "RuntimeError: no loader"),
        *("config has the key 1", "config at a has the key '\\ud800'", "config at a is not plain JSON", "config=7 is not"),
        *("directory='' is", "directory='' is", "directory='\\ud800' is", "run.txt"),
        *("3 is not a function", *options, *options, "out='' is not", "out='\\ud800' is not", "results=[1] is not", "'\\ud800' (str)"),
    ]
    texts = [*of_rank_1, "to rank 0, rank 1 to rank 1", "output files", "different ways", "rank 0 cannot write", "is a directory"]
    assert len(told[0]) == len(texts) + 1, told[0]
    assert all(part in text for part, text in zip(texts, told[0])), told[0]
    assert all("rank 1 on " in text for text, _ in zip(told[0], of_rank_1)), told[0]


def test_wrong_argument_is_the_cause_of_the_error(tmp_path: Path) -> None:
    def raising() -> Iterator[int]:
        yield 1
        raise OSError("no loader")

    with pytest.raises(fsgather.ConfigError, match="expected cannot be read: OSError: no loader") as caught:
        fsgather.samples(tmp_path, expected=raising())
    assert isinstance(caught.value.__cause__, OSError)
