"""The switch without torch: what ``FSGATHER_PATCH`` says, and modules that are changed when they are imported."""

from __future__ import annotations

import datetime
import importlib
import json
import logging
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator, Optional

import numpy
import pytest
from fsgather import ConfigError, PeerFailedError, TimeoutError, _leaving
from fsgather._switch import blame, callers, custom, finder, groups, marks, meeting, notices, own_world, replacing, selection, trial


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Modules of one test are not those of the next."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    before = set(sys.modules)
    notices.forget()
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    finder._changes.clear()


def write(directory: Path, name: str, source: str) -> None:
    """A module, with its packages."""
    path = directory.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))
    importlib.invalidate_caches()


def test_the_list_is_read() -> None:
    chosen = selection.parse(" torch, mmengine;sam".replace(";", " ") + " a.b:c,")
    assert chosen.torch and not chosen.internal
    assert chosen.families == {"mmengine", "sam"}
    assert chosen.functions == (("a.b", "c"),)
    assert chosen.problem == ""
    assert selection.parse("torch+internal").internal
    assert selection.parse("mdetr").families == {"sam"} == selection.parse("mdetr").named
    assert selection.parse("all,dpr").named == {"dpr"} and not selection.parse("all").named
    everything = selection.parse("all")
    assert everything.torch and everything.families == {"mmengine", "torchmetrics", "sam", "dpr"} and not everything.internal


@pytest.mark.parametrize("word", ["toch", "mmengine.dist", "a:b:c", "a-b:c", ":", "1a:b", "Torch"])
def test_a_wrong_word_is_named_with_the_right_ones(word: str) -> None:
    problem = selection.parse(f"torch,{word}").problem
    assert f"there is no {word!r}" in problem and "torch+internal" in problem and "package.module:function" in problem
    assert "did you mean torch?" in selection.parse("toch").problem


def test_a_module_is_changed_before_anybody_can_take_a_name_from_it(tmp_path: Path) -> None:
    write(tmp_path, "first.second", "value = 1\nloader = __loader__\n")
    write(tmp_path, "user", "from first.second import value\n")
    finder.when_imported("first.second", lambda module: setattr(module, "value", module.value + 1))
    import user

    module = sys.modules["first.second"]
    assert user.value == 2
    assert isinstance(module.__spec__.loader, importlib.machinery.SourceFileLoader)
    assert module.loader is module.__loader__ is module.__spec__.loader
    assert importlib.reload(module).value == 2


def test_a_module_is_changed_whose_code_is_running(tmp_path: Path) -> None:
    write(tmp_path, "hook", "from fsgather._switch import finder\nimport marks\nfinder.when_imported('running', marks.change)\n")
    write(tmp_path, "marks", "def change(module):\n    module.value += 1\n")
    write(tmp_path, "running", "import hook\nvalue = 1\n")
    write(tmp_path, "user", "from running import value\n")
    import user

    assert user.value == 2
    assert type(sys.modules["running"].__spec__) is importlib.machinery.ModuleSpec


def test_an_import_that_fails_goes_on_failing(tmp_path: Path) -> None:
    write(tmp_path, "hook", "from fsgather._switch import finder\nfinder.when_imported('broken', print)\n")
    write(tmp_path, "broken", "import hook\nraise OSError('as before')\n")
    for _ in range(2):
        with pytest.raises(OSError, match="as before"):
            importlib.import_module("broken")
    finder.when_imported("nowhere", print)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        importlib.import_module("nowhere")


def test_a_change_that_fails_does_not_fail_the_import(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "fine", "value = 1\n")

    def change(_module: ModuleType) -> None:
        raise RuntimeError("no idea")

    finder.when_imported("fine", change)
    assert importlib.import_module("fine").value == 1
    assert "fine, which are left as they are: RuntimeError('no idea')" in caplog.text


def test_modules_that_are_imported_already_are_changed(tmp_path: Path) -> None:
    write(tmp_path, "early", "value = 1\n")
    module = importlib.import_module("early")
    finder.when_imported("early", lambda module: setattr(module, "value", 2))
    assert module.value == 2


def test_functions_are_replaced_where_they_are_as_known(caplog: pytest.LogCaptureFixture) -> None:
    module = ModuleType("library")
    module.known = lambda data, size=3: (data, size)
    module.other = lambda data: data
    known = {"known": (("data", "size"),), "other": (("data", "size"),), "missing": ((),)}
    assert replacing.check(module, known) == ["known"]
    assert "library.other takes (data), and not (data, size)" in caplog.text
    for _ in range(2):
        chosen = selection.parse("torch")
        replacing.replace(module, "known", chosen, lambda call, data, size: (call.original(), call.site, data * size))
    site = f"test_switch.py:{sys._getframe().f_lineno + 1}"
    assert module.known(2) == ((2, 3), site, 6)
    assert replacing.parameters(module.known) == ("data", "size")
    with pytest.raises(TypeError):
        module.known(1, 2, 3)


@pytest.mark.parametrize(
    ("name", "parameters", "is_known"),
    [
        ("anything", ("object_list", "obj", "group"), True),
        ("all_gather", ("data",), True),
        ("allgather", ("obj", "group"), True),
        ("all_gather", ("tensor",), False),
        ("gather", ("data", "dst", "group"), True),
        ("all_gather", ("data", "dst"), False),
        ("gather_object", ("obj", "dst"), True),
        ("collect", ("data",), False),
        ("collect", ("data", "group", "max_size"), True),
        ("collect", ("data", "force_cpu", "force_filesys", "filesys_save_dir"), True),
        ("collect", ("data", "force_cpu", "else"), False),
        ("gather_to_rank0", ("data", "filesys_save_dir"), True),
        ("nothing", (), False),
    ],
)
def test_single_functions_are_recognised(name: str, parameters: tuple[str, ...], is_known: bool) -> None:
    assert (custom._recognise(name, parameters) is not None) == is_known


def test_function_with_another_name_is_told_the_rule_for_names(caplog: pytest.LogCaptureFixture) -> None:
    module = ModuleType("mine")
    module.collect = lambda data, group=None: [data]  # type: ignore[attr-defined]
    custom.install(selection.Selection(), "collect", module)
    assert caplog.messages == [
        "FSGATHER_PATCH: mine:collect(data, group) is none of the gathers of objects that fsgather knows, by its name and parameters; it is "
        f"left as it is. {custom._RULE}"
    ]
    assert custom._recognise("all_gather_all", ("data", "group")) and "all_gather or allgather in their name" in custom._RULE


class Member:
    """The only process group, whose ranks 1 and 0 have the same verdict, unless rank 1 has another one."""

    ranks = (0, 1)
    rank = 0
    verdict_of_rank_1: Any = None

    def call(self, _name: str, verdict: Any, site: str) -> list[Any]:
        return [verdict, verdict if self.verdict_of_rank_1 is None else self.verdict_of_rank_1]


@pytest.mark.parametrize(
    ("returned", "gathered", "verdict_of_rank_1", "ran", "warned"),
    [
        ({"a": 1}, {"a": 1}, None, ["ours", "original", "ours"], ""),
        ([2, 1, 2], [2, 1, 2], None, ["ours", "original", "ours"], ""),
        ([{"a": [2.0, math.nan]}, {"a": [1, 2]}, {"a": [2.0, math.nan]}],) * 2 + (None, ["ours", "original"] * 2, ""),
        ([numpy.ones(2), numpy.zeros(2), numpy.ones(2)],) * 2 + (None, ["ours", "original", "ours"], ""),
        # As from a function that sorts and drops repetitions.
        ([1, 2], [1, 2], None, ["ours", "original", "ours", "original"], ""),
        ([1, 2, 3], [[1], [2, 3]], None, ["ours", "original", "original"], "on rank 0 it returns list of 3 instead of list of 2"),
        ({"a": 1}, [{"a": 1}], None, ["ours", "original", "original"], "on rank 0 it returns dict of 1 instead of list of 1"),
        ([True, 3], [1, 3], None, ["ours", "original", "original"], "on rank 0 it returns list of 2 with another content"),
        ([numpy.ones(2)], [numpy.zeros(2)], None, ["ours", "original", "original"], "on rank 0 it returns list of 1 with another content"),
        ([2, 1], [2, 1], "list of 7", ["ours", "original", "original"], "on rank 1 it returns list of 7"),
    ],
    ids=range(10),
)
def test_first_call_shows_whether_a_function_gathers(
    returned: Any,
    gathered: Any,
    verdict_of_rank_1: Any,
    ran: list[str],
    warned: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = Member()
    member.verdict_of_rank_1 = verdict_of_rank_1
    monkeypatch.setattr(meeting, "of", lambda group: member)
    calls: list[str] = []

    def ours(call: replacing.Call, data: int) -> Any:
        calls.append("ours")
        return gathered

    replacement = trial.on_trial("mine:gather", ours)
    call = replacing.Call(lambda: calls.append("original") or returned, "here.py:1")
    for _ in range(2):
        assert replacement(call, data=1) is (returned if calls[-1] == "original" else gathered)
    assert calls == ran
    assert caplog.messages == ([] if not warned else [f"FSGATHER_PATCH: mine:gather is left as it is, because it does not return what a gather does: {warned}"])


@pytest.mark.parametrize(
    ("parts", "excluded"),
    [
        ([1, 2, 3], {"sorts in reverse"}),
        ([3, 2, 2], {"sorts", "drops repetitions"}),
        ([2, 1, 3], {"sorts", "sorts in reverse"}),
        ([2, 1, 2], {"sorts", "sorts in reverse", "drops repetitions"}),
        ([[0], [1], [2]], {"sorts in reverse"}),
        ([{"id": 0}, {"id": 1}], {"sorts in reverse"}),
        # A function may sort by either entry.
        ([{"loss": 2.5, "id": 0}, {"loss": 1.5, "id": 1}], set()),
        ([{"loss": 2.5, "id": 0}, {"loss": 3.5, "id": 1}, {"loss": 1.5, "id": 2}], {"sorts in reverse"}),
        ([numpy.array([1]), numpy.array([0])], {"sorts"}),
        # Without an order.
        ([{1}, {2}], set()),
        ([None, 1, "a"], set()),
        (["same", "same"], {"drops repetitions"}),
        ([[{1}], [{1}]], {"drops repetitions"}),
        ([], trial._CHANGES),
        (None, trial._CHANGES),
    ],
)
def test_results_exclude_the_changes_that_they_would_show(parts: Any, excluded: set[str]) -> None:
    assert trial._excluded_by(parts) == excluded


@pytest.mark.parametrize("change", [lambda parts: sorted(parts), lambda parts: [part for i, part in enumerate(parts) if part not in parts[:i]]])
def test_function_that_sorts_or_drops_is_left_as_it_is(
    change: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member()
    monkeypatch.setattr(meeting, "of", lambda group: member)
    replacement = trial.on_trial("mine:gather", lambda call, data: data)
    for parts in ([[0], [1], [2]], [[0], [1], [2]], [[0], [2], [2]], [[3], [2], [2]]):
        result = replacement(replacing.Call(lambda parts=parts: change(parts), "here.py:1"), data=parts)
        assert result == change(parts)
    assert "mine:gather is left as it is" in caplog.text


def test_function_without_a_proof_is_compared_a_hundred_times(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    monkeypatch.setattr(meeting, "of", lambda group: member)
    originals = []
    replacement = trial.on_trial("mine:gather", lambda call, data: data)
    for _ in range(trial._MAX_TRIALS + 5):
        replacement(replacing.Call(lambda: originals.append(1) or [1, 2], "here.py:1"), data=[1, 2])
    assert len(originals) == trial._MAX_TRIALS


def test_a_module_that_no_job_has_imported_is_named_at_its_end(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    named = [("mycod.dist",), ("sys", "mycod.other"), ("mycod.dist",), ("sum.dist", "sam.dist")]
    meeting.tell_of_never_imported(named)
    assert caplog.text == ""
    monkeypatch.setattr(meeting, "_was_in_a_job", True)
    monkeypatch.setattr(_leaving, "_failure", ValueError("bad luck"))
    meeting.tell_of_never_imported(named)
    assert caplog.text == ""
    monkeypatch.setattr(_leaving, "_failure", None)
    meeting.tell_of_never_imported(named)
    assert "this job has never imported mycod.dist, sum.dist or sam.dist, so nothing of that was replaced" in caplog.text


class Store(dict[str, bytes]):
    """A store of torch, or a part of one."""

    def __init__(self, underlying: Optional[Store] = None) -> None:
        super().__init__()
        if underlying is not None:
            self.underlying_store = underlying

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def add(self, key: str, amount: int) -> int:
        self[key] = str(int(self.get(key, b"0")) + amount).encode()
        return int(self[key])

    def delete_key(self, key: str) -> None:
        del self[key]

    def compare_set(self, key: str, _expected: str, otherwise: str) -> bytes:
        return self.get(key, otherwise.encode())


class Process:
    """A process group of torch."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.get_group_store = lambda: store
        self.rank, self.size = lambda: rank, lambda: size
        self._get_backend = lambda _device: SimpleNamespace(options=SimpleNamespace(_timeout=datetime.timedelta(seconds=77)))


def test_group_over_a_store_of_its_own_is_not_of_the_default_group(monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = Store(), Store()
    default_store = Store(own)
    default = Process(default_store, 1, 4)
    of_it = Process(Store(default_store), 1, 2)
    among_jobs, misnumbered = Process(Store(other), 1, 2), Process(Store(default_store), 0, 2)
    known = {default: (0, 1, 2, 3), of_it: (0, 1), among_jobs: (0, 1), misnumbered: (0, 1)}
    world = SimpleNamespace(
        pg_map=dict.fromkeys(known),
        pg_backend_config=dict.fromkeys(known, "cpu:gloo"),
        pg_group_ranks={group: {rank: place for place, rank in enumerate(ranks)} for group, ranks in known.items()},
        pg_names=dict.fromkeys(known, "x"),
    )
    module: Any = ModuleType(groups.C10D)
    module.is_initialized, module._get_default_group = lambda: True, lambda: default
    module.GroupMember, module.ProcessGroup, module._world = SimpleNamespace(WORLD=None, NON_GROUP_MEMBER=0), Process, world
    monkeypatch.setitem(sys.modules, groups.C10D, module)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(device=str))
    for group, is_of_world, store in (
        (default, True, default_store),
        (of_it, True, default_store),
        (among_jobs, False, among_jobs.get_group_store()),
        (misnumbered, False, misnumbered.get_group_store()),
    ):
        found = groups.describe(group)
        assert found is not None and found.is_of_world == is_of_world and found.store is store
        assert found.timeout == 77


def test_rank_that_refuses_is_an_error_on_those_that_wait_for_it() -> None:
    store = Store()
    home = Process(store, 0, 2)

    def group(rank: int) -> groups.Group:
        return groups.Group(home, "0", rank, (0, 1), home, store, 0.2, "cpu:gloo")

    def arrive(rank: int, can_be_refused: bool = True) -> None:
        own_world.OwnWorld(group(rank)).ground_for(group(rank), None, "here", can_be_refused)

    own_world._uses.clear()
    own_world.OwnWorld(group(1)).refuse(group(1), "its number is another")
    own_world._uses.clear()
    with pytest.raises(ConfigError, match="^rank 1 of torch.distributed refused the call: its number is another$"):
        arrive(0)
    # The next group over this store, and a call that names the group.
    with pytest.raises(TimeoutError, match="^rank 1 of process group"):
        arrive(0)
    own_world._uses.clear()
    with pytest.raises(TimeoutError, match="^rank 1 of process group"):
        arrive(0, can_be_refused=False)


def test_marks_name_ranks_that_have_ended() -> None:
    store = Store()
    before = marks.Marks(store, 2, marks.clock())
    before.leave("")
    before.leave_end("failed (of an earlier process group)")
    left = [marks.Marks(store, rank, marks.clock()) for rank in (0, 1, 3)]
    for own in left[:2]:
        own.leave("")
    left[0].check(0, 5)
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        child.wait()
        gone = marks.Mark.own("")._replace(pid=child.pid)
    store.set("fsgather/v1/mark/3", json.dumps(gone))
    for own in left[:2]:
        # The first rank has looked, and tells what it has seen.
        with pytest.raises(PeerFailedError, match=rf"^rank 3 on \S+ \(pid {gone.pid}\) was lost"):
            own.check(0 if own is left[0] else 3, 5)
    left[1].leave_end(marks.LEFT)
    with pytest.raises(PeerFailedError, match=rf"^rank 1 on \S+ \(pid {os.getpid()}\) had already left before its first call$") as raised:
        left[0].check(0, 3)
    assert (raised.value.rank, raised.value.pid) == (1, os.getpid())


class Ground:
    """A world of all ranks in which one is lost, or none."""

    def __init__(self, lost: Optional[PeerFailedError]) -> None:
        self.ranks, self.own_rank, self.lost = (0, 1, 2), 2, lost

    def arrive(self, *_arguments: Any) -> Ground:
        return self

    def have_all_come(self) -> bool:
        if self.lost is not None:
            raise self.lost
        return False


def test_rank_that_a_collective_of_torch_has_lost_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(blame, "MOMENT", 0.05)
    lost = PeerFailedError("rank 1 on host (pid 5) was lost")
    lost.rank = 1
    module: Any = ModuleType("torch.distributed.c10d_logger")
    module._c10d_logger = logging.Logger("c10d")
    blame.listen(module)
    described = {None: SimpleNamespace(is_of_world=True), "joined": SimpleNamespace(is_of_world=False)}
    monkeypatch.setattr(groups, "describe", described.get)
    scope: dict[str, Any] = {"__name__": "torch.distributed.distributed_c10d", "log": module._c10d_logger}
    exec(
        "def all_reduce(error, group=None):\n    try:\n        raise RuntimeError(error)\n"
        "    except RuntimeError as raised:\n        log.debug({'func_name': 'all_reduce', 'error': str(raised)})\n        raise",
        scope,
    )
    line = 0
    for words, group, is_caught, ground, is_named in (
        ("Connection closed by peer", None, False, Ground(lost), True),
        ("Connection closed by peer", None, True, Ground(lost), True),
        ("Connection closed by peer", None, True, Ground(None), False),
        ("Connection closed by peer", "joined", False, Ground(lost), False),
        ("Connection closed by peer", "joined", True, Ground(lost), False),
        ("no such device", None, True, Ground(lost), False),
    ):
        caplog.clear()
        notices.forget()
        caught: Optional[BaseException] = None
        try:
            line = sys._getframe().f_lineno + 1
            scope["all_reduce"](words, group)
        except RuntimeError as error:
            caught = None if is_caught else error
        known = blame.name_lost(caught, ground)  # type: ignore[arg-type]
        assert known == (str(lost) if is_named else None), (words, is_caught)
        text = f"rank 1 on host (pid 5) was lost; rank 2 was in torch's own all_reduce at test_switch.py:{line}, which fsgather does not carry"
        assert [record.getMessage() for record in caplog.records] == ([text] if is_named else [])
        # Once for each failure.
        assert blame.name_lost(None, ground) is None  # type: ignore[arg-type]


def test_calls_from_inside_torch_are_told_apart() -> None:
    names = {"torch": True, "torch.distributed.fsdp": True, "torchvision.ops": False, "__main__": False, "mytorch": False}
    for name, is_torch in names.items():
        scope = {"__name__": name, "callers": callers}
        exec("def ask():\n    return check()\ndef check():\n    return callers.is_torch(1)\n", scope)
        assert scope["ask"]() == is_torch, name


@pytest.mark.parametrize("variables", [{}, {"FSGATHER_PATCH": " "}])
def test_the_hook_imports_nothing_without_the_variable(variables: dict[str, str]) -> None:
    code = (
        "import fsgather_autoload, sys\nfsgather_autoload.autoload()\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('fsgather', 'logging')]"
    )
    run(code, variables)


def test_the_hook_does_not_raise_and_says_once_what_is_wrong(tmp_path: Path) -> None:
    write(tmp_path, "fsgather.__init__", "raise ImportError('no extension module')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    code = (
        "import sys, types\n"
        "torch = types.ModuleType('torch.distributed')\n"
        "torch.all_gather_object = lambda: None\n"
        "sys.modules['torch.distributed'] = torch\n"
        "import fsgather_autoload\nfsgather_autoload.autoload()\n"
        "fsgather_autoload.autoload()\n"
        "try:\n    torch.all_gather_object()\n"
        "except ImportError as error:\n    assert 'FSGATHER_PATCH=torch is set' in str(error) and 'no extension' in str(error)\n"
        "else:\n    raise AssertionError('nothing was said')\n"
    )
    said = (
        "fsgather: FSGATHER_PATCH=torch is set, but fsgather cannot be loaded on this rank: no extension module; "
        "install it in this environment, or unset the variable on all ranks\n"
    )
    run(code, {"FSGATHER_PATCH": "torch", "PYTHONPATH": path}, said)


def run(code: str, variables: dict[str, str], said: str = "") -> None:
    """Runs code in an interpreter of its own, which must say nothing else on standard error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FSGATHER_")}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    ended = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", said)
