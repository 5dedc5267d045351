"""What takes the place of TorchMetrics' own joining of states, with a metric that looks like one of its."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import pytest
from fsgather._switch import callers, meeting, selection, torchmetrics


class Tensor:
    """Enough of one."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def detach(self) -> Tensor:
        return Tensor(*self.values)

    def to(self, _device: Any) -> Tensor:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.values == other.values


def joined(tensors: Any) -> Tensor:
    """As ``dim_zero_cat``."""
    return tensors if isinstance(tensors, Tensor) else Tensor(*(value for tensor in tensors for value in tensor.values))


def original(_tensor: Tensor) -> None:
    """Stands for ``gather_all_tensors``."""


class World:
    """What two ranks hand in; this is the second one, with what the metric has."""

    rank = 1

    def __init__(self, others: dict[str, Any]) -> None:
        self.others = others
        self.handed_in: Any = None

    def call(self, name: str, mine: Any, site: str) -> list[Any]:
        assert name == "all_gather" and site
        self.handed_in = mine
        return [self.others, mine]


def synced(
    monkeypatch: pytest.MonkeyPatch, mine: dict[str, Any], others: dict[str, Any], reduce: Any = None, way: Any = original
) -> tuple[Any, Optional[World]]:
    """A metric with these states, after it was synchronised with another rank's."""

    class Metric:
        process_group = device = dtype = None

        def __init__(self) -> None:
            self._reductions = dict.fromkeys(mine, reduce)
            self.was_left_alone = False
            vars(self).update(mine)

        def _sync_dist(self, dist_sync_fn: Any = original, process_group: Any = None) -> None:
            self.was_left_alone = True

    library = ModuleType("torchmetrics.metric")
    torch = SimpleNamespace(Tensor=Tensor, stack=joined, tensor=lambda values, **_how: Tensor(*values))
    vars(library).update(Metric=Metric, torch=torch, dim_zero_cat=joined, gather_all_tensors=original)
    monkeypatch.setitem(sys.modules, "torchmetrics.metric", library)
    world = World(others)
    monkeypatch.setattr(meeting, "of", lambda _group: world)
    torchmetrics.install(selection.parse("torchmetrics"), library)
    metric = Metric()
    metric._sync_dist(way)
    return metric, world


def test_lists_of_different_lengths_are_joined_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Tensor(2)
    metric, _ = synced(monkeypatch, {"seen": [mine]}, {"seen": [Tensor(1), Tensor(3), Tensor(4)]})
    assert metric.seen == [Tensor(1), Tensor(2), Tensor(3), Tensor(4)]
    # With what autograd knows of it.
    assert metric.seen[1] is mine
    metric, _ = synced(monkeypatch, {"seen": []}, {"seen": [Tensor(1), Tensor(3)]})
    assert metric.seen == [Tensor(1), Tensor(3)]
    metric, _ = synced(monkeypatch, {"seen": []}, {"seen": []})
    assert metric.seen == [] and not metric.was_left_alone


def test_tensors_are_reduced_in_the_order_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    metric, _ = synced(monkeypatch, {"right": Tensor(7)}, {"right": Tensor(5)}, reduce=lambda both: sum(both.values))
    assert metric.right == 12


def test_lists_that_will_be_joined_travel_as_one_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    metric, world = synced(monkeypatch, {"scores": [Tensor(2), Tensor(3)]}, {"scores": [Tensor(0, 1)]}, reduce=joined)
    assert world is not None and world.handed_in == {"scores": [Tensor(2, 3)]}
    assert metric.scores == Tensor(0, 1, 2, 3)
    # A rank without samples says nothing of their type.
    metric, world = synced(monkeypatch, {"scores": []}, {"scores": []}, reduce=joined)
    assert world is not None and world.handed_in == {"scores": []} and metric.scores == Tensor()


def test_what_has_no_tensors_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    metric, world = synced(monkeypatch, {"masks": [(1, b"2")], "seen": []}, {"masks": [], "seen": [Tensor(1)]})
    assert world is not None and world.handed_in == {"masks": None, "seen": []}
    assert metric.masks == [(1, b"2")] and metric.seen == [Tensor(1)]


def test_what_is_not_known_is_left_to_the_original_on_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for mine, others in (([[Tensor(1)]], [Tensor(2)]), ([Tensor(1)], ...)):
        metric, _ = synced(monkeypatch, {"odd": mine}, {"odd": others})
        assert metric.was_left_alone and metric.odd == mine
    metric, world = synced(monkeypatch, {"seen": []}, {"seen": []}, way=lambda tensor: [tensor])
    assert metric.was_left_alone and world is not None and world.handed_in is None


def test_the_place_in_the_program_is_told_through_a_context_of_the_library() -> None:
    scope: dict[str, Any] = {"__name__": "torchmetrics.metric", "site": callers.site, "contextmanager": contextlib.contextmanager}
    exec("@contextmanager\ndef synced(told):\n    told.append(site(0))\n    yield\n", scope)
    told: list[str] = []
    with scope["synced"](told):
        line = sys._getframe().f_lineno - 1
    assert told == [f"test_switch_torchmetrics.py:{line}"]
