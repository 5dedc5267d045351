"""Results of an evaluation by name, which survive a crash: :class:`Samples`, :func:`gather_samples`, :func:`read_samples`."""

from __future__ import annotations

import atexit
import logging
import math
import os
import weakref
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, TypedDict, TypeVar, Union, overload

from fsgather import _arguments, _fsgather, _json_lines, _tracebacks
from fsgather._arguments import PathLike
from fsgather._communicator import Communicator
from fsgather._errors import ConfigError, Error
from fsgather._functions import _communicator_of
from fsgather._sample_config import settings_of
from fsgather._sites import caller
from fsgather._torch_order import ALL

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["SampleResults", "Samples", "gather_samples", "read_samples", "samples"]

Id = Union[int, str, tuple[Any, ...]]
"""The name of a sample: an ``int``, a ``str`` or a tuple of these."""

Expected = Union[int, Iterable[Any], None]
"""Ids in the order of the results, a number of samples, or ``None`` for all that were added."""

Convert = Optional[Callable[[Any], Any]]

T = TypeVar("T")


class GatherOptions(TypedDict, total=False):
    """Options of gathering samples."""

    partial: bool
    on_conflict: Literal["first", "error"]


class SampleResults(Mapping[Any, Any]):
    """The results of an evaluation by id, in the order in which they were expected.

    Results stay on disk, and are read and decoded when they are looked at.

    >>> import fsgather
    >>> results = fsgather.gather_samples({"b": 0.5, "a": 1.0}, expected=["a", "b"])
    >>> list(results.items())
    [('a', 1.0), ('b', 0.5)]
    """

    def __init__(self, results: _fsgather.SampleResults, decode: Convert = None) -> None:
        self._results = results
        self._decode = decode

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Any]:
        return (self._results.id_at(position) for position in range(len(self._results)))

    def __contains__(self, sample: object) -> bool:
        return sample in self._results

    def __getitem__(self, sample: Id) -> Any:
        return self._decoded(self._results[sample])

    def items(self) -> ItemsView[Any, Any]:
        """Ids and results, in order."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Results, in order."""
        return _Values(self)

    @property
    def missing(self) -> list[Any]:
        """Expected ids without a result that have not failed."""
        return self._results.missing

    @property
    def failed(self) -> dict[Any, str]:
        """Expected ids without a result that have failed, with the reasons."""
        return self._results.failed

    @property
    def conflicts(self) -> list[Any]:
        """Ids of which results came that differ; the first counts."""
        return self._results.conflicts

    @property
    def repeated(self) -> int:
        """Number of results that came again and were equal."""
        return self._results.repeated

    @property
    def unexpected(self) -> int:
        """Number of results on disk whose ids are not expected."""
        return self._results.unexpected

    def write_jsonl(self, path: PathLike) -> None:
        """Writes a line ``{"id": ..., "result": ...}`` for each result; arrays and tensors become lists.

        The file appears whole or not at all. A link is followed, and its target replaced. NaN and infinities are written as
        ``NaN``, ``Infinity`` and ``-Infinity``, as Python's ``json`` does: other readers may refuse or change them.

        Raises:
            fsgather.ConfigError: ``path`` is a directory, a device or a FIFO, or JSON cannot express a result; the message names its id
                and the place inside.
        """
        _json_lines.write(os.fspath(path), self.items())

    def __repr__(self) -> str:
        return f"<SampleResults: {self._results.summary()}>"

    def _decoded(self, result: Any) -> Any:
        return result if self._decode is None else self._decode(result)

    def _at(self, position: int) -> Any:
        return self._decoded(self._results.result_at(position))


class _Items(ItemsView[Any, Any]):
    """Ids and results by position, without a search for each id."""

    _mapping: SampleResults

    def __iter__(self) -> Iterator[Any]:
        results = self._mapping
        return ((results._results.id_at(position), results._at(position)) for position in range(len(results)))


class _Values(ValuesView[Any]):
    """Results by position."""

    _mapping: SampleResults

    def __iter__(self) -> Iterator[Any]:
        return (self._mapping._at(position) for position in range(len(self._mapping)))


class Samples:
    """The results of one rank by name: on disk within about a second, and gathered at the end.

    Made by :func:`fsgather.samples`. ``add`` and ``add_error`` are local; ``gather`` is collective.
    """

    def __init__(
        self, member: _fsgather.Samples, communicator: Communicator, expected: Optional[list[Any]], encode: Convert, decode: Convert
    ) -> None:
        self._member = member
        self._communicator = communicator
        self._process = os.getpid()
        self._expected = expected
        self._known: Optional[frozenset[Any]] = None
        self._encode, self._decode = encode, decode
        self._missing: Optional[list[Any]] = None
        _open.add(self)

    @property
    def missing(self) -> list[Any]:
        """Ids that had no result when the directory was opened; the same list on every rank."""
        if self._missing is None:
            self._missing = self._member.missing
        return self._missing

    @property
    def share(self) -> list[Any]:
        """This rank's part of :attr:`missing`: every ``world_size``-th id."""
        return self.missing[self._communicator.rank :: self._communicator.world_size]

    @property
    def failed(self) -> dict[Any, str]:
        """Missing ids that failed in earlier attempts, with the reasons."""
        return self._member.failed

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self._member.attempt

    def add(self, ids: Any, results: Any) -> None:
        """Adds the result of a sample, or those of several.

        Args:
            ids: one id (an ``int``, a ``str`` or a tuple of these), or a list, array or tensor of ids.
            results: the result of that id, or as many results as there are ids, in a list, array or tensor.

        Results are plain data with arrays of numpy and tensors of torch, which move to the memory of the host. Several ranks may
        add the same id: the first result counts. A tuple that is not expected, but all of whose parts are, is a list of ids: a
        ``DataLoader`` makes such of texts.

        Ids that are tuples must not go through the default ``collate_fn`` of a ``DataLoader``: it makes a column of each part, so
        that results are added under other ids. Make such ids texts, or give a ``collate_fn`` that leaves them as they are.

        Raises:
            fsgather.ConfigError: an id or a result is not of these types; the message names the place inside.
            fsgather.StorageError: results could not be written for ten minutes; the message says how many are on disk.
        """
        is_one = not self._lists_ids(ids) if isinstance(ids, tuple) else isinstance(ids, (int, str))
        if is_one or getattr(ids, "ndim", None) == 0:
            self._add(ids, results)
            return
        listed = _listed("ids", ids)
        for sample, result in zip(listed, _rows(results, listed)):
            self._add(sample, result)

    def _lists_ids(self, ids: tuple[Any, ...]) -> bool:
        """Whether all parts of a tuple are expected, but not the tuple itself."""
        if self._expected is None:
            return False
        if self._known is None:
            self._known = frozenset(map(_plain_id, self._expected))
        plain = _plain_id(ids)
        try:
            return bool(ids) and plain not in self._known and all(part in self._known for part in plain)
        except TypeError:
            # A part without a hash is not an id, and is refused when it is added.
            return False

    def _add(self, sample: Any, result: Any) -> None:
        self._member.add(sample, result if self._encode is None else self._encode(result))

    def add_error(self, sample: Id, error: Union[BaseException, str]) -> None:
        """Records that a sample has failed: it is in :attr:`failed` of later attempts, which do it again."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self._member.add_error(sample, text)

    def flush(self) -> None:
        """Waits until everything that was added is on disk."""
        self._member.flush()

    def close(self) -> None:
        """Flushes, and takes no more results. Local; also done at the end of a ``with`` block and of the interpreter.

        The end of the interpreter cannot raise: if results could not be written, it logs a warning, and the exit code stays 0. Use
        ``with``, or call ``close`` or ``gather``, so that the program fails.
        """
        self._member.close()

    @overload
    def gather(self, dst: None, *, out: Optional[PathLike] = None, **options: Unpack[GatherOptions]) -> SampleResults: ...
    @overload
    def gather(self, dst: int = 0, *, out: Optional[PathLike] = None, **options: Unpack[GatherOptions]) -> Optional[SampleResults]: ...
    def gather(
        self,
        dst: Optional[int] = 0,
        *,
        out: Optional[PathLike] = None,
        partial: bool = False,
        on_conflict: Literal["first", "error"] = "first",
    ) -> Optional[SampleResults]:
        """Gathers the results of all attempts on rank ``dst``, each id once, in the order in which they are expected.

        Args:
            dst: the rank that gets the results; ``None`` for all ranks.
            out: a file to which ``dst`` (or rank 0) also writes them, as :meth:`SampleResults.write_jsonl` does.
            partial: returns what there is, even if samples are missing or have failed.
            on_conflict: ``"first"`` takes the first of results that differ, ``"error"`` raises.

        Returns:
            The results where they are received, ``None`` elsewhere.

        Raises:
            fsgather.IncompleteError: on every rank; ``results`` has what was gathered where it would have been received.
            fsgather.Error: on every rank alike; what was added stays on disk.
        """
        arguments = _Arguments()
        how = _gathering(arguments, dst, self._communicator.world_size, partial, on_conflict, out)
        writes = self._communicator.rank == (how["dst"] or 0)
        if how["out"] is not None and writes:
            arguments.read("out", _json_lines.file_to_write, "out", how["out"])
            how["problem"] = arguments.problem
        gathered = arguments.hand_in(lambda site: self._member.gather(how, site))
        results = None if gathered is None else SampleResults(gathered, self._decode)
        if how["out"] is not None:
            self._write(how["out"], results if writes else None)
        return results

    def _write(self, path: str, results: Optional[SampleResults]) -> None:
        """Writes the results where there are any; a failure is raised on all ranks."""
        failure: Optional[Exception] = None
        try:
            if results is not None:
                results.write_jsonl(path)
        except Exception as error:
            failure = error
        kind = "" if isinstance(failure, ConfigError) else f"{type(failure).__name__}: "
        reason = None if failure is None else f"cannot write the samples to {os.path.abspath(path)}: {kind}{failure}"
        for rank, found in enumerate(self._communicator.all_gather(reason, site=caller())):
            if found is not None:
                raise Error(f"rank {rank} {found}") from failure

    def __enter__(self) -> Samples:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        added, pending = self._member.progress()
        return f"<Samples: attempt {self.attempt}, {added} added, {pending or 'none'} of them not on disk yet>"


_open: weakref.WeakSet[Samples] = weakref.WeakSet()
"""Those of this process."""


@atexit.register
def _close_all() -> None:
    for each in list(_open):
        if each._process != os.getpid():
            continue
        try:
            each.close()
        except Exception as error:
            # The process ends in any case, and says what it has lost.
            added, pending = each._member.progress()
            text = "samples could not be written to the end, %d of %d results are on disk: %s"
            logging.getLogger("fsgather").warning(text, added - pending, added, error)


def samples(
    directory: PathLike,
    expected: Expected = None,
    *,
    config: Optional[Mapping[str, Any]] = None,
    group: Any = ALL,
    encode: Convert = None,
    decode: Convert = None,
) -> Samples:
    """Opens a directory of results by name, together with all ranks; earlier attempts in it count.

    >>> import fsgather, tempfile
    >>> directory = tempfile.mkdtemp()
    >>> samples = fsgather.samples(directory, expected=["a", "b"], config={"model": "tiny"})
    >>> for sample in samples.share:
    ...     samples.add(sample, {"answer": sample.upper()})
    >>> results = samples.gather()
    >>> results["b"]
    {'answer': 'B'}

    A process that is killed loses at most its last second. Start the job again, with any number of ranks, and it does what is
    missing.

    Args:
        directory: made if it is not there; the same for all attempts. It need not be shared.
        expected: ids in the order of the results, or a number n for 0 to n-1. With ``None`` all ids count that were added.
        config: plain JSON data under which the results hold, such as the model's revision; a directory takes no results of another one.
        group: a :class:`fsgather.Communicator`, a group of ``torch.distributed``, or ``None`` for all ranks.
        encode: makes plain data of a result when it is added.
        decode: makes a result of that when it is read.

    Raises:
        fsgather.ConfigError: on every rank: ids are no ids, an id is expected twice, ranks expect different samples, or the
            configuration is another than that of earlier attempts.
        fsgather.Error: on every rank alike.
    """
    communicator = _communicator_of(group)
    arguments = _Arguments()
    for name, convert in ("encode", encode), ("decode", decode):
        arguments.read(name, _function, convert)
    given = arguments.read("directory", _directory, directory) or ""
    ids = arguments.read("expected", _expected_ids, expected)
    settings = arguments.read("config", settings_of, config)
    member = arguments.hand_in(
        lambda site: _fsgather.Samples.open(communicator._member, given, ids, settings, arguments.problem, site)
    )
    return Samples(member, communicator, ids, encode, decode)


@overload
def gather_samples(
    results: Mapping[Any, Any], expected: Expected = None, *, dst: None, group: Any = ALL, **options: Unpack[GatherOptions]
) -> SampleResults: ...
@overload
def gather_samples(
    results: Mapping[Any, Any], expected: Expected = None, dst: Optional[int] = 0, *, group: Any = ALL, **options: Unpack[GatherOptions]
) -> Optional[SampleResults]: ...
def gather_samples(
    results: Mapping[Any, Any],
    expected: Expected = None,
    dst: Optional[int] = 0,
    *,
    partial: bool = False,
    on_conflict: Literal["first", "error"] = "first",
    group: Any = ALL,
) -> Optional[SampleResults]:
    """Gathers results by name that fit into memory, without a directory: the rules of :func:`fsgather.samples`, but nothing survives.

    Args:
        results: this rank's results by id.
        expected: ids in the order of the results, a number, or ``None``.
        dst: the rank that gets the results; ``None`` for all ranks.
        partial: returns what there is, even if samples are missing.
        on_conflict: ``"first"`` takes the first of results that differ, ``"error"`` raises.
        group: a :class:`fsgather.Communicator`, a group of ``torch.distributed``, or ``None`` for all ranks.

    Raises:
        fsgather.IncompleteError: on every rank; ``results`` has what was gathered where it would have been received.
    """
    communicator = _communicator_of(group)
    arguments = _Arguments()
    items = arguments.read("results", _items_of, results) or []
    ids = arguments.read("expected", _expected_ids, expected)
    how = _gathering(arguments, dst, communicator.world_size, partial, on_conflict, None)
    gathered = arguments.hand_in(lambda site: _fsgather.gather_samples(communicator._member, items, ids, how, site))
    return None if gathered is None else SampleResults(gathered)


def read_samples(directory: PathLike, *, decode: Convert = None) -> SampleResults:
    """Reads a directory of samples in any Python, without a job; what the last attempt expected counts.

    Results that ``fsgather samples --add`` has added are the objects of their lines.

    Raises:
        fsgather.ConfigError: it has no samples.
    """
    return SampleResults(_fsgather.read_samples(_directory(directory), _are_equal), decode)


class _Arguments:
    """Arguments of a collective call: the first wrong one is an error of all ranks, so that none of them waits for this one."""

    def __init__(self) -> None:
        self.problem: Optional[str] = None
        self._raised: Optional[Exception] = None

    def read(self, name: str, convert: Callable[..., T], *given: Any) -> Optional[T]:
        """What ``convert`` makes of an argument; ``None`` if that raises."""
        try:
            return convert(*given)
        except Exception as error:
            if self._raised is None:
                self._raised = error
                text = f"{name} cannot be read: {type(error).__name__}: {error}"
                self.problem = str(error) if isinstance(error, ConfigError) else text
            return None

    def hand_in(self, call: Callable[[str], T]) -> T:
        """Makes the call, which fails on all ranks if an argument is wrong; here the reason is the cause of that."""
        try:
            return call(caller())
        except Error as error:
            error.__cause__ = self._raised or error.__cause__
            raise


def _directory(directory: PathLike) -> str:
    # None is not a path either.
    return str(_arguments.path("directory", "" if directory is None else directory, "the path of a directory, such as 'runs/mmlu'"))


def _function(convert: Convert) -> None:
    if convert is not None and not callable(convert):
        raise ConfigError(f"{_arguments._shown(convert)} is not a function; encode= and decode= take one")


def _items_of(results: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    if not isinstance(results, Mapping):
        raise ConfigError(f"results={_arguments._shown(results)} is not a dictionary of results by id")
    return [(sample, result) for sample, result in results.items()]


def _gathering(
    arguments: _Arguments, dst: Optional[int], world_size: int, partial: bool, on_conflict: str, out: Optional[PathLike]
) -> dict[str, Any]:
    """Options of a gather as the extension module takes them."""

    def conflicts() -> bool:
        if on_conflict not in ("first", "error"):
            raise ConfigError(f"on_conflict={_arguments._shown(on_conflict)} is not 'first' or 'error'")
        return on_conflict == "error"

    return {
        "dst": None if dst is None else arguments.read("dst", _arguments.rank, "dst", dst, world_size),
        "out": arguments.read("out", _arguments.path, "out", out, "the path of a file, such as 'results.jsonl'"),
        "partial": arguments.read("partial", _arguments.switch, "partial", partial) or False,
        "refuse_conflicts": arguments.read("on_conflict", conflicts) or False,
        "are_equal": _are_equal,
        "problem": arguments.problem,
    }


def _expected_ids(expected: Expected) -> Optional[list[Any]]:
    if expected is None:
        return None
    if getattr(expected, "ndim", 0) == 0 and hasattr(expected, "__index__"):
        return list(range(_arguments.whole("expected", expected)))
    return _listed("expected", expected)


def _plain_id(sample: Any) -> Any:
    """An id without arrays and tensors that have no dimension: their hashes are not those of numbers."""
    if isinstance(sample, tuple):
        return tuple(map(_plain_id, sample))
    return sample.item() if getattr(sample, "ndim", None) == 0 else sample


def _listed(name: str, ids: Any) -> list[Any]:
    """Ids of any sequence, array or tensor."""
    if isinstance(ids, (set, frozenset)):
        raise ConfigError(f"{name}={_arguments._shown(ids)} has no order; give a list of ids")
    if isinstance(ids, (str, bytes, Mapping, float)) or not hasattr(ids, "__iter__"):
        raise ConfigError(f"{name}={_arguments._shown(ids)} is not a list of ids; an id is an int, a str or a tuple of these")
    if hasattr(ids, "tolist") and hasattr(ids, "dtype"):
        return list(ids.tolist())
    return list(ids)


def _rows(results: Any, ids: list[Any]) -> Iterable[Any]:
    """As many results as there are ids."""
    count = len(ids)
    if isinstance(results, (str, bytes, Mapping, set, frozenset)) or not hasattr(results, "__len__"):
        raise ConfigError(f"the results of {count} ids are of type {type(results).__name__}; give a list, array or tensor of {count} results")
    if getattr(results, "ndim", 1) == 0 or len(results) != count:
        length = 0 if getattr(results, "ndim", 1) == 0 else len(results)
        # Its default collate_fn makes a column of each part of a tuple.
        hint = "; a DataLoader changes ids that are tuples: make them texts, or give it a collate_fn" if any(isinstance(each, tuple) for each in ids) else ""
        raise ConfigError(f"{count} ids came with {length} results; give one for each{hint}")
    if getattr(getattr(results, "dtype", None), "kind", "") == "U":
        # Texts, and no scalars of numpy.
        results = results.tolist()
    rows: Iterable[Any] = results.cpu() if getattr(results, "is_cuda", False) else results
    return rows


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two results have equal values, where NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, complex):
        return _are_equal(one.real, other.real) and _are_equal(one.imag, other.imag)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    if hasattr(one, "dtype") and hasattr(one, "shape"):
        same = one.dtype == other.dtype and tuple(one.shape) == tuple(other.shape)
        return same and bool(((one == other) | ((one != one) & (other != other))).all())
    return bool(one == other)


_tracebacks.shorten(Samples, _tracebacks.public(Samples))
