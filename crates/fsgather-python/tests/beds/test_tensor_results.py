"""Tensors from replaced functions and from ``gather``; ``switch/alike.py`` has more, with real ranks and in every state of a process."""

from __future__ import annotations

import fsgather
import kinds
import torch
from conftest import World
from fsgather import _pickling, _tensors
from test_alike import carried
from torch.overrides import TorchFunctionMode


def test_tensors_that_share_memory_come_back_apart():
    base = torch.arange(8.0)
    for wrap in (list, kinds.Box):
        back = carried(wrap([base, base[2:5], base]))
        back = back if wrap is list else back.content
        back[0][2] = 99
        assert back[1].tolist() == [2, 3, 4]
        assert back[2] is back[0]


def test_modes_are_not_asked_about_what_travels():
    class Refusing(TorchFunctionMode):
        def __torch_function__(self, function, kinds, arguments=(), named=None):
            raise AssertionError(f"asked about {function}")

    value = [torch.ones(3), torch.ones(0), torch.arange(100_000)[::3]]
    for state in (Refusing(), torch.device("meta"), torch.inference_mode()):
        with state:
            back = carried(value, None)
        assert [tuple(each.shape) for each in back] == [(3,), (0,), (33_334,)]
        assert {each.device.type for each in back} == {"cpu"}


def test_a_default_device_does_not_matter():
    torch.set_default_device("meta")
    try:
        back = carried([torch.ones(3, device="cpu"), kinds.Box(torch.ones(2, device="cpu"))], None)
        with fsgather.Communicator.solo() as alone:
            joined = alone.gather(torch.ones(3, device="cpu"))
    finally:
        torch.set_default_device(None)
    assert back[0].tolist() == [1, 1, 1] and back[1].content.tolist() == [1, 1]
    assert joined.tolist() == [1, 1, 1]


def test_tensors_go_back_to_where_they_were():
    _pickling._current.contents = [torch.ones(3)]
    back = _tensors._on_device(0, "meta", True)
    assert back.device.type == "meta" and back.requires_grad and back.is_leaf


def test_tensors_are_joined(world: World) -> None:
    told = world.start(
        2,
        """
        import torch

        for dtype in [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.float8_e4m3fn, torch.complex64]:
            whole = torch.arange(40_000).reshape(100, 400).remainder(7).to(dtype)
            own = whole[:30] if rank == 0 else whole[30:]
            joined = fsgather.gather(own)
            assert joined.dtype == dtype and torch.equal(joined.float(), whole.float()), dtype
            joined = fsgather.gather(own.t(), dim=1, dst=1)
            assert (joined is None) if rank == 0 else torch.equal(joined.float(), whole.t().float())
        learned = fsgather.gather(torch.ones(2, requires_grad=True))
        assert learned.shape == (4,) and not learned.requires_grad
        tell("done")
        """,
    ).told()
    assert told == [["done"]] * 2
