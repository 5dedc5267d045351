"""Gathers results of many processes through a shared directory.

For jobs that run as several processes (*ranks*), perhaps on several hosts, each of which ends up with a part of the
results, and one or all of them need everything. Correct under failure, and needs no set-up:

>>> import fsgather
>>> for part in fsgather.gather_iter({"accuracy": 0.97}):  # on rank 0, one rank's at a time
...     print(part)
{'accuracy': 0.97}

Existing jobs of torch can be switched without a change in them: ``FSGATHER_PATCH=torch torchrun ... eval.py``.
"""

from typing import NoReturn

from fsgather import _errors, _functions, _results
from fsgather import torch as torch
from fsgather._communicator import Communicator
from fsgather._errors import *
from fsgather._fsgather import __version__
from fsgather._functions import *
from fsgather._results import *
from fsgather._samples import SampleResults, Samples, gather_samples, read_samples, samples
from fsgather._tracing import trace


def __getattr__(name: str) -> NoReturn:
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
