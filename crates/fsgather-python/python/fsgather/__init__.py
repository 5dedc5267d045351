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

from fsgather import torch as torch
from fsgather._communicator import Communicator
from fsgather._errors import (
    Config,
    Corrupt,
    Desync,
    Error,
    Incompatible,
    Incomplete,
    Mismatch,
    Missing,
    NotShared,
    PeerFailed,
    Poisoned,
    Rendezvous,
    Stack,
    Storage,
    Timeout,
    TooLarge,
)
from fsgather._fsgather import __version__
from fsgather._functions import (
    all_gather,
    all_gather_list,
    all_gather_object,
    all_gather_parts,
    all_gather_via_filesys,
    barrier,
    broadcast_object,
    close,
    default_communicator,
    gather,
    gather_iter,
    gather_object,
    start_all_gather,
    start_gather,
)
from fsgather._results import Gathering, Parts, Pending
from fsgather._samples import SampleResults, Samples, gather_samples, read_samples, samples
from fsgather._tracing import trace


def __getattr__(name: str) -> NoReturn:
    from fsgather import _torch_order

    raise _torch_order.missing(name)


__all__ = [
    "Communicator",
    "Config",
    "Corrupt",
    "Desync",
    "Error",
    "Gathering",
    "Incompatible",
    "Incomplete",
    "Mismatch",
    "Missing",
    "NotShared",
    "Parts",
    "PeerFailed",
    "Pending",
    "Poisoned",
    "Rendezvous",
    "SampleResults",
    "Samples",
    "Stack",
    "Storage",
    "Timeout",
    "TooLarge",
    "__version__",
    "all_gather",
    "all_gather_list",
    "all_gather_object",
    "all_gather_parts",
    "all_gather_via_filesys",
    "barrier",
    "broadcast_object",
    "close",
    "default_communicator",
    "gather",
    "gather_iter",
    "gather_object",
    "gather_samples",
    "read_samples",
    "samples",
    "start_all_gather",
    "start_gather",
    "trace",
]
