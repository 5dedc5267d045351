"""Wrong arguments: an error that names them, before anything is sent."""

from __future__ import annotations

import copy
import inspect
import math
from typing import Any, Callable, cast

import numpy
import pytest

import fsgather
from conftest import World

WRONG_HOW: list[tuple[dict[str, Any], str]] = [
    ({"timeout": 0}, "timeout=0 is not a number of seconds above 0"),
    ({"timeout": -1}, "timeout=-1 is not a number of seconds"),
    ({"timeout": math.nan}, "timeout=nan is not"),
    ({"timeout": math.inf}, "timeout=inf is not"),
    ({"timeout": 1e300}, r"timeout=1e\+300 is not"),
    ({"timeout": 1e-300}, "timeout=1e-300 is not"),
    ({"timeout": 10**400}, r"timeout=10000.*\.\.\..*0000 is not"),
    ({"timeout": 10**5000}, "timeout=.* is not"),
    ({"timeout": "5"}, "timeout='5' is not"),
    ({"timeout": [1]}, r"timeout=\[1\] is not"),
    ({"site": 5}, "site=5 is not a text"),
    ({"site": "\ud800"}, "site=.* is not a text of valid characters"),
    ({"directory": ""}, "directory='' is not the path of a directory"),
    ({"directory": b"/tmp"}, "directory=b'/tmp' is not"),
    ({"directory": "a\0b"}, "directory=.* is not"),
    ({"directory": 7}, "directory=7 is not"),
    ({"transport": 7}, "transport=7 is not"),
    ({"transport": "pigeon"}, "transport=.pigeon. must be"),
    ({"allow_pickle": "no"}, "allow_pickle='no' is not True or False"),
]


@pytest.mark.parametrize(("how", "said"), WRONG_HOW, ids=range(len(WRONG_HOW)))
def test_how_a_call_is_made(how: dict[str, Any], said: str) -> None:
    communicator = fsgather.Communicator.solo()
    with pytest.raises(ValueError, match=said) as raised:
        if how.keys() & {"transport", "directory"}:
            communicator.with_options(**how)
        communicator.all_gather(1, **how)
    assert len(str(raised.value)) < 200
    assert communicator.all_gather(2, timeout=5, site="here", allow_pickle=False) == [2]


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": -1},
        {"rank": "0"},
        {"world_size": 0},
        {"world_size": 2**64},
        {"inline_limit": -1},
        {"timeout": "5"},
        {"join_timeout": 0},
        {"directory": ""},
        {"job": 7},
        {"rendezvous": 7},
        {"control": 7},
        {"verify": "sometimes"},
    ],
    ids=str,
)
def test_how_a_communicator_is_made(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(fsgather.ConfigError, match=f"^{name}="):
        fsgather.Communicator(**{"rank": 0, "world_size": 1, **settings})


def test_nothing_is_sent_and_the_communicator_goes_on(world: World) -> None:
    told = world.start(
        2,
        """
        communicator = fsgather.Communicator()
        calls = [
            lambda: communicator.gather_object(1, dst=-1),
            lambda: communicator.gather_object(1, dst=2),
            lambda: communicator.gather_iter(1, dst=2**64),
            lambda: communicator.start_gather(1, dst="0"),
            lambda: communicator.broadcast_object(1, src=0.5),
            lambda: communicator.gather([1], dst=-1),
            lambda: communicator.group([0, -1]),
            lambda: communicator.split(-1),
            lambda: communicator.split(0, key="x"),
            lambda: communicator.all_gather(1, max_size=-1),
            lambda: communicator.all_gather(1, max_size=2**64),
            lambda: communicator.all_gather(1, max_size=0.5),
            lambda: communicator.all_gather(1, timeout="5"),
            lambda: communicator.barrier(timeout=1e300),
            lambda: fsgather.compat.all_gather(1, filesys_save_dir=""),
        ]
        said = []
        # One rank alone: the other waits in the next call, and would hear of anything that was sent.
        for call in calls if rank == 0 else []:
            try:
                call()
            except fsgather.ConfigError as error:
                said.append(str(error))
        tell([said, communicator.all_gather(rank), communicator.all_gather(rank, max_size=2**63 - 1)])
        """,
    ).told()
    ((said, first, second),) = told[0]
    names = ["dst", "dst", "dst", "dst", "src", "dst", "ranks", "color", "key"]
    names += ["max_size", "max_size", "max_size", "timeout", "timeout", "filesys_save_dir"]
    assert [text.partition("=")[0] for text in said] == names
    assert said[0] == "dst=-1 is not a rank of a world of 2; give 0 to 1"
    assert said[9] == "max_size=-1 is out of range; give a whole number from 0 to 9223372036854775807"
    assert told[1] == [[[], first, second]]
    assert first == second == [0, 1]


def test_numbers_of_other_types_are_numbers() -> None:
    communicator = fsgather.Communicator.solo()
    assert communicator.gather_object(1, numpy.int64(0), timeout=numpy.float32(5)) == [1]
    assert communicator.all_gather(1, max_size=numpy.uint8(200), allow_pickle=numpy.bool_(True)) == [1]


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: fsgather.all_gather(1, tag=cast(Any, 3)), "tag=3 is not a text"),
    (lambda: fsgather.compat.all_gather_object(1, timeout=cast(Any, "soon")), "timeout='soon' is not a number"),
    (lambda: fsgather.compat.all_gather_via_filesys(1, timeout=-1), "timeout=-1 is not a number"),
    (lambda: fsgather.gather_object(1, dst=7), "dst=7 is not a rank of a world of 1; give 0"),
    (lambda: fsgather.gather_object(1, allow_pickle=cast(Any, "no")), "allow_pickle='no' is not True or False"),
    (lambda: fsgather.gather(numpy.zeros(2), dim=cast(Any, "x")), "dim='x' is not a whole number"),
    (lambda: fsgather.default_communicator().group(cast(Any, 5)), "ranks=5 is not a list of numbers"),
    (lambda: cast(Any, fsgather.barrier)(1, 2, 3), "barrier() takes from 0 to 1 positional arguments but 3 were given"),
    (lambda: cast(Any, fsgather.all_gather)(1, time_out=1), "all_gather() got an unexpected keyword argument 'time_out'"),
    (lambda: cast(Any, fsgather.barrier)(ranks=1), "barrier() got an unexpected keyword argument 'ranks'"),
    (lambda: cast(Any, fsgather.Communicator)(ranks=1), "Communicator.__init__() got an unexpected keyword argument 'ranks'"),
    (lambda: cast(Any, fsgather.Communicator.solo().barrier)(1), "barrier() takes 1 positional argument but 2 were given"),
]


@pytest.mark.parametrize(("call", "said"), WRONG)
def test_world_of_one_refuses_the_same_arguments(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(fsgather.ConfigError) as raised:
        call()
    assert said in str(raised.value)
    assert isinstance(raised.value, TypeError) and isinstance(raised.value, ValueError)


NUMBERS: list[tuple[str, Callable[[Any], Any]]] = [
    ("timeout", lambda value: fsgather.barrier(timeout=value)),
    ("timeout", lambda value: fsgather.start_all_gather(1).wait(timeout=value)),
    ("timeout", lambda value: fsgather.Communicator(rank=0, world_size=1, timeout=value)),
    ("join_timeout", lambda value: fsgather.Communicator(rank=0, world_size=1, join_timeout=value)),
    ("inline_limit", lambda value: fsgather.Communicator(rank=0, world_size=1, inline_limit=value)),
    ("rank", lambda value: fsgather.Communicator(rank=value, world_size=2)),
    ("world_size", lambda value: fsgather.Communicator(rank=0, world_size=value)),
    ("max_size", lambda value: fsgather.Communicator.solo().all_gather(1, max_size=value)),
    ("max_size", lambda value: fsgather.compat.all_gather_list(1, max_size=value)),
    ("dst", lambda value: fsgather.gather_object(1, dst=value)),
    ("dst", lambda value: fsgather.gather_iter(1, dst=value)),
    ("dst", lambda value: fsgather.start_gather(1, dst=value)),
    ("dst", lambda value: fsgather.gather(numpy.zeros(2), dst=value)),
    ("dst", lambda value: fsgather.gather_samples({}, expected=0, dst=value)),
    ("expected", lambda value: fsgather.gather_samples({}, expected=value)),
    ("dim", lambda value: fsgather.gather(numpy.zeros(2), dim=value)),
    ("src", lambda value: fsgather.broadcast_object(1, src=value)),
    ("ranks", lambda value: fsgather.default_communicator().group([value])),
    ("color", lambda value: fsgather.default_communicator().split(value)),
    ("key", lambda value: fsgather.default_communicator().split(0, key=value)),
]


@pytest.mark.parametrize("value", [True, False, numpy.True_, numpy.array(False)], ids=repr)
@pytest.mark.parametrize(("name", "call"), NUMBERS, ids=range(len(NUMBERS)))
def test_true_and_false_are_refused_as_numbers(name: str, call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(TypeError) as raised:
        call(value)
    assert isinstance(raised.value, fsgather.ConfigError)
    assert str(raised.value).startswith(f"{name}={value!r} is not a "), raised.value


TORCH_ORDER: list[tuple[Callable[[], Any], str]] = [
    (lambda: fsgather.compat.all_gather_object([None], {"r": 0}), "write out = fsgather.all_gather(obj)"),
    (lambda: fsgather.compat.all_gather_object([None], None), "write out = fsgather.all_gather(obj)"),
    (lambda: fsgather.compat.all_gather_object([None], obj=1), "write out = fsgather.all_gather(obj)"),
    (lambda: fsgather.compat.all_gather_object(object_list=[None], obj=1), "write out = fsgather.all_gather(obj)"),
    (lambda: fsgather.gather_object(1, [None]), "write out = fsgather.gather_object(obj, dst=0)"),
    (lambda: fsgather.gather_object(1, None), "write out = fsgather.gather_object(obj, dst=0)"),
    (lambda: fsgather.gather_object(1, [None], 0), "write out = fsgather.gather_object(obj, dst=0)"),
    (lambda: fsgather.gather_object(1, [None], dst=0), "write out = fsgather.gather_object(obj, dst=0)"),
    (lambda: fsgather.gather_object(1, object_gather_list=[None], dst=0), "write out = fsgather.gather_object(obj, dst=0)"),
    (lambda: fsgather.all_gather([numpy.ones(1)], numpy.ones(1)), "write parts = fsgather.all_gather(tensor)"),
    (lambda: fsgather.gather(numpy.ones(1), [numpy.ones(1)]), "write joined = fsgather.gather(tensor, dst=0)"),
]


@pytest.mark.parametrize(("call", "hint"), TORCH_ORDER, ids=range(len(TORCH_ORDER)))
def test_argument_order_of_torch_is_recognised(call: Callable[[], Any], hint: str) -> None:
    with pytest.raises(fsgather.ConfigError) as raised:
        call()
    assert hint in str(raised.value) and "FSGATHER_PATCH=torch" in str(raised.value)


def test_lists_of_none_are_data_like_any_other() -> None:
    assert fsgather.compat.all_gather_object([None]) == [[None]]
    assert fsgather.compat.all_gather_object([None, 1], group=None) == [[None, 1]]


def test_signatures_list_the_options() -> None:
    options = "timeout: 'Seconds' = None, tag: 'Optional[str]' = None, site: 'Optional[str]' = None, allow_pickle: 'Optional[bool]' = None"
    assert str(inspect.signature(fsgather.all_gather)) == f"(data: 'T', group: 'Any' = None, *, {options}) -> 'list[T]'"
    assert str(inspect.signature(fsgather.Communicator.gather_iter)) == f"(self, data: 'T', dst: 'int' = 0, *, {options}) -> 'Gathering[T]'"


def test_functions_of_torch_that_are_missing_name_the_way() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'broadcast_object_list'; .*write objects = fsgather.broadcast_object\(objects, src=0\)"):
        fsgather.broadcast_object_list([1])  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'all_gather_object'; .*write out = fsgather.all_gather\(obj\)"):
        fsgather.all_gather_object([None], 1)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'all_gather_list'; write from fsgather.compat import all_gather_list$"):
        fsgather.all_gather_list(1)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'$"):
        fsgather.nonsense  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "call",
    [
        lambda: fsgather.gather([1, 2]),
        lambda: fsgather.gather(numpy.array(7)),
        lambda: fsgather.gather(numpy.ones(2), 1),
        lambda: fsgather.barrier(group=7),
        lambda: fsgather.compat.all_gather(1, force_cpu="yes"),  # type: ignore[arg-type]
        lambda: fsgather.compat.all_gather_object(),  # type: ignore[call-arg]
        lambda: fsgather.trace("file.txt"),
        lambda: copy.copy(fsgather.Communicator.solo()),
    ],
    ids=range(8),
)
def test_wrong_arguments_are_errors_of_fsgather(call: Callable[[], Any]) -> None:
    with pytest.raises(fsgather.ConfigError) as raised:
        call()

    assert isinstance(raised.value, TypeError) and isinstance(raised.value, ValueError)
