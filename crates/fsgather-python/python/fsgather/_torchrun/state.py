"""The state of a rendezvous, as torch pickles it: :func:`shifted` by the difference of two clocks, after a look at what is in it."""

from __future__ import annotations

import io
import pickle
from datetime import timedelta
from typing import Any

__all__ = ["is_closed", "shifted"]

_TORCH = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
_ALLOWED = {
    (_TORCH, "_RendezvousState"),
    (_TORCH, "_NodeDesc"),
    ("datetime", "datetime"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("builtins", "set"),
}
"""What such a state consists of. Whatever else is in a file would be code of whoever has written it."""


def shifted(state: bytes, seconds: float) -> bytes:
    """The same state with all its times so much later.

    Agents compare times that others have noted with their own clock. Kept by the clock of the file server, and read by
    each agent's own, they mean the same on hosts whose clocks differ.
    """
    found = _read(state)
    by = timedelta(seconds=seconds)
    if found.deadline is not None:
        found.deadline += by
    found.last_heartbeats = {node: when + by for node, when in found.last_heartbeats.items()}
    return pickle.dumps(found)


def is_closed(state: bytes) -> bool:
    """Whether nobody can join any more."""
    return bool(_read(state).closed)


def _read(state: bytes) -> Any:
    return _Reader(io.BytesIO(state)).load()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"the state of a rendezvous holds a {module}.{name}")
        return super().find_class(module, name)
