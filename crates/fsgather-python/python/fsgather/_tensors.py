"""Tensors of torch by their elements: a view carries only its own, and what shares memory goes on sharing it.

Torch's own way into a pickle copies whole storages into it, also for a view of two elements. Here dense tensors
become rows of a table; their elements are handed over as they lie in memory, and come back in place.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import threading
from typing import Any, Callable, NamedTuple

import torch

__all__ = ["Pickler", "Table", "rows_of", "tensors_of"]

INLINE = 64 * 1024
"""Elements up to this many bytes travel inside the table."""


class Row(NamedTuple):
    """One tensor in a table."""

    store: int
    """Which stretch of memory."""
    dtype: str
    offset: int
    """Which element of the stretch is its first."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool


class Table(NamedTuple):
    """All tensors of one object, as they travel."""

    rows: list[Row]
    stores: list[Any]
    """For each stretch of memory its bytes, or ``None`` where they travel out of band, in the same order."""


def is_ours(tensor: torch.Tensor) -> bool:
    """Whether a tensor is dense elements and nothing more. Everything else is left to torch's own way."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and tensor.is_leaf
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor._backward_hooks
        and not tensor.__dict__
        # Later versions of torch have no names, and no such method.
        and not getattr(tensor, "has_names", bool)()
    )


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor covers, from its first to behind its last."""
    size = tensor.element_size()
    last = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride()))
    start = tensor.storage_offset()
    return start * size, (start + last + 1) * size


def _is_dense(tensor: torch.Tensor) -> bool:
    start, end = _span(tensor)
    return tensor.numel() * tensor.element_size() == end - start


def _bytes_at(address: int, length: int, keeper: Any) -> Any:
    """Memory that somebody else owns, as an object with the buffer protocol that keeps the owner alive."""
    array = (ctypes.c_uint8 * length).from_address(address)
    array._keeper = keeper
    return array


def rows_of(tensors: list[torch.Tensor]) -> tuple[Table, list[Any]]:
    """The table of some tensors, and the stretches of memory that travel out of band."""
    on_host = [tensor.detach() for tensor in tensors]
    on_host = [tensor.cpu() if tensor.device.type != "cpu" else tensor for tensor in on_host]
    rows: list[Row] = [Row(-1, "", 0, (), (), False)] * len(tensors)
    stretches: list[tuple[int, int, Any]] = []
    for cluster in _clusters(on_host):
        if len(cluster) == 1 and not _is_dense(on_host[cluster[0]]):
            index = cluster[0]
            on_host[index] = on_host[index].contiguous()
        spans = [_span(on_host[index]) for index in cluster]
        start, end = min(span[0] for span in spans), max(span[1] for span in spans)
        first = on_host[cluster[0]]
        base = first.data_ptr() - _span(first)[0]
        for index in cluster:
            tensor = on_host[index]
            offset = (_span(tensor)[0] - start) // tensor.element_size()
            rows[index] = _row(len(stretches), tensor, offset, tensors[index].requires_grad)
        stretches.append((base + start, end - start, first))
    for index, tensor in enumerate(on_host):
        if tensor.numel() == 0:
            rows[index] = _row(-1, tensor, 0, tensors[index].requires_grad)
    stores: list[Any] = []
    buffers: list[Any] = []
    for address, length, keeper in stretches:
        memory = _bytes_at(address, length, keeper)
        if length <= INLINE:
            stores.append(bytes(memory))
        else:
            stores.append(None)
            buffers.append(memory)
    return Table(rows, stores), buffers


def _row(store: int, tensor: torch.Tensor, offset: int, requires_grad: bool) -> Row:
    dtype = str(tensor.dtype)[len("torch.") :]
    return Row(store, dtype, offset, tuple(tensor.shape), tuple(tensor.stride()), requires_grad)


def _clusters(tensors: list[torch.Tensor]) -> list[list[int]]:
    """Numbers of tensors whose memory overlaps, together; empty tensors have none."""
    spans = []
    for index, tensor in enumerate(tensors):
        if tensor.numel() > 0:
            first, last = _span(tensor)
            address = tensor.data_ptr()
            spans.append((address, address + last - first, tensor.element_size(), index))
    spans.sort(key=lambda span: span[:2])
    clusters: list[list[int]] = []
    behind = aligned_to = 0
    for start, end, size, index in spans:
        # Elements of two sizes can share memory; a stretch has to begin where both can be counted from.
        if clusters and start < behind and start % max(size, aligned_to) == 0:
            clusters[-1].append(index)
            behind = max(behind, end)
        else:
            clusters.append([index])
            behind = end
        aligned_to = max(size, aligned_to) if len(clusters[-1]) > 1 else size
    return clusters


def tensors_of(table: Table, buffers: list[Any]) -> list[torch.Tensor]:
    """The tensors of a table; their elements stay in the buffers."""
    rest = iter(buffers)
    stores = []
    for store in table.stores:
        memory = next(rest) if store is None else bytearray(store)
        stores.append(_untyped(torch.frombuffer(memory, dtype=torch.uint8)))
    tensors = []
    for row in table.rows:
        dtype = getattr(torch, row.dtype)
        if row.store < 0:
            tensor = torch.empty_strided(row.shape, row.stride, dtype=dtype)
        else:
            tensor = torch.empty(0, dtype=dtype).set_(stores[row.store], row.offset, row.shape, row.stride)
        tensors.append(tensor.requires_grad_() if row.requires_grad else tensor)
    return tensors


def _untyped(flat: torch.Tensor) -> Any:
    if hasattr(flat, "untyped_storage"):
        return flat.untyped_storage()
    return flat.storage().untyped()  # torch before 2.0


class Pickler(pickle.Pickler):
    """A pickler that leaves the elements of dense tensors where they are.

    In the pickle each is a number; ``tensors`` has them in this order when the pickle is finished.
    """

    def __init__(self, file: io.BytesIO, buffer_callback: Callable[[pickle.PickleBuffer], bool]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.tensors: list[torch.Tensor] = []

    def reducer_override(self, value: Any) -> Any:
        """What pickle asks about each object that it does not know itself."""
        if not isinstance(value, torch.Tensor) or not is_ours(value):
            return NotImplemented
        self.tensors.append(value)
        return numbered, (len(self.tensors) - 1,)


class _Current(threading.local):
    tensors: list[torch.Tensor] = []


_current = _Current()


def numbered(index: int) -> torch.Tensor:
    """The tensor of this number in the object that is being unpickled."""
    return _current.tensors[index]


def unpickle(stream: Any, buffers: list[Any], table: Table, stretches: list[Any]) -> Any:
    """The object of a pickle that a :class:`Pickler` has made."""
    outer = _current.tensors
    _current.tensors = tensors_of(table, stretches)
    try:
        return pickle.loads(stream, buffers=buffers)
    finally:
        _current.tensors = outer
