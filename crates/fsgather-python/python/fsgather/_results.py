"""What calls give back that is not there as a whole: :class:`Gathering`, :class:`Parts` and :class:`Pending`."""

from __future__ import annotations

import operator
import threading
from typing import Any, ClassVar, Generator, Generic, Iterator, Optional, Sequence, TypeVar, Union, overload

from fsgather import _arguments, _fsgather, _tracebacks

__all__ = ["Gathering", "Parts", "Pending"]

T = TypeVar("T")


class Gathering(Iterator[T]):
    """The objects of all ranks in rank order, each read when it is asked for.

    What is not looked at is thrown away by :meth:`close`, by leaving a ``with`` block, or with the iterator.
    """

    def __init__(self, parts: Optional[_fsgather.Parts], ranks: int) -> None:
        self._parts = parts
        self._ranks = ranks
        self._left = 0 if parts is None else ranks

    def __iter__(self) -> Gathering[T]:
        return self

    def __next__(self) -> T:
        if self._parts is None or self._left == 0:
            raise StopIteration
        part: T = next(self._parts)
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

    def __enter__(self) -> Gathering[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._parts is None:
            return "<fsgather.Gathering, received by another rank>"
        return f"<fsgather.Gathering, {self._left} of {self._ranks} ranks to be read>"


class Parts(Sequence[T]):
    """The objects of all ranks in rank order, each made when it is first looked at, and the same from then on.

    ``list(parts)`` makes all. Pickled, or copied, it is such a list. What cannot be made raises each time that it is looked at, and says which
    rank has handed it in.
    """

    def __init__(self, payloads: _fsgather.Payloads) -> None:
        self._payloads = payloads
        self._ranks = len(payloads)
        self._made: dict[int, T] = {}

    def __len__(self) -> int:
        return self._ranks

    @overload
    def __getitem__(self, which: int) -> T: ...
    @overload
    def __getitem__(self, which: slice) -> list[T]: ...
    def __getitem__(self, which: Union[int, slice]) -> Union[T, list[T]]:
        if isinstance(which, slice):
            return [self._of(rank) for rank in range(self._ranks)[which]]
        rank = operator.index(which)
        if not -self._ranks <= rank < self._ranks:
            raise IndexError(f"there are {self._ranks} ranks, and none at {rank}")
        return self._of(rank % self._ranks)

    def _of(self, rank: int) -> T:
        if rank not in self._made:
            made = self._payloads.decode(rank)
            if made is not None:
                # Of threads that make it at the same time the first one's counts.
                self._made.setdefault(rank, made[0])
            self._payloads.discard(rank)
        return self._made[rank]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Parts):
            other = list(other)
        return list(self) == other if isinstance(other, list) else NotImplemented

    # As a list, whose elements may change, it has none.
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type[list[T]], tuple[list[T]]]:
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"<fsgather.Parts of {self._ranks} ranks, {len(self._made)} looked at>"


class Pending(Generic[T]):
    """A call that has been started, and whose result has not been asked for yet.

    Dropping one gives up its result on this rank only.
    """

    def __init__(self, call: _fsgather.Pending, as_list: bool, name: str) -> None:
        self._call = call
        self._as_list = as_list
        self._name = name
        self._result: Optional[tuple[Any]] = None
        self._lock = threading.Lock()

    def done(self) -> bool:
        """Whether all ranks have handed in, so that :meth:`wait` returns without waiting for them."""
        return self._look(0.0)

    def wait(self, timeout: _arguments.Seconds = None) -> T:
        """Waits for all ranks and returns the result, the same each time.

        Args:
            timeout: how long to wait, in seconds; by default for as long as it takes.

        Raises:
            TimeoutError: when somebody is still waited for after ``timeout``. Nothing is lost: wait again.
        """
        if not self._look(_arguments.seconds("timeout", timeout, low=0)):
            raise TimeoutError(f"the call has not come to its end after {timeout} s; it goes on")
        assert self._result is not None
        result: T = self._result[0]
        return result

    def __await__(self) -> Generator[Any, None, T]:
        """The result, for ``await``: a thread of the running loop's executor waits for it."""
        import asyncio

        return asyncio.get_running_loop().run_in_executor(None, self.wait).__await__()

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

    def __repr__(self) -> str:
        state = "under way" if self._result is None else "received"
        return f"<fsgather.Pending {self._name}, {state}>"


_tracebacks.shorten(Gathering, ["__next__"])
_tracebacks.shorten(Parts, ["__getitem__"])
_tracebacks.shorten(Pending, ["wait"])
