"""The world of calls that name no group, where torch has a world as well."""

from __future__ import annotations

import logging

import fsgather
import pytest
from conftest import World
from fsgather import _default, _fsgather

ENGINE = """
import types

def make_engine():
    "As an engine does that makes a world of torch for itself."
    torch = types.ModuleType("torch.distributed")
    torch.is_available = torch.is_initialized = lambda: True
    torch.get_rank, torch.get_world_size = lambda: 0, lambda: 1
    sys.modules["torch.distributed"] = torch
"""


def test_communicator_outlives_a_later_world_of_torch(world: World) -> None:
    told = world.start(
        2,
        ENGINE
        + """
fsgather.barrier()
make_engine()
tell([fsgather.all_gather(rank), fsgather.compat.all_gather_object([rank]), fsgather.default_communicator().world_size])
""",
    ).told()
    assert told == [[[[0, 1], [[0], [1]], 2]]] * 2


def test_other_world_of_torch_is_an_error_before_the_first_call(world: World) -> None:
    told = world.start(
        2,
        ENGINE
        + """
make_engine()
try:
    fsgather.all_gather(rank)
except fsgather.ConfigError as error:
    tell([str(error), fsgather.all_gather(rank, group=fsgather.Communicator())])
""",
    ).told()
    for rank, ((said, gathered),) in enumerate(told):
        assert said.startswith(
            f"torch.distributed is initialised as rank 0 of 1, but this process is rank {rank} of 2, by fsgather's own variables "
            "(FSGATHER_RANK and FSGATHER_WORLD_SIZE); to gather over the latter, "
        )
        assert "group=torch.distributed.group.WORLD" in said
        assert gathered == [0, 1]


def test_left_over_variables_make_no_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(fsgather.ConfigError, match="FLUX_JOB_SIZE=4"):
        _default._check(_default._World(0, 1))
    _default._check(_default._World(0, 2))
    fsgather.close()


def test_torch_world_that_replaces_another_is_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_fsgather, "launched_rank", lambda: None)
    with caplog.at_level(logging.WARNING, "fsgather"):
        _default._check(_default._World(2, 4))
        _default._check(_default._World(2, 4))
        assert caplog.messages == []
        _default._check(_default._World(0, 1))
        assert caplog.messages == ["torch.distributed is initialised anew: calls without a group are now over its 1 ranks, before over 4"]
        caplog.clear()
        fsgather.close()
        _default._check(_default._World(2, 4))
        assert caplog.messages == []
    fsgather.close()
