"""Processes of a JAX job: introduced by the store of keys that ``jax.distributed`` has brought up."""

from __future__ import annotations

import sys
from typing import Any, Optional

from fsgather.bootstraps.key_value import KeyValue

__all__: list[str] = []

_LOOK_MS = 20


class Jax(KeyValue):
    """Introduces the processes of a job by JAX's coordination service."""

    def __init__(self, state: Any) -> None:
        # One name for all worlds: a rank that has failed alone would be at another number than the rest.
        super().__init__(state.process_id, state.num_processes, "world")
        self._client = state.client

    def set(self, key: str, value: bytes) -> None:
        self._client.key_value_set_bytes(key, value, allow_overwrite=True)

    def get(self, key: str) -> Optional[bytes]:
        try:
            value: bytes = self._client.blocking_key_value_get_bytes(key, _LOOK_MS)
        except Exception as error:  # Of a type that JAX does not name.
            if "DEADLINE_EXCEEDED" in str(error) or "NOT_FOUND" in str(error):
                return None
            raise
        return value

    def delete(self, key: str) -> None:
        self._client.key_value_delete(key)


def find() -> Optional[Jax]:
    """Whether ``jax.distributed`` is initialised in this process."""
    distributed = sys.modules.get("jax._src.distributed")
    state: Any = getattr(distributed, "global_state", None)
    if getattr(state, "client", None) is None or state.num_processes < 2:
        return None
    return Jax(state)
