"""Gathers results of many processes through a shared directory.

For jobs that run as several processes (*ranks*), perhaps on several hosts, each of which ends up with a part of the
results, and one or all of them need everything. It needs no set-up; the launcher says which rank a process is:

>>> import fsgather
>>> world = fsgather.default_communicator()
>>> mine = [{"image": n, "score": 0.97} for n in range(world.rank, 2, world.world_size)]
>>> parts = fsgather.gather_object(mine, dst=0)  # on rank 0 one list for each rank; None elsewhere
>>> if parts is not None:
...     print(sum(len(part) for part in parts), "images")
2 images

Start it by ``srun``, ``mpirun`` or ``torchrun``, or on one host by ``fsgather run -n 4 -- python job.py``.

Every call is *collective*: all ranks make it, in the same order. It returns the data of every rank, or raises the same
:class:`Error` on all of them. After an error, later calls raise :class:`PoisonedError`. To try again, all ranks call :func:`close`, and the
next call joins anew:

>>> try:
...     fsgather.barrier()
... except fsgather.PeerFailedError as error:
...     print(f"rank {error.rank} on {error.host}: {error.reason}")
... except fsgather.TimeoutError as error:
...     print(f"ranks {error.missing} did not come to {error.during}")

Calls, except those of samples, take these options:

- ``timeout``: the seconds without progress after which the call fails, as a number or a ``timedelta``; by default 30 minutes.
- ``tag``: the purpose of the call; ranks with different tags get a :class:`DesyncError`.
- ``site``: the place of the call in messages; by default the file and line of the caller.
- ``allow_pickle``: ``False`` refuses objects that have to be pickled, on both sides.

Results by name that survive a crash of the job: :func:`samples`. One rank's data at a time: :func:`gather_iter`.

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
        """Raises the error of a name that is not here, which says what to write instead if torch or ``fsgather.compat`` has it."""
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
