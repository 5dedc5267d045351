"""The directory in which agents of torchrun meet; ``scripts/prove torchrun`` tests the handler itself."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path

import fsgather
import pytest
from fsgather._torchrun import directory as module
from fsgather._torchrun import state
from fsgather._torchrun.directory import Directory, Unusable, Version

AGENTS = 4
CHANGES = 60


def test_the_first_version_follows_nothing_and_each_the_one_before(tmp_path: Path) -> None:
    one, other = Directory(str(tmp_path), "job"), Directory(str(tmp_path), "job")
    assert one.read() is None
    assert one.follow(0, b"first")
    assert not other.follow(0, b"too late")
    assert other.read() == Version(1, b"first")
    assert other.follow(1, b"second")
    assert one.read() == Version(2, b"second")
    assert one.told("key") is None
    other.tell("key", b"value")
    one.tell("key", b"another one")
    assert one.told("key") == b"value"
    assert abs(one.clock_offset) < 5


def count(place: str) -> None:
    own = Directory(place, "job")
    for _ in range(CHANGES):
        while True:
            version = own.read() or Version(0, b"0")
            if own.follow(version.number, str(int(version.content) + 1).encode()):
                break


def test_no_change_is_lost_however_many_agents_write_and_old_versions_go(tmp_path: Path) -> None:
    kept = Directory(str(tmp_path), "job")
    context = multiprocessing.get_context("spawn")
    agents = [context.Process(target=count, args=(str(tmp_path),)) for _ in range(AGENTS)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    assert [agent.exitcode for agent in agents] == [0] * AGENTS
    assert kept.read() == Version(AGENTS * CHANGES, str(AGENTS * CHANGES).encode())
    states = [name for name in os.listdir(kept.path) if name.startswith("state-")]
    assert len(states) <= 3 * module._KEPT
    assert not [name for name in os.listdir(kept.path) if name.startswith("draft-")]


def test_who_was_stopped_for_long_overwrites_nothing(tmp_path: Path) -> None:
    own = Directory(str(tmp_path), "job")
    for number in range(3 * module._KEPT):
        assert own.follow(number, b"%d" % (number + 1))
    assert not Path(own.path, "state-00000000000000000005").exists()
    assert not own.follow(4, b"stale")
    assert own.read() == Version(3 * module._KEPT, b"%d" % (3 * module._KEPT))


def test_the_last_agent_leaves_nothing_behind(tmp_path: Path) -> None:
    one, other = Directory(str(tmp_path), "job"), Directory(str(tmp_path), "job")
    one.follow(0, b"state")
    one.leave()
    assert other.read() == Version(1, b"state")
    other.leave()
    assert not os.path.exists(one.path)


def test_jobs_of_other_names_have_directories_of_their_own(tmp_path: Path) -> None:
    one, other = Directory(str(tmp_path), "job"), Directory(str(tmp_path), "another")
    one.follow(0, b"state")
    assert other.read() is None


def test_what_is_not_of_this_user_alone_is_not_used(tmp_path: Path) -> None:
    own = Directory(str(tmp_path), "job")
    own.follow(0, b"state")
    if os.geteuid() == 0:
        os.chown(Path(own.path, "state-00000000000000000001"), 12345, 12345)
        with pytest.raises(Unusable, match="no file of this user"):
            own.read()
    os.chmod(own.path, 0o777)
    with pytest.raises(Unusable, match="no directory of this user .* alone"):
        Directory(str(tmp_path), "job")


def test_what_is_damaged_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRIES", 2)
    own = Directory(str(tmp_path), "job")
    own.follow(0, b"state")
    path = Path(own.path, "state-00000000000000000001")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Unusable, match="damaged"):
        own.read()


def test_a_place_that_is_none_is_an_error_with_its_path() -> None:
    with pytest.raises(fsgather.StorageError, match="/nowhere"):
        Directory("/nowhere", "job")


def test_a_state_that_holds_code_is_not_read() -> None:
    with pytest.raises(pickle.UnpicklingError, match="holds a posix.system"):
        state.is_closed(pickle.dumps(os.system))
