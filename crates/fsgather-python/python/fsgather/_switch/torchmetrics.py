"""TorchMetrics: all states of a metric in one call, in the place of ``Metric._sync_dist``.

The original makes a call of its own for each tensor in a state. Where ranks have seen different numbers of samples, some make more calls than
others, and wait for ever, or pair what does not belong together. Here a rank hands in what it has, however many that are. The order is the
original's: the first tensors of all ranks, then their second ones.
"""

from __future__ import annotations

import sys
from itertools import chain, zip_longest
from types import ModuleType
from typing import Any, Iterable, Optional

from fsgather._switch import meeting, replacing
from fsgather._switch.replacing import Call
from fsgather._switch.selection import Selection

__all__ = ["MODULES", "install"]

MODULES = ("torchmetrics.metric", "torchmetrics.detection.mean_ap")


def install(selection: Selection, module: ModuleType) -> None:
    """Replaces the methods, where they are as we know them."""
    base = getattr(module, "Metric", None) if module.__name__ == MODULES[0] else None
    if base is not None and replacing.check(base, {"_sync_dist": (("self", "dist_sync_fn", "process_group"),)}):
        replacing.replace(base, "_sync_dist", selection, _sync_states)
    boxes = getattr(module, "MeanAveragePrecision", None)
    if boxes is not None and replacing.check(boxes, {"_gather_tuple_list": (("list_to_gather", "process_group"),)}):
        replacing.replace(boxes, "_gather_tuple_list", selection, _gather_entries)
        boxes._gather_tuple_list = staticmethod(boxes._gather_tuple_list)


def _sync_states(call: Call, self: Any, dist_sync_fn: Any, process_group: Any) -> None:
    library = sys.modules[MODULES[0]]
    member = meeting.of(process_group or self.process_group)
    # What the program has given for the purpose is its own business.
    if member is None or dist_sync_fn is not library.gather_all_tensors:
        return call.original()  # type: ignore[no-any-return]
    own = {name: _handed_in(getattr(self, name), reduce is library.dim_zero_cat, library) for name, reduce in self._reductions.items()}
    everybodys = member.call("all_gather", {name: _detached(state) for name, state in own.items()}, site=call.site)
    # On all ranks or on none.
    if any(state is ... for part in everybodys for state in part.values()):
        return call.original()  # type: ignore[no-any-return]
    # Its own keep what autograd knows of them.
    everybodys[member.rank] = own
    for name, reduce in self._reductions.items():
        joined = _joined([part[name] for part in everybodys], self.device, library.torch)
        if joined is None:
            joined = getattr(self, name)
        elif isinstance(joined, list) and not joined and reduce is library.dim_zero_cat:
            joined = library.torch.tensor([], device=self.device, dtype=self.dtype)
        nothing = isinstance(joined, list) and not joined
        setattr(self, name, joined if reduce is None or nothing else reduce(joined))
    return None


def _handed_in(state: Any, is_joined: bool, library: Any) -> Any:
    """A tensor or a list of tensors; ``None`` for what has none in it and stays where it is, ``...`` for what we do not know."""
    tensor = library.torch.Tensor
    if isinstance(state, tensor):
        return state
    if isinstance(state, list) and all(isinstance(entry, tensor) for entry in state):
        return [library.dim_zero_cat(state)] if is_joined and state else list(state)
    return ... if _has(tensor, state) else None


def _has(kind: type, value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return any(_has(kind, entry) for entry in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, kind)


def _detached(state: Any) -> Any:
    if isinstance(state, list):
        return [entry.detach() for entry in state]
    return state.detach() if hasattr(state, "detach") else state


def _joined(states: list[Any], device: Any, torch: Any) -> Optional[Any]:
    """Everybody's, on this rank's device; ``None`` where each keeps its own."""
    if any(state is None for state in states):
        return None
    if not any(isinstance(state, list) for state in states):
        return torch.stack([state.to(device) for state in states])
    return [entry.to(device) for entry in _in_turns(state if isinstance(state, list) else [state] for state in states)]


def _in_turns(lists: Iterable[list[Any]]) -> list[Any]:
    return [entry for entry in chain.from_iterable(zip_longest(*lists)) if entry is not None]


def _gather_entries(call: Call, list_to_gather: list[Any], process_group: Any) -> Any:
    """The masks of ``MeanAveragePrecision``, which are no tensors; the original takes all ranks to have as many as the first."""
    member = meeting.of(process_group)
    return call.original() if member is None else _in_turns(member.call("all_gather", list_to_gather, site=call.site))
