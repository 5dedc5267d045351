"""A picture of the calls that all ranks make in a part of a program."""

from __future__ import annotations

import os
from typing import Optional, Union

from fsgather import _errors, _fsgather, _functions
from fsgather._communicator import Communicator
from fsgather._logging import logger

__all__ = ["trace"]


class trace:
    """Draws the calls of all ranks in a block, for all ranks of a communicator together.

    >>> with fsgather.trace("step.html") as traced:  # doctest: +SKIP
    ...     results = evaluate(model)
    >>> print(traced.summary)  # doctest: +SKIP
    rank 5 came last in 312 of 400 calls and cost the others 41 min, mostly between eval.py:80 and eval.py:95

    When the block ends, its ranks hand over what they have called in it, the last 1000 calls at most, and rank 0 writes the
    file. All ranks have to come to its end, as to a call. If it ends with an exception on some rank nothing is drawn, which rank 0 is warned
    of: the calls stay, and ``fsgather trace`` draws them; ranks that go on after that can go on together. A file that cannot be written is
    warned of on rank 0, too, and fails nothing.

    Args:
        path: what rank 0 writes: a page with a picture if it ends in ``.html``, else JSON for Perfetto and Chrome.
        communicator: whose ranks; without it all, by the communicator that the functions share.
    """

    summary: Optional[str]
    """On rank 0, after the block: who came last how often, and what that cost the others. Elsewhere, and where
    ``FSGATHER_TRACE=off``, ``None``."""

    def __init__(
        self, path: Union[str, os.PathLike[str]] = "fsgather-trace.html", *, communicator: Optional[Communicator] = None
    ) -> None:
        self.path: str = os.fspath(path)
        self.summary = None
        if not self.path.endswith((".html", ".json")):
            raise _errors.ConfigError(f"path={self.path!r} must end in .html or .json")
        self._communicator = communicator
        self._group: Optional[Communicator] = None
        self._before = 0

    def __enter__(self) -> trace:
        if self._communicator is None:
            self._communicator = _functions.default_communicator()
        # What goes wrong at the end of a block is of no other call.
        self._group = self._communicator._group_of_all()
        calls = self._communicator._member.last_calls()
        self._before = calls[0] if calls else 0
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], _traceback: object) -> None:
        communicator, group = self._communicator, self._group
        if communicator is None or group is None:
            return
        self._group = None
        if error is not None:
            group.fail(error)
            return
        own = communicator._member.last_calls()
        try:
            handed_over = list(group.gather_iter((self._before, own[1]) if own else None))
            group.close()
        except _errors.PeerFailedError as failure:
            if communicator.failed:
                raise
            if communicator.rank == 0:
                logger().warning("these calls are not drawn: %s", failure)
            return
        if communicator.rank != 0:
            return
        drawn = _fsgather.draw_trace(self.path, [calls for calls in handed_over if calls])
        if drawn is not None:
            text, self.summary = drawn
            try:
                with open(self.path, "w", encoding="utf-8") as file:
                    file.write(text)
            except OSError as failure:
                # A picture is not worth a job.
                logger().warning("the trace of these calls cannot be written: %s", failure)
