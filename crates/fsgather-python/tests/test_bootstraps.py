"""Engines that introduce ranks: how one is found, and what a store of keys does."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Optional

import fsgather
import pytest
from conftest import LIMIT
from fsgather import _slowness, bootstraps
from fsgather.bootstraps import _choice, _limits, key_value
from fsgather.bootstraps.key_value import KeyValue

LONG = 2.0 * LIMIT
"""A time-out in seconds that no test reaches: what comes earlier came for another reason."""


class Store(KeyValue):
    """Ranks that are threads, introduced by a dictionary."""

    def __init__(self, rank: int, world_size: int, values: dict[str, bytes]) -> None:
        super().__init__(rank, world_size, "a test")
        self.values = values

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str) -> Optional[bytes]:
        return self.values.get(key)


def test_a_store_that_an_earlier_attempt_has_used_misleads_nobody() -> None:
    values: dict[str, bytes] = {}
    for record in (b"first", b"second"):
        root = Store(0, 3, values)
        root.publish(record)
        assert [Store(rank, 3, values).fetch(LIMIT) for rank in (1, 2)] == [record, record]
        root.close()


def test_who_is_not_answered_says_so() -> None:
    with pytest.raises(TimeoutError, match="rank 0 has not answered within"):
        Store(1, 2, {}).fetch(0.1)


def test_a_store_that_gives_text_is_told_so() -> None:
    class Decoding(Store):
        def get(self, key: str) -> Optional[bytes]:
            return "text"  # type: ignore[return-value]

    with pytest.raises(TypeError, match="gives str, not the bytes that were set"):
        Decoding(1, 2, {}).fetch(LIMIT)


def join_all(stores: list[Store]) -> list[object]:
    """What comes of it when all of these try to meet, each in a thread."""
    outcomes: list[object] = [None] * len(stores)

    def join(place: int) -> None:
        try:
            world = fsgather.Communicator(bootstrap=stores[place], timeout=LONG, join_timeout=LONG)
            outcomes[place] = world.all_gather(world.rank)
            world.close()
        except fsgather.Error as error:
            outcomes[place] = error

    threads = [threading.Thread(target=join, args=(place,)) for place in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_processes_that_all_say_they_are_rank_0_are_told_so_but_the_last() -> None:
    values: dict[str, bytes] = {}
    roots = [Store(0, 2, values) for _ in range(2)]
    is_told = threading.Event()
    told: list[str] = []
    roots[0].tell_failure = lambda reason: (told.append(reason), is_told.set())
    for root in roots:
        root.publish(b"record")
    assert is_told.wait(LIMIT)
    assert "another thread of this process meets as rank 0 as well" in told[0]
    assert Store(1, 2, values).fetch(LIMIT) == b"record"
    for root in roots:
        root.close()


def test_a_process_whose_rank_another_one_has_taken_is_told_so() -> None:
    values: dict[str, bytes] = {}
    earlier = Store(1, 3, values)
    failed: list[BaseException] = []

    def fetch() -> None:
        try:
            earlier.fetch(LIMIT)
        except RuntimeError as error:
            failed.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    while not values:
        time.sleep(0.001)
    with pytest.raises(TimeoutError):
        Store(1, 3, values).fetch(0.001)
    thread.join()
    assert "another thread of this process meets as rank 1 as well" in str(failed[0])


def test_a_process_is_told_which_other_one_has_taken_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, bytes] = {}
    root = Store(0, 2, values)
    is_told = threading.Event()
    told: list[str] = []
    root.tell_failure = lambda reason: (told.append(reason), is_told.set())
    root.publish(b"record")
    other = Store(0, 2, values)
    monkeypatch.setattr(key_value.os, "getpid", lambda: 7)
    other.publish(b"record")
    monkeypatch.undo()
    assert is_told.wait(LIMIT)
    assert re.search(r"another process says that it is rank 0 as well: .*, pid 7;", told[0])
    other.close()


class Late(Store):
    """Shows what was under a key for some time after it was changed, to whoever has changed it as well."""

    def __init__(self, rank: int, world_size: int, values: dict[str, bytes]) -> None:
        super().__init__(rank, world_size, values)
        self.seen: dict[str, list[tuple[float, Optional[bytes]]]] = {}

    def get(self, key: str) -> Optional[bytes]:
        seen = self.seen.setdefault(key, [])
        if not seen or seen[-1][1] != self.values.get(key):
            seen.append((time.monotonic(), self.values.get(key)))
        return next((value for since, value in reversed(seen) if since < time.monotonic() - 1.2), None)


class Partly(Store):
    """Shows a part of a value every other time."""

    def get(self, key: str) -> Optional[bytes]:
        self.turn = getattr(self, "turn", 0) + 1
        value = self.values.get(key)
        return value[: len(value) // 2] if value is not None and self.turn % 2 else value


class Losing(Store):
    """Loses what is set the first time."""

    def __init__(self, rank: int, world_size: int, values: dict[str, bytes]) -> None:
        super().__init__(rank, world_size, values)
        self.has: set[str] = set()

    def set(self, key: str, value: bytes) -> None:
        if key in self.has:
            self.values[key] = value
        self.has.add(key)


@pytest.mark.parametrize("kind", [Late, Partly, Losing])
def test_ranks_meet_by_a_store_that_is_late_or_shows_parts_or_loses(kind: type[Store]) -> None:
    values: dict[str, bytes] = {}
    for _ in range(2):
        assert join_all([kind(rank, 3, values) for rank in range(3)]) == [[0, 1, 2]] * 3


def test_a_store_that_damages_everything_is_told_as_such() -> None:
    class Damaging(Store):
        def get(self, key: str) -> Optional[bytes]:
            value = self.values.get(key)
            return None if value is None else value.strip(b"0123456789")

    with pytest.raises(TimeoutError, match="this store of keys does not give back what was set"):
        Damaging(1, 2, {}).fetch(0.1)


def test_two_keys_for_each_rank_stay_however_often_ranks_meet() -> None:
    values: dict[str, bytes] = {}
    for _ in range(3):
        assert join_all([Store(rank, 3, values) for rank in range(3)]) == [[0, 1, 2]] * 3
    assert len(values) <= 2 * 3


def test_ranks_meet_again_before_rank_0_knows_that_they_have_met() -> None:
    class Slow(Store):
        def close(self, have_met: bool = False) -> None:
            if self.rank == 0 and have_met:
                meets_again.wait(LIMIT)
            super().close(have_met)

        def set(self, key: str, value: bytes) -> None:
            super().set(key, value)
            if self.rank == 1 and worlds_of_rank_1:
                meets_again.set()

    meets_again = threading.Event()
    worlds_of_rank_1: list[fsgather.Communicator] = []
    values: dict[str, bytes] = {}
    gathered: list[list[int]] = []

    def join(rank: int) -> None:
        worlds = worlds_of_rank_1 if rank == 1 else []
        for _ in range(2):
            worlds.append(fsgather.Communicator(bootstrap=Slow(rank, 2, values), timeout=LONG, join_timeout=LONG))
        gathered.extend(world.all_gather(rank) for world in worlds)
        for world in worlds:
            world.close()

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gathered == [[0, 1]] * 4


def test_a_store_that_fails_on_rank_0_ends_its_waiting() -> None:
    class Failing(Store):
        def get(self, key: str) -> Optional[bytes]:
            if threading.current_thread().name == "fsgather-bootstrap":
                raise ConnectionError("the scheduler has gone")
            return super().get(key)

    (outcome,) = join_all([Failing(0, 2, {})])
    assert "rank 0 cannot introduce the ranks: ConnectionError: the scheduler has gone" in str(outcome)


def test_ranks_that_were_told_different_world_sizes_are_all_told() -> None:
    values: dict[str, bytes] = {}
    outcomes = join_all([Store(0, 2, values), Store(1, 3, values)])
    for outcome in outcomes:
        assert isinstance(outcome, fsgather.RendezvousError)
        assert "was told that there are 3 ranks" in str(outcome) and "that there are 2" in str(outcome)


def test_what_ranks_have_met_by_does_not_stay_where_the_store_can_remove_it() -> None:
    class Removing(Store):
        def delete(self, key: str) -> None:
            del self.values[key]

    values: dict[str, bytes] = {}
    assert join_all([Removing(rank, 3, values) for rank in range(3)]) == [[0, 1, 2]] * 3
    assert values == {}


@pytest.mark.parametrize("given", ["dask", 7, object()])
def test_what_is_no_bootstrap_is_told(given: object) -> None:
    with pytest.raises(fsgather.ConfigError, match=r"bootstrap=.* is no bootstrap: rank None, world_size None"):
        fsgather.Communicator(bootstrap=given)  # type: ignore[arg-type]


def test_ranks_that_a_bootstrap_introduces_gather() -> None:
    values: dict[str, bytes] = {}
    results: list[list[int]] = []

    def rank(number: int) -> None:
        with fsgather.Communicator(bootstrap=Store(number, 3, values), timeout=LIMIT) as world:
            results.append(world.all_gather(number))

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[0, 1, 2]] * 3
    assert not [thread for thread in threading.enumerate() if thread.name == "fsgather-bootstrap" and not thread.daemon]


def test_a_communicator_says_its_rank_after_it_was_closed() -> None:
    world = fsgather.Communicator(bootstrap=Store(0, 1, {}))
    world.close()
    assert (world.rank, world.world_size, world.closed) == (0, 1, True)


ALONE = """
class Alone:
    rank, world_size = 0, 1

    def publish(self, record):
        pass

    def fetch(self, seconds):
        raise TimeoutError


"""


def announce(
    directory: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str = "their-engine", package: str = "their-engine"
) -> None:
    """Installs a package with a bootstrap."""
    module = package.replace("-", "_")
    (directory / f"{module}.py").write_text(source)
    about = directory / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[fsgather.bootstraps]\n{name} = {module}:find\n")
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.delitem(sys.modules, module, raising=False)


def test_engines_are_there_by_the_names_that_the_guide_uses() -> None:
    program = "import fsgather; print(fsgather.bootstraps.ray.be_rank.__name__, fsgather.torch.register.__name__, sorted(__import__('sys').modules))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT)
    assert ended.stdout.startswith("be_rank register [") and "'distributed'" not in ended.stdout and "'torch'" not in ended.stdout, ended
    with pytest.raises(AttributeError, match="no attribute 'slurm'"):
        bootstraps.slurm  # noqa: B018


@pytest.mark.parametrize("name", ["their-engine", "their.engine", "2nd_engine"])
def test_a_bootstrap_of_another_package_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    announce(tmp_path, monkeypatch, f"{ALONE}def find():\n    return Alone()\n", name)
    assert _choice.names() == [*bootstraps._ORDER, name]
    for found in (_choice.find(name), _choice.find()):
        assert type(found).__module__ == "their_engine"
    monkeypatch.setenv("FSGATHER_RENDEZVOUS", f"{name}:")
    with fsgather.Communicator() as world:
        assert world.all_gather(7) == [7]


@pytest.mark.parametrize("other", ["return None", "raise RuntimeError('no context')"])
@pytest.mark.parametrize("place", [0, 1])
def test_of_two_packages_with_one_name_the_one_counts_that_finds_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, place: int
) -> None:
    sources = [f"def find():\n    {other}\n", f"{ALONE}def find():\n    return Alone()\n"]
    for number, source in enumerate(sources if place else reversed(sources)):
        (tmp_path / str(number)).mkdir()
        announce(tmp_path / str(number), monkeypatch, source, package=f"engine-{number}")
    assert _choice.names() == [*bootstraps._ORDER, "their-engine"]
    for found in (_choice.find(), _choice.find("their-engine")):
        assert type(found).__name__ == "Alone"


def test_a_package_whose_entry_points_cannot_be_read_stands_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_choice, "_told", set())
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        announce(tmp_path / name, monkeypatch, f"{ALONE}def find():\n    return Alone()\n", package=name)
    (tmp_path / "bad" / "bad-1.0.dist-info" / "entry_points.txt").write_text("[fsgather.bootstraps]\nno value\n")
    assert type(_choice.find()).__module__ == "good"
    assert "the entry points of the package bad cannot be read" in caplog.text or sys.version_info < (3, 11)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def find():\n    raise RuntimeError('\\x1b[31mred')", r"RuntimeError: \\x1b\[31mred"),
        ("def find():\n    raise SystemExit(5)", "SystemExit: 5"),
        ("def find():\n    return 7", "rank None, world_size None, which are to be integers"),
        ("class Odd:\n    rank, world_size = True, 2\n\n\ndef find():\n    return Odd()", "rank True, world_size 2, which are to be"),
        (f"{ALONE}def find():\n    Alone.rank = 1\n    return Alone()", "is no bootstrap: rank 1 of a world of 1"),
        ("class Odd:\n    rank, world_size = 0, 2\n\n\ndef find():\n    return Odd()", "is no bootstrap: it has no method publish"),
        ("class Odd:\n    @property\n    def rank(self):\n        raise KeyError('no context')\n\n\ndef find():\n    return Odd()", "KeyError"),
        ("class Odd(BaseException):\n    def __str__(self):\n        return 7\n\n\ndef find():\n    raise Odd", r"fails: Odd: <exception str\(\) failed>; mend"),
    ],
)
def test_one_that_fails_is_named_and_stands_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, source: str, told: str
) -> None:
    announce(tmp_path, monkeypatch, source)
    with pytest.raises(fsgather.ConfigError, match=told):
        _choice.find("their-engine")
    assert _choice.find() is None
    assert re.search(told, caplog.text) and "their-engine" in caplog.text and "passed over" in caplog.text


@pytest.mark.parametrize("name", ["ray", "mpi"])
def test_one_with_the_name_of_ours_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setattr(_choice, "_told", set())
    announce(tmp_path, monkeypatch, "def find():\n    raise RuntimeError\n", name)
    assert _choice.names() == list(bootstraps._ORDER)
    assert _choice.find() is None
    (record,) = caplog.records
    assert f"the bootstrap '{name}' (their_engine:find of the package their-engine) is never used" in record.getMessage()


def test_who_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_slowness, "SLOW", 0.05)
    is_told = threading.Event()
    monkeypatch.setattr(logging.getLogger("fsgather"), "warning", lambda text, *rest: (told.append(text % rest), is_told.set()))
    told: list[str] = []

    class Slow:
        rank, world_size = 1, 2

        def publish(self, record: bytes) -> None:
            pass

        def fetch(self, seconds: float) -> bytes:
            is_told.wait(LIMIT)
            raise TimeoutError("nobody is there")

    with pytest.raises(fsgather.RendezvousError, match="nobody is there"):
        fsgather.Communicator(bootstrap=Slow(), join_timeout=LIMIT)
    assert told and all("waiting for fetch of the bootstrap" in text and ".Slow" in text for text in told)


@pytest.mark.parametrize(("rank", "function"), [(0, "publish"), (1, "fetch")])
def test_what_an_engine_never_ends_is_left_to_itself_by_name(monkeypatch: pytest.MonkeyPatch, rank: int, function: str) -> None:
    monkeypatch.setattr(_limits, "GRACE", 0.1)
    hang = threading.Event()

    class Hanging:
        world_size = 2

        def __init__(self) -> None:
            self.rank = rank

        def publish(self, record: bytes) -> None:
            hang.wait()

        def fetch(self, seconds: float) -> bytes:
            hang.wait()
            return b""

    monkeypatch.setenv("FSGATHER_JOIN_TIMEOUT", "1s")
    with pytest.raises(fsgather.Error, match=rf"{function} of the bootstrap test_bootstraps.*\.Hanging has not come back within .* s"):
        fsgather.Communicator(bootstrap=Hanging())
    hang.set()


@pytest.mark.parametrize("is_main", [True, False])
@pytest.mark.parametrize("how", ["time.sleep(0.01)", "threading.Event().wait(0.01)", "pass"])
def test_an_engine_that_looks_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_main: bool, how: str) -> None:
    announce(tmp_path, monkeypatch, f"import threading, time\n\n\ndef find():\n    while True:\n        {how}\n")
    told: list[str] = []

    def look() -> None:
        with pytest.raises(fsgather.ConfigError) as raised:
            fsgather.Communicator(rendezvous="their-engine:", join_timeout=0.2)
        told.append(str(raised.value))

    if is_main:
        look()
    else:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert len(told) == 1
    assert "find of the bootstrap 'their-engine' (their_engine:find of the package their-engine) has not come back within 0.2 s" in told[0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_engine_that_waits_in_the_system_is_ended_in_the_main_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(tmp_path, monkeypatch, "import time\n\n\ndef find():\n    time.sleep(1000)\n")
    with pytest.raises(fsgather.ConfigError, match="has not come back within"):
        _choice.find("their-engine", 0.2)


def test_ctrl_c_ends_an_engine_that_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(tmp_path, monkeypatch, "import signal\n\n\ndef find():\n    signal.raise_signal(signal.SIGINT)\n    while True:\n        pass\n")
    with pytest.raises(KeyboardInterrupt):
        _choice.find("their-engine", LIMIT)


ENDLESS = """
import fsgather

class Endless:
    rank, world_size = 1, 2

    def publish(self, record):
        pass

    def fetch(self, seconds):
        print("here", flush=True)
        while True:
            pass

fsgather.Communicator(bootstrap=Endless())
"""


def test_ctrl_c_ends_an_engine_that_fetches() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == -signal.SIGINT, said
    assert "Fatal" not in said


def test_an_engine_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fsgather.ConfigError, match="there is no bootstrap 'slrum'.*there are spark:, ray:, dask:, jax:, mpi:"):
        fsgather.Communicator(rendezvous="slrum:")
    monkeypatch.setenv("FSGATHER_RENDEZVOUS", "dask:")
    with pytest.raises(fsgather.ConfigError, match="dask: was to introduce the ranks.*none of its ranks"):
        fsgather.Communicator()


def test_a_variable_that_is_wrong_is_no_fault_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    announce(tmp_path, monkeypatch, "def find():\n    return None\n")
    monkeypatch.setenv("FSGATHER_JOIN_TIMEOUT", "8")
    with pytest.raises(fsgather.ConfigError, match='^FSGATHER_JOIN_TIMEOUT="8" is not a duration'):
        fsgather.Communicator()
    assert "passed over" not in caplog.text


def test_mpi_is_another_name_of_mpi4py() -> None:
    with pytest.raises(fsgather.ConfigError, match="mpi4py: was to introduce"):
        fsgather.Communicator(rendezvous="mpi:")


def test_nobody_is_asked_where_a_launcher_says_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(name: Optional[str] = None) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(_choice, "find", asked)
    monkeypatch.setenv("FSGATHER_RANK", "0")
    monkeypatch.setenv("FSGATHER_WORLD_SIZE", "1")
    fsgather.Communicator().close()


def test_two_introductions_at_once_are_refused() -> None:
    with pytest.raises(fsgather.ConfigError, match="give one of them"):
        fsgather.Communicator(bootstrap=Store(0, 1, {}), comm=object())
    with pytest.raises(fsgather.ConfigError, match="bootstrap= introduces the ranks and says which this is; leave out rank="):
        fsgather.Communicator(bootstrap=Store(0, 1, {}), rank=0, world_size=2)
    with pytest.raises(fsgather.ConfigError, match="comm= introduces the ranks and says which this is; leave out rank="):
        fsgather.Communicator(comm=object(), rendezvous="tcp://localhost:1")


@pytest.mark.parametrize("comm", ["COMM_WORLD", 0, object()])
def test_what_is_no_communicator_of_mpi_is_told(comm: object) -> None:
    with pytest.raises(fsgather.ConfigError, match="comm= cannot introduce the ranks: it is of type (str|int|object), no communicator of mpi4py"):
        fsgather.Communicator(comm=comm)


@pytest.mark.parametrize("found", [None, "record", 7])
def test_what_fetches_no_bytes_is_told(found: object) -> None:
    class Wrong:
        rank, world_size = 1, 2

        def publish(self, record: bytes) -> None:
            pass

        def fetch(self, seconds: float) -> object:
            return found

    with pytest.raises(fsgather.RendezvousError, match=r"Wrong gives (NoneType|str|int), not the bytes that rank 0 has published"):
        fsgather.Communicator(bootstrap=Wrong(), join_timeout=LIMIT)  # type: ignore[arg-type]
