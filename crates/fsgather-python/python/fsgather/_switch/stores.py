"""The stores of torch, without ever waiting in one: a client has one lock, and whoever waits in it keeps all others out."""

from __future__ import annotations

import socket
import time
from typing import Any, Callable, Optional

__all__ = ["holds", "is_there", "peek", "put", "remove", "text", "wait_until"]

#: Marks a key that is there, in stores that cannot be asked for one without waiting.
_THERE = "/there"


#: What no key holds.
_NOTHING = "-"


def is_there(store: Any) -> bool:
    """Whether the server of a store can be reached, as far as that can be told: a call that cannot complains on standard error."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    if not host or not port:
        return True
    try:
        socket.create_connection((host, port), 0.5).close()
    except OSError:
        return False
    return True


def put(store: Any, key: str, value: Any) -> None:
    """Sets a key."""
    store.set(key, value)
    if not hasattr(store, "check"):
        store.add(key + _THERE, 1)


def holds(store: Any, keys: list[str]) -> bool:
    """Whether the store has all these keys, without waiting for them.

    Before 2.0 only a number can be asked for so. A ``wait`` that is over leaves its late answer in the connection, where the next
    question takes it for its own.
    """
    check: Optional[Callable[[list[str]], bool]] = getattr(store, "check", None)
    if check is not None:
        return bool(check(keys))
    return all(store.add(key + _THERE, 0) > 0 for key in keys)


def peek(store: Any, key: str) -> Optional[str]:
    """What the store holds there, if it holds something. ``get`` would wait for a key that somebody removes at that moment."""
    compare_set = getattr(store, "compare_set", None)
    if compare_set is not None:
        try:
            # Only where it held this very text would something be set: the same.
            value = text(compare_set(key, _NOTHING, _NOTHING))
        except (RuntimeError, NotImplementedError):
            # Not every store can do that.
            pass
        else:
            return None if value == _NOTHING else value
    return text(store.get(key)) if holds(store, [key]) else None


def wait_until(
    is_so: Callable[[], bool],
    until: float,
    pauses: tuple[float, float] = (0.001, 0.05),
    pause: Callable[[float], object] = time.sleep,
) -> bool:
    """Whether a store comes to hold something by then, by asking again and again, with ``pauses`` from the shortest to the
    longest. A ``pause`` that returns something true is the last.

    A store's ``wait`` cannot be interrupted, and what its time-out leaves behind in the connection differs between versions.
    """
    seconds, longest = pauses
    while not is_so():
        left = until - time.monotonic()
        if left <= 0:
            return False
        if pause(min(seconds, left)):
            return False
        seconds = min(seconds * 1.5, longest)
    return True


def remove(store: Any, key: str) -> None:
    """Removes a key, where that can be done."""
    try:
        # The mark first: a key that is marked can be had.
        if not hasattr(store, "check"):
            store.delete_key(key + _THERE)
        store.delete_key(key)
    except (RuntimeError, NotImplementedError):
        # It costs a few bytes until the job ends; nobody takes it for a new one.
        pass


def text(value: Any) -> str:
    """What a store holds, as a text."""
    return bytes(value).decode("utf-8", "replace")
