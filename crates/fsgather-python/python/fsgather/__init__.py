"""Gathers results of many processes through a shared directory.

For jobs that run as several processes (*ranks*), perhaps on several hosts, each of which ends up with a part of the
results, and one or all of them need everything. Correct under failure, and needs no set-up:

>>> import fsgather
>>> for part in fsgather.gather_iter({"accuracy": 0.97}):  # on rank 0, one rank's at a time
...     print(part)
{'accuracy': 0.97}

Every call is *collective*: all ranks make it, in the same order. It returns the data of every rank, or raises the same
:class:`fsgather.Error` on all of them. All calls take these options:

- ``timeout``: the seconds without progress after which the call fails, as a number or a ``timedelta``; by default 30 minutes.
- ``tag``: the purpose of the call; ranks with different tags get a :class:`fsgather.DesyncError`.
- ``site``: the place of the call in messages; by default the file and line of the caller.
- ``allow_pickle``: ``False`` refuses objects that have to be pickled, on both sides.

Existing jobs of torch can be switched without a change in them: ``FSGATHER_PATCH=torch torchrun ... eval.py``. :mod:`fsgather.compat` has the
functions of other existing jobs, :mod:`fsgather.bootstraps` the engines that start ranks from Python.
"""

import typing as _typing

# The extension uses `_pickling` and `_terminating`. Importing them in a call would fail where no file can be opened, and hide the reason.
from fsgather import _errors, _functions, _pickling, _results, _terminating
from fsgather import bootstraps as bootstraps
from fsgather import compat as compat
from fsgather import torch as torch
from fsgather._communicator import Communicator
from fsgather._errors import *
from fsgather._fsgather import __version__
from fsgather._functions import *
from fsgather._results import *
from fsgather._samples import SampleResults, Samples, gather_samples, read_samples, samples
from fsgather._tracing import trace


if not _typing.TYPE_CHECKING:
    # Type checkers would take every name for one of ours.
    def __getattr__(name):
        from fsgather import _torch_order

        raise _torch_order.missing(name)


__all__ = [
    "Communicator",
    "SampleResults",
    "Samples",
    "__version__",
    "gather_samples",
    "read_samples",
    "samples",
    "trace",
]
__all__ += _errors.__all__
__all__ += _functions.__all__
__all__ += _results.__all__
