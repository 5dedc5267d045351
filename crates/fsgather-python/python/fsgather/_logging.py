"""The logger ``fsgather`` of Python's ``logging``, and what ``FSGATHER_LOG`` means to it."""

from __future__ import annotations

import logging
import sys
import time
from typing import Optional

__all__ = ["listen", "logger"]


class _StandardError(logging.Handler):
    """Prints records on standard error if the program has set up no logging, as Python itself does, with their origin."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("fsgather: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a record, unless a handler of the program's gets it."""
        source: Optional[logging.Logger] = logging.getLogger(record.name)
        while source is not None:
            if any(handler is not self for handler in source.handlers):
                return
            source = source.parent if source.propagate else None
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


_standard_error = _StandardError()
logging.getLogger("fsgather").addHandler(_standard_error)


def logger(name: str = "fsgather") -> logging.Logger:
    """Returns the logger ``fsgather``, or one below it."""
    return logging.getLogger(name)


def listen(level: int) -> None:
    """Lets the logger ``fsgather`` pass records from this level on.

    If a program has set up no logging they go to standard error: a user who sets the variable wants to see them. If more than
    warnings is wanted, they have the time.
    """
    logging.getLogger("fsgather").setLevel(level)
    line = "fsgather: %(levelname)s: %(message)s"
    if level <= logging.INFO:
        line = f"%(asctime)s.%(msecs)03dZ {line}"
    formatter = logging.Formatter(line, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    _standard_error.setLevel(logging.NOTSET)
    _standard_error.setFormatter(formatter)
