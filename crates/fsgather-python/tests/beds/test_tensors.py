"""Tensors of torch inside of objects: what they carry, what they share, and where they come back."""

from __future__ import annotations

import fsgather
import pytest
import torch


def carried(value):
    """The value as another rank gets it."""
    with fsgather.Communicator.solo() as alone:
        return alone.all_gather(value)[0]


class Box:
    """Not plain data, so that pickle carries what is in it."""

    def __init__(self, content):
        self.content = content


def by_codec(value):
    return carried(value)


def by_pickle(value):
    return carried(Box(value)).content


both = pytest.mark.parametrize("way", [by_codec, by_pickle])


@both
@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3),
        torch.arange(100_000),
        torch.arange(100_000).reshape(100, 1000).t(),
        torch.arange(100_000).reshape(100, 1000)[:, ::7],
        torch.tensor(7),
        torch.zeros(3, 0),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(70_000, dtype=torch.bfloat16),
        torch.ones(3).to(torch.float8_e4m3fn),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        torch.tensor([float("nan"), -0.0, float("inf")]),
        torch.ones(3, requires_grad=True),
        torch.ones(4).expand(3, 4),
    ],
)
def test_tensors_come_back_as_they_were(way, tensor):
    back = way(tensor)
    assert type(back) is torch.Tensor
    assert (back.dtype, back.shape, back.requires_grad) == (tensor.dtype, tensor.shape, tensor.requires_grad)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    assert torch.equal(back.detach().contiguous().view(bits), tensor.detach().contiguous().view(bits))
    with torch.no_grad():
        back.contiguous().fill_(0)


@both
def test_what_shares_memory_goes_on_sharing_it(way):
    whole = torch.zeros(50_000)
    one, other, later = way([whole[:10], whole[5:20], whole[40_000:]])
    one[7] = 1
    assert other[2] == 1
    assert later.shape == (10_000,) and not later.any()
    same, again = way([whole, whole])
    assert same is again


@both
def test_a_view_carries_only_its_own_elements(way):
    whole = torch.zeros(1_000_000)
    back = way(whole[10:12])
    assert back.untyped_storage().nbytes() < 1000


@both
def test_what_is_more_than_elements_goes_torchs_own_way(way):
    sparse = torch.eye(3).to_sparse()
    assert torch.equal(way(sparse).to_dense(), torch.eye(3))
    parameter = torch.nn.Parameter(torch.ones(2))
    assert type(way(parameter)) is torch.nn.Parameter
    model = torch.nn.Linear(200, 200)
    back = way(model)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), back.parameters()))
    result = parameter * 2
    assert torch.equal(way(result.detach()), result.detach())
    tied = torch.nn.ModuleList([model, model])
    first, second = way(tied)
    assert first is second


@both
def test_results_of_autograd_are_carried_as_pickle_would(way):
    import pickle

    value = torch.ones(3, requires_grad=True) * 2
    back, expected = way(value), pickle.loads(pickle.dumps(value))
    assert torch.equal(back, expected) and back.requires_grad == expected.requires_grad
