"""The communicators that the functions of :mod:`fsgather` work on: one for each run of an engine in this process, else one."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Hashable, Optional

from fsgather import _errors
from fsgather._communicator import Communicator
from fsgather.bootstraps import _runs

__all__ = ["close", "communicator", "end_run", "living"]


class _Place:
    """Where the communicator of one run is, or is being made: threads that are ranks of different runs make theirs beside each other."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.communicator: Optional[Communicator] = None


_lock = threading.Lock()
_places: dict[Optional[Hashable], _Place] = {}


def living() -> Optional[Communicator]:
    """The communicator that this process has made for the run of this thread, and that has not been closed."""
    run = _runs.taken_part_in()
    with _lock:
        place = _places.get(run) if _places else None
    if place is None:
        return None
    with place.lock:
        made = place.communicator
    return made if made is not None and not made.closed and made._pid == os.getpid() else None


def communicator() -> Communicator:
    """That of the run which this thread takes part in; the first call makes it."""
    place = _place()
    with place.lock:
        if place.communicator is None or place.communicator.closed:
            place.communicator = Communicator()
        return place.communicator


def close() -> None:
    """Ends that communicator together with all other ranks, if it was made; one whose failure was told already is left."""
    place = _place()
    with place.lock:
        made, place.communicator = place.communicator, None
    if made is not None:
        made.close()


def end_run(run: Hashable, error: Optional[BaseException]) -> None:
    """Ends the communicator of a run that is over here: with all others, or because of an error that they are told.

    Raises:
        fsgather.Error: another rank fails before all have ended.
    """
    with _lock:
        place = _places.pop(run, None)
    made = None if place is None else place.communicator
    if made is None or made.closed:
        return
    if error is not None:
        made.fail(error)
    elif made.failed:
        # Whoever has returned in spite of that has dealt with it.
        made._leave()
    else:
        made.close()


def _place() -> _Place:
    run = _runs.taken_part_in()
    with _lock:
        if run is None:
            return _of_a_helper()
        place = _places.get(run)
        if place is None:
            place = _places[run] = _Place()
            over = [other for other in _places if _runs.replaces(run, other)]
        else:
            over = []
    for other in over:
        # Who has begun another run does no more in that one.
        with contextlib.suppress(_errors.Error):
            end_run(other, RuntimeError("its rank takes part in another run of its engine by now"))
    return place


def _of_a_helper() -> _Place:
    """What a thread works on that belongs to no run by itself: it helps in the only one."""
    places = {run: place for run, place in _places.items() if not (isinstance(run, tuple) and _runs.ALONE in run)}
    if len(places) == 1:
        return next(iter(places.values()))
    if not places or None in places:
        return _places.setdefault(None, _Place())
    raise _errors.ConfigError(
        f"this thread takes part in none of the {len(places)} runs of this process; "
        "make a communicator in the thread of the run, by fsgather.Communicator(), and hand it over"
    )
