"""One rank's membership of one group: :class:`Communicator`."""

from __future__ import annotations

import contextlib
import itertools
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Optional, Sequence, TypeVar, Union, overload

from fsgather import _arguments, _arrays, _errors, _fsgather, _leaving, _tracebacks, _trust, _workers
from fsgather._arguments import PathLike, Seconds, Transport
from fsgather._results import Gathering, Parts, Pending
from fsgather._sites import caller
from fsgather.bootstraps import Bootstrap
from fsgather.bootstraps._choice import carriers, introducing
from fsgather.bootstraps.key_value import KeyValue

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fsgather._arguments import CallOptions, JoinSettings

__all__ = ["Communicator"]

T = TypeVar("T")

_OF_ALL = 2**62
"""Where numbers of our own groups begin, above those of others."""

_MOST_RANKS = 2**32 - 1
"""What the library counts to; it says itself how many a world may have."""


class Communicator:
    """One rank's membership of a group of ranks.

    Every method that communicates is *collective*: all ranks call it, in the same order. A call that returns has
    returned the right result: what every rank handed in, whole, in rank order. A rank that fails, is
    lost or is late makes the call fail on every rank with the same :class:`fsgather.Error`, which names it; later
    calls then raise :class:`fsgather.PoisonedError`.

    Waiting releases the interpreter lock and can be interrupted with Ctrl-C, which fails the call on all ranks. All
    times are in seconds.

    Without arguments it joins the world that the launcher and the variables ``FSGATHER_*`` describe, else the one of the engine that has
    started this process (:mod:`fsgather.bootstraps`), and a world of one when there is nothing to be found.

    >>> import fsgather
    >>> with fsgather.Communicator(rank=0, world_size=1) as communicator:
    ...     communicator.all_gather({"score": 0.97})
    [{'score': 0.97}]

    Args:
        rank: which rank this process is; needs ``world_size``.
        world_size: how many ranks there are; needs ``rank``.
        directory: the shared directory in which ``all_gather_via_filesys/`` is made.
        rendezvous: how ranks meet: ``"file:///a/shared/directory"``, ``"tcp://HOST:PORT"``, or ``"ray:"`` and the like.
        transport: how large payloads travel: ``"auto"``, ``"filesys"``, ``"memory"``.
        control: how ranks talk: ``"auto"``, ``"tcp"``, ``"markers"``.
        timeout: how long nothing may move before a call fails. Rank 0's counts.
        join_timeout: how long meeting may take.
        inline_limit: objects up to this many bytes travel with the control messages.
        verify: which payloads have checksums: ``"host"``, those that travel; ``"always"``; ``"off"``. The strictest counts.
        job: tells jobs apart that share a directory.
        bootstrap: an engine that introduces the ranks and says which this is; see :mod:`fsgather.bootstraps`.
        comm: a communicator of mpi4py whose ranks these are.

    Raises:
        fsgather.ConfigError: an argument or variable is wrong.
        fsgather.TimeoutError, fsgather.RendezvousError, fsgather.StorageError, fsgather.NotSharedError: the ranks did not meet.
    """

    def __init__(
        self,
        *,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        rendezvous: Optional[str] = None,
        bootstrap: Optional[Bootstrap] = None,
        comm: Any = None,
        **settings: Unpack[JoinSettings],
    ) -> None:
        rendezvous = _arguments.text("rendezvous", rendezvous)
        looks = rank is None and world_size is None
        seconds = _arguments.seconds("join_timeout", settings.get("join_timeout"))
        found = introducing(bootstrap, comm, rendezvous, looks, seconds)
        if found is None:
            if looks:
                _workers.check_environment()
            self._join(rank, world_size, rendezvous, settings)
            if looks and self.world_size > 1:
                _workers.leave_mark(self.rank)
            return
        stop, have_met = _fsgather.Stop(), False
        if isinstance(found, KeyValue):
            found.tell_failure = stop.end
        try:
            self._join(found.rank, found.world_size, None, settings, carriers(found, seconds), stop=stop)
            have_met = True
        finally:
            if isinstance(found, KeyValue):
                found.close(have_met)

    def _join(
        self,
        rank: Optional[int],
        world_size: Optional[int],
        rendezvous: Optional[str],
        settings: JoinSettings,
        channel: Optional[tuple[Callable[[bytes], object], Callable[[float], bytes]]] = None,
        *,
        set_up_later: bool = False,
        stop: Optional[_fsgather.Stop] = None,
        site: Optional[str] = None,
        numbers: Optional[Sequence[int]] = None,
    ) -> None:
        """Joins the world; ``channel`` is how the record of rank 0 is published and fetched, if not through a rendezvous."""
        publish, fetch = channel or (None, None)
        limit = settings.get("inline_limit")
        made = {
            "rank": None if rank is None else _arguments.whole("rank", rank, high=_MOST_RANKS - 1),
            "world_size": None if world_size is None else _arguments.whole("world_size", world_size, low=1, high=_MOST_RANKS),
            "directory": _arguments.path("directory", settings.get("directory")),
            "rendezvous": rendezvous,
            "transport": _arguments.text("transport", settings.get("transport")),
            "control": _arguments.text("control", settings.get("control")),
            "timeout": _arguments.seconds("timeout", settings.get("timeout")),
            "join_timeout": _arguments.seconds("join_timeout", settings.get("join_timeout")),
            "inline_limit": None if limit is None else _arguments.whole("inline_limit", limit),
            "verify": _arguments.text("verify", settings.get("verify")),
            "job": _arguments.text("job", settings.get("job")),
        }
        stop = stop or _fsgather.Stop()
        allow_pickle = _trust.allows_pickle(rendezvous, is_introduced=channel is not None)
        with _leaving.meeting(stop):
            member = _fsgather.Communicator.join(
                made, site=site or caller(), publish=publish, fetch=fetch, set_up_later=set_up_later, stop=stop, numbers=numbers
            )
        self._adopt(member, allow_pickle)

    def _adopt(self, member: _fsgather.Communicator, allow_pickle: bool) -> None:
        self._member = member
        self._allow_pickle = allow_pickle
        self._timeout: Optional[float] = None
        """That of calls that say nothing, where it is not the world's."""
        self._groups_of_all = itertools.count(1)
        self._pid = os.getpid()
        self._rank_here, self._size = member.rank, member.world_size
        self._rank_of_process = member.name_of(member.rank)
        """What messages call this process, in whatever group."""
        _leaving.living.add(self)
        _leaving.watch()

    @classmethod
    def _of(cls, member: _fsgather.Communicator, allow_pickle: bool) -> Communicator:
        communicator = cls.__new__(cls)
        communicator._adopt(member, allow_pickle)
        return communicator

    @classmethod
    def solo(cls) -> Communicator:
        """A world of one: no file, no socket, no thread."""
        return cls._of(_fsgather.Communicator.solo(), _trust.allows_pickle(None, is_introduced=True))

    @classmethod
    def _meet(
        cls,
        rank: int,
        world_size: int,
        publish: Callable[[bytes], object],
        fetch: Callable[[float], bytes],
        timeout: Seconds = None,
        **how: Any,
    ) -> Communicator:
        """Joins a world whose rank 0 publishes one record, which all others fetch; ``how`` is further arguments of ``_join``."""
        if world_size == 1:
            return cls.solo()
        communicator = cls.__new__(cls)
        communicator._join(rank, world_size, None, {"timeout": timeout}, (publish, fetch), **how)
        return communicator

    @property
    def rank(self) -> int:
        """Which rank this is; also after it was closed."""
        return self._rank_here

    @property
    def world_size(self) -> int:
        """How many ranks there are; also after it was closed."""
        return self._size

    @property
    def closed(self) -> bool:
        """Whether it has been closed or given up here."""
        return self._member.closed

    @property
    def failed(self) -> bool:
        """Whether a call has failed, or this rank has been told of a failure: all later calls raise. Asks nobody.

        A program that tries again makes another communicator then, as all other ranks have to.
        """
        return self._member.failed

    def with_options(self, *, transport: Optional[Transport] = None, directory: Optional[PathLike] = None) -> Communicator:
        """The same membership through another handle, whose large objects travel in another way.

        Making a handle is local and cheap, and all handles share the order of calls. All ranks have to make each call through handles with
        the same options; if they differ, the call raises :class:`fsgather.DesyncError` on all of them at once. Closing one handle closes all.

        Args:
            transport: how large objects travel: ``"auto"``, ``"filesys"``, ``"memory"``; by default as through this handle.
            directory: the shared directory; by default as through this handle.
        """
        handle = Communicator.__new__(Communicator)
        handle.__dict__.update(self.__dict__)
        handle._member = self._member.with_options(_arguments.text("transport", transport), _arguments.path("directory", directory))
        _leaving.living.add(handle)
        return handle

    def barrier(self, **options: Unpack[CallOptions]) -> None:
        """Waits until every rank has called it."""
        self._member.barrier(self._how(options))

    def all_gather(self, data: T, *, max_size: Optional[int] = None, **options: Unpack[CallOptions]) -> list[T]:
        """Gathers all ranks' objects on every rank.

        Args:
            data: any object; see :func:`fsgather.all_gather`.
            max_size: the most bytes that an encoded object may have; a larger one is a :class:`fsgather.TooLargeError` on every rank.

        Returns:
            One object for each rank, in rank order. This rank's own is a copy as well.
        """
        if max_size is not None:
            max_size = _arguments.whole("max_size", max_size)
        return self._member.all_gather(data, self._how(options, max_size=max_size))

    def all_gather_parts(self, data: T, **options: Unpack[CallOptions]) -> Parts[T]:
        """Gathers all ranks' objects on every rank, where each is decoded on first access.

        For large lists and dictionaries that not every rank reads: an object that is not read costs no decoding, and no memory except for the
        received bytes, which ranks of a host share if there is room.

        Returns:
            A sequence of one object for each rank, in rank order.
        """
        return Parts(self._member.all_gather_payloads(data, self._how(options)))

    def gather(self, tensor: Any, dim: int = 0, dst: Optional[int] = None, **options: Unpack[CallOptions]) -> Any:
        """Joins the tensors or arrays of all ranks along ``dim``; see :func:`fsgather.gather`.

        :meth:`gather_object` gathers other objects.
        """
        if dst is not None:
            dst = self._rank("dst", dst)
        return _arrays.gather(self, tensor, dim, dst, self._how(options))

    def gather_object(self, data: T, dst: int = 0, **options: Unpack[CallOptions]) -> Optional[list[T]]:
        """Gathers all ranks' objects on rank ``dst``.

        Returns:
            On ``dst`` one object for each rank, in rank order; ``None`` elsewhere.
        """
        parts = self._member.gather(data, self._rank("dst", dst), self._how(options))
        return None if parts is None else list(parts)

    def gather_iter(self, data: T, dst: int = 0, **options: Unpack[CallOptions]) -> Gathering[T]:
        """Gathers all ranks' objects on rank ``dst``, which holds one rank's at a time.

        The other ranks continue as soon as all have called it; their objects wait in files.

        Returns:
            On ``dst`` an iterator over one object for each rank, in rank order, each read on demand; elsewhere an empty one.
        """
        return Gathering(self._member.gather(data, self._rank("dst", dst), self._how(options)), self._size)

    def broadcast_object(self, data: T, src: int = 0, **options: Unpack[CallOptions]) -> T:
        """Returns rank ``src``'s object on every rank, on ``src`` the very one; the objects of the others are ignored."""
        received: T = self._member.broadcast(data, self._rank("src", src), self._how(options))
        return received

    def start_all_gather(self, data: T, **options: Unpack[CallOptions]) -> Pending[list[T]]:
        """Starts an :meth:`all_gather`, and returns once ``data`` is published, so that this rank can compute on.

        All ranks start their calls in the same order, and wait for them in any.
        """
        how = self._how(options)
        return Pending(self._member.start_all_gather(data, how), as_list=False, name=f"all_gather at {how['site']}")

    def start_gather(self, data: T, dst: int = 0, **options: Unpack[CallOptions]) -> Pending[Optional[list[T]]]:
        """Starts a :meth:`gather_object`, as :meth:`start_all_gather` does."""
        how = self._how(options)
        call = self._member.start_gather(data, self._rank("dst", dst), how)
        return Pending(call, as_list=True, name=f"gather to rank {dst} at {how['site']}")

    def group(self, ranks: Sequence[int]) -> Communicator:
        """Makes a communicator of some of this one's ranks, in the order given.

        Collective over these ranks alone. Several groups may gather at the same time, from several threads.
        """
        members = [self._rank("ranks", rank) for rank in _arguments.several("ranks", ranks)]
        return Communicator._of(self._member.group(members, self._how({})), self._allow_pickle)

    @overload
    def split(self, color: int, key: int = 0) -> Communicator: ...
    @overload
    def split(self, color: None, key: int = 0) -> None: ...
    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """Parts all ranks into groups, one for each color; ``None`` for a rank that gave none.

        Within a group ranks are ordered by ``key``, and by their rank here where keys are equal, as in MPI.
        """
        if color is not None:
            color = _arguments.whole("color", color, high=2**32 - 1)
        key = _arguments.whole("key", key, low=-_arguments.LARGEST)
        group = self._member.split(color, key, self._how({}))
        return None if group is None else Communicator._of(group, self._allow_pickle)

    def _group_of_all(self) -> Communicator:
        """A group of all ranks, which all of them make as often; nobody is waited for."""
        member = self._member.group_agreed_on(list(range(self.world_size)), _OF_ALL + next(self._groups_of_all))
        return Communicator._of(member, self._allow_pickle)

    def close(self) -> None:
        """Ends the communicator together with all other ranks, and leaves nothing behind.

        When it returns and no call has failed, everything that this rank took part in was read by all its recipients. Does nothing when
        it is closed already. A failure that a call has raised before is not raised again.
        """
        _leaving.living.discard(self)
        # A call has raised that failure; this one only ends what is left.
        with contextlib.suppress(_errors.PoisonedError):
            self._member.close(self._how({}))

    def fail(self, cause: Union[BaseException, str]) -> None:
        """Leaves and tells all other ranks why: they raise :class:`fsgather.PeerFailedError`.

        Waits for nobody but those who read what only this process can give them, until they have not got on for 10 seconds.
        """
        _leaving.living.discard(self)
        if self._pid == os.getpid():
            self._member.leave(cause if isinstance(cause, str) else _leaving.text(cause))

    def _leave(self) -> None:
        """Leaves without the others, as the end of the process does."""
        _leaving.living.discard(self)
        if self._pid == os.getpid():
            self._member.leave(None)

    def _call_like(self, like: str, name: str, *arguments: Any, site: Optional[str] = None, max_size: Optional[int] = None) -> Any:
        """Makes a call for a replaced function, whose result has to be like that function's."""
        bound = None if max_size is None else _arguments.whole("max_size", max_size)
        result = getattr(self._member, name)(*arguments, self._how({"site": site}, like=like, max_size=bound))
        return list(result) if isinstance(result, _fsgather.Parts) else result

    def _check_call(self, dst: int = 0, **options: Unpack[CallOptions]) -> None:
        """Refuses wrong arguments of a call that has nothing to do in a world of one."""
        self._rank("dst", dst)
        self._how(options)

    def _rank(self, name: str, value: Any) -> int:
        return _arguments.rank(name, value, self.world_size)

    def _how(self, options: CallOptions, **more: Any) -> dict[str, Any]:
        """Returns the options of one call as the extension module takes them.

        ``like``, for replaced functions, says what the result has to be like: see :mod:`fsgather._pickling`.
        """
        if self._pid != os.getpid() and self.world_size > 1:
            raise _workers.refusal(self._rank_of_process, "have it make a communicator with rank= and world_size=")
        site, allow_pickle = options.get("site"), options.get("allow_pickle")
        return {
            "site": caller() if site is None else _arguments.text("site", site),
            "timeout": _arguments.seconds("timeout", options.get("timeout")) or self._timeout,
            "tag": _arguments.text("tag", options.get("tag")),
            "allow_pickle": self._allow_pickle if allow_pickle is None else _arguments.switch("allow_pickle", allow_pickle),
            **more,
        }

    def __copy__(self) -> NoReturn:
        raise _errors.ConfigError("a communicator is this process's membership and cannot be copied; use split() or group() for another")

    def __deepcopy__(self, _memo: Any) -> NoReturn:
        self.__copy__()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]) -> None:
        if error is None:
            self.close()
        else:
            self.fail(error)

    def __repr__(self) -> str:
        if self.closed:
            return "<fsgather.Communicator, closed>"
        return f"<fsgather.Communicator, rank {self.rank} of {self.world_size}>"


_tracebacks.shorten(Communicator, [*_tracebacks.public(Communicator), "__init__", "__exit__"])
