"""One rank's membership of one group: :class:`Communicator`."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from types import TracebackType
from typing import Any, Callable, Iterator, Optional, Sequence, Union

from fsgather import _arguments, _arrays, _fsgather, _trust, _workers

__all__ = ["Communicator", "Gathering", "Pending"]

PathLike = Union[str, "os.PathLike[str]"]

HEAD = 16
"""What our layout adds to an object's bytes; not counted against bounds."""

_MOST_RANKS = 2**32 - 1
"""What the library counts to; it says itself how many a world may have."""


class Communicator:
    """One rank's membership of a group of ranks.

    Every method that communicates is *collective*: all ranks call it, in the same order. A call that returns has
    returned the right result: what every rank handed in, whole and verified, in rank order. A rank that fails, is
    lost or is late makes the call fail on every rank with the same :class:`fsgather.Error`, which names it; later
    calls then raise :class:`fsgather.Poisoned`.

    Waiting releases the interpreter lock and can be interrupted with Ctrl-C, which fails the call on all ranks. All
    times are in seconds.

    Without arguments it joins the world that the launcher and the variables ``FSGATHER_*`` describe, a world of one
    when there is nothing to be found.

    >>> import fsgather
    >>> with fsgather.Communicator(rank=0, world_size=1) as communicator:
    ...     communicator.all_gather({"score": 0.97})
    [{'score': 0.97}]

    Args:
        rank: which rank this process is; needs ``world_size``.
        world_size: how many ranks there are; needs ``rank``.
        directory: the shared directory in which ``all_gather_via_filesys/`` is made.
        rendezvous: how ranks meet: ``"file:///a/shared/directory"`` or ``"tcp://HOST:PORT"``.
        transport: how large payloads travel: ``"auto"``, ``"filesys"``, ``"memory"``.
        control: how ranks talk: ``"auto"``, ``"tcp"``, ``"markers"``.
        timeout: how long nothing may move before a call fails. Rank 0's counts.
        join_timeout: how long meeting may take.
        inline_limit: objects up to this many bytes travel with the control messages.
        job: tells jobs apart that share a directory.

    Raises:
        fsgather.Config: an argument or variable is wrong.
        fsgather.Timeout, fsgather.Rendezvous, fsgather.Storage, fsgather.NotShared: the ranks did not meet.
    """

    def __init__(
        self,
        *,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        directory: Optional[PathLike] = None,
        rendezvous: Optional[str] = None,
        transport: Optional[str] = None,
        control: Optional[str] = None,
        timeout: Optional[float] = None,
        join_timeout: Optional[float] = None,
        inline_limit: Optional[int] = None,
        job: Optional[str] = None,
        _publish: Optional[Callable[[bytes], object]] = None,
        _fetch: Optional[Callable[[float], bytes]] = None,
        _set_up_later: bool = False,
        _stop: Optional[_fsgather.Stop] = None,
    ) -> None:
        if rank is not None:
            rank = _arguments.whole("rank", rank, high=_MOST_RANKS - 1)
        if world_size is not None:
            world_size = _arguments.whole("world_size", world_size, low=1, high=_MOST_RANKS)
        if inline_limit is not None:
            inline_limit = _arguments.whole("inline_limit", inline_limit)
        rendezvous = _arguments.text("rendezvous", rendezvous)
        allow_pickle = _trust.allows_pickle(rendezvous, is_introduced=_publish is not None)
        is_told = rank is None and world_size is None
        if is_told:
            _workers.check_environment()
        self._adopt(
            _fsgather.Communicator.join(
                rank=rank,
                world_size=world_size,
                directory=_arguments.path("directory", directory),
                rendezvous=rendezvous,
                transport=_arguments.text("transport", transport),
                control=_arguments.text("control", control),
                timeout=_arguments.seconds("timeout", timeout),
                join_timeout=_arguments.seconds("join_timeout", join_timeout),
                inline_limit=inline_limit,
                job=_arguments.text("job", job),
                publish=_publish,
                fetch=_fetch,
                set_up_later=_set_up_later,
                stop=_stop,
            ),
            allow_pickle,
        )
        if is_told and self.world_size > 1:
            _workers.leave_mark(self.rank)

    def _adopt(self, member: _fsgather.Communicator, allow_pickle: bool) -> None:
        self._member = member
        self._allow_pickle = allow_pickle
        self._timeout: Optional[float] = None
        """That of calls that say nothing, where it is not the world's."""
        self._pid = os.getpid()
        self._rank_of_process = member.rank
        """What this process is called, in whatever group."""
        _living.add(self)

    @classmethod
    def _of(cls, member: _fsgather.Communicator, allow_pickle: bool, rank_of_process: Optional[int] = None) -> Communicator:
        communicator = cls.__new__(cls)
        communicator._adopt(member, allow_pickle)
        if rank_of_process is not None:
            communicator._rank_of_process = rank_of_process
        return communicator

    @classmethod
    def from_env(cls) -> Communicator:
        """Joins the world that the launcher and the variables ``FSGATHER_*`` describe."""
        return cls()

    @classmethod
    def solo(cls) -> Communicator:
        """A world of one: no file, no socket, no thread."""
        return cls._of(_fsgather.Communicator.solo(), _trust.allows_pickle(None, is_introduced=True))

    @classmethod
    def meet(
        cls,
        rank: int,
        world_size: int,
        publish: Callable[[bytes], object],
        fetch: Callable[[float], bytes],
        **settings: Any,
    ) -> Communicator:
        """Joins a world whose ranks a channel that exists already introduces to each other, such as a store.

        Args:
            rank: which rank this process is.
            world_size: how many ranks there are.
            publish: called once on rank 0 with the record that all others need. It holds a secret.
            fetch: called once on every other rank with the seconds that are left; returns the record, or raises.
            settings: further arguments of :class:`Communicator`.
        """
        if world_size == 1:
            return cls.solo()
        return cls(rank=rank, world_size=world_size, _publish=publish, _fetch=fetch, **settings)

    @property
    def rank(self) -> int:
        """Which rank this is."""
        return self._member.rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._member.world_size

    @property
    def closed(self) -> bool:
        """Whether it has been closed or given up here."""
        return self._member.closed

    def barrier(self, *, timeout: Optional[float] = None, site: Optional[str] = None) -> None:
        """Waits until every rank has come here.

        Args:
            timeout: how long nothing may move, in seconds; by default the communicator's.
            site: what messages call the place of the call; by default the caller's file and line.
        """
        self._member.barrier(self._how(site, timeout))

    def all_gather(self, data: Any, **how: Any) -> list[Any]:
        """Gathers everybody's object on every rank.

        Args:
            data: any object; see :func:`fsgather.all_gather` for how it travels.
            how: ``timeout``, ``site``, ``allow_pickle``, and ``transport`` and ``directory`` for this call alone.

        Returns:
            One object for each rank, in rank order. This rank's own is a copy as well.
        """
        return self._member.all_gather(data, self._how(**how))

    def all_gather_list(self, data: Any, *, max_size: int = 16384, **how: Any) -> list[Any]:
        """Gathers everybody's small object on every rank, if each fits into ``max_size`` bytes.

        Raises:
            fsgather.TooLarge: on every rank; names the rank whose object does not fit, and what it needs.
        """
        bound = _arguments.whole("max_size", max_size) + HEAD
        return self._member.all_gather(data, self._how(max_size=bound, **how))

    def gather(self, data: Any, dst: int = 0, **how: Any) -> Optional[list[Any]]:
        """Gathers everybody's object on rank ``dst``.

        Returns:
            On ``dst`` one object for each rank, in rank order; ``None`` elsewhere.
        """
        parts = self._member.gather(data, self._rank("dst", dst), self._how(**how))
        return None if parts is None else list(parts)

    def gather_iter(self, data: Any, dst: int = 0, **how: Any) -> Gathering:
        """Gathers everybody's object on rank ``dst``, which looks at one rank's at a time.

        The others go on as soon as all have handed in; what is handed over waits in files.

        Returns:
            On ``dst`` an iterator over one object for each rank, in rank order, each read when it is asked for;
            elsewhere one that is empty.
        """
        parts = self._member.gather(data, self._rank("dst", dst), self._how(**how))
        return Gathering(parts, self.world_size)

    def gather_array(self, array: Any, dim: int = 0, dst: Optional[int] = None, **how: Any) -> Any:
        """Joins the arrays or tensors of all ranks along ``dim``; see :func:`fsgather.gather`."""
        if dst is not None:
            dst = self._rank("dst", dst)
        return _arrays.gather(self, array, dim, dst, self._how(**how))

    def broadcast(self, data: Any, src: int = 0, **how: Any) -> Any:
        """Hands rank ``src``'s object to every rank; what the others pass in is not looked at.

        Returns:
            The object; on ``src`` itself the very one that was passed in.
        """
        return self._member.broadcast(data, self._rank("src", src), self._how(**how))

    def start_all_gather(self, data: Any, **how: Any) -> Pending:
        """Starts an :meth:`all_gather` whose result is asked for later.

        ``data`` has been published and announced when it returns, so that this rank can go on computing, and need
        not keep it. All ranks start their calls in the same order, and wait for them in any.
        """
        return Pending(self._member.start_all_gather(data, self._how(**how)), as_list=False)

    def start_gather(self, data: Any, dst: int = 0, **how: Any) -> Pending:
        """Starts a :meth:`gather` whose result is asked for later, like :meth:`start_all_gather`."""
        call = self._member.start_gather(data, self._rank("dst", dst), self._how(**how))
        return Pending(call, as_list=True)

    def group(self, ranks: Sequence[int]) -> Communicator:
        """Makes a communicator of some of this one's ranks, in the order given.

        Collective over these ranks alone. Several groups may gather at the same time, from several threads.
        """
        members = [self._rank("ranks", rank) for rank in ranks]
        return Communicator._of(self._member.group(members, self._how()), self._allow_pickle, self._rank_of_process)

    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """Parts all ranks into groups, one for each color; ``None`` for a rank that gave none.

        Within a group ranks are ordered by ``key``, and by their rank here where keys are equal, as in MPI.
        """
        if color is not None:
            color = _arguments.whole("color", color, high=2**32 - 1)
        key = _arguments.whole("key", key, low=-_arguments.LARGEST)
        group = self._member.split(color, key, self._how())
        return None if group is None else Communicator._of(group, self._allow_pickle, self._rank_of_process)

    def close(self) -> None:
        """Ends the communicator together with all other ranks, and leaves nothing behind.

        When it returns, everything that this rank took part in was read by all its recipients. Does nothing when
        it is closed already.
        """
        _living.discard(self)
        self._member.close(self._how())

    def fail(self, cause: Union[BaseException, str]) -> None:
        """Leaves and tells all other ranks why: they raise :class:`fsgather.PeerFailed`.

        Waits for nobody but those who read what only this process can give them, until they have not got on for 10 seconds.
        """
        _living.discard(self)
        if self._pid == os.getpid():
            self._member.leave(cause if isinstance(cause, str) else _text(cause))

    def _rank(self, name: str, value: Any) -> int:
        return _arguments.rank(name, value, self.world_size)

    def _how(
        self,
        site: Optional[str] = None,
        timeout: Optional[float] = None,
        *,
        allow_pickle: Optional[bool] = None,
        transport: Optional[str] = None,
        directory: Optional[PathLike] = None,
        max_size: Optional[int] = None,
        _like: Optional[str] = None,
    ) -> dict[str, Any]:
        """How one call is made, for the extension module.

        ``_like``, for replaced functions, says what the result has to be like: see :mod:`fsgather._pickling`.
        """
        if self._pid != os.getpid() and self.world_size > 1:
            raise _workers.refusal(self._rank_of_process, "have it make a communicator with rank= and world_size=")
        return {
            "like": _like,
            "site": _caller() if site is None else _arguments.text("site", site),
            "timeout": self._timeout if timeout is None else _arguments.seconds("timeout", timeout),
            "allow_pickle": self._allow_pickle
            if allow_pickle is None
            else _arguments.switch("allow_pickle", allow_pickle),
            "transport": _arguments.text("transport", transport),
            "directory": _arguments.path("directory", directory),
            "max_size": max_size,
        }

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if error is None:
            self.close()
        else:
            self.fail(error)

    def __repr__(self) -> str:
        if self.closed:
            return "<fsgather.Communicator, closed>"
        return f"<fsgather.Communicator, rank {self.rank} of {self.world_size}>"


class Gathering(Iterator[Any]):
    """The objects of all ranks in rank order, each read when it is asked for.

    What is not looked at is thrown away by :meth:`close`, by leaving a ``with`` block, or with the iterator.
    """

    def __init__(self, parts: Optional[_fsgather.Parts], ranks: int) -> None:
        self._parts = parts
        self._left = 0 if parts is None else ranks

    def __iter__(self) -> Gathering:
        return self

    def __next__(self) -> Any:
        if self._parts is None or self._left == 0:
            raise StopIteration
        part = next(self._parts)
        self._left -= 1
        if self._left == 0:
            self._parts.close()
        return part

    def __length_hint__(self) -> int:
        return self._left

    def close(self) -> None:
        """Throws away what has not been looked at yet."""
        self._left = 0
        if self._parts is not None:
            self._parts.close()

    def __enter__(self) -> Gathering:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Pending:
    """A call that has been started, and whose result has not been asked for yet.

    Dropping one gives up its result on this rank only.
    """

    def __init__(self, call: _fsgather.Pending, as_list: bool) -> None:
        self._call = call
        self._as_list = as_list
        self._result: Optional[tuple[Any]] = None
        self._lock = threading.Lock()

    def done(self) -> bool:
        """Whether all ranks have handed in, so that :meth:`wait` returns without waiting for them."""
        return self._look(0.0)

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for all ranks and returns the result, the same each time.

        Args:
            timeout: how long to wait, in seconds; by default for as long as it takes.

        Raises:
            TimeoutError: when somebody is still waited for after ``timeout``. Nothing is lost: wait again.
        """
        if not self._look(_arguments.seconds("timeout", timeout, low=0)):
            raise TimeoutError(f"the call has not come to its end after {timeout} s; it goes on")
        assert self._result is not None
        return self._result[0]

    def _look(self, timeout: Optional[float]) -> bool:
        with self._lock:
            if self._result is None:
                outcome = self._call.wait(timeout)
                if outcome is None:
                    return False
                (result,) = outcome
                if self._as_list and result is not None:
                    result = list(result)
                self._result = (result,)
            return True


def _caller() -> str:
    """The place in the program that has called us."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fsgather":
        frame = frame.f_back
    if frame is None:
        return "Python"
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _text(error: BaseException) -> str:
    """What other ranks are told of an exception."""
    said = str(error)
    name = type(error).__name__
    return f"{name}: {said}" if said else name


_living: weakref.WeakSet[Communicator] = weakref.WeakSet()


def _leave_all() -> None:
    """At the end of the process: leaves every communicator, and says why if that was an exception.

    While others have still to read what only this process can give them it stays, and says for whom; Ctrl-C ends that.
    """
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for communicator in list(_living):
        if communicator._pid == os.getpid():
            communicator._member.leave(None if error is None else _text(error))


atexit.register(_leave_all)
