"""Tensors of torch inside of pickles: by their elements, as plain data carries them.

Torch's own way into a pickle copies whole storages, also for a view of two elements. Here dense tensors become
numbers in the pickle, and travel beside it as a list of tensors, which is plain data: a view carries only its own
elements, and everything comes back in place.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
from typing import Any, Optional

import torch

from fsgather import _pickling

__all__ = ["LikePickler", "Pickler", "modes_off"]


def modes_off() -> Optional[contextlib.ExitStack]:
    """Keeps torch's modes of this thread from what follows, until the result is closed; ``None`` if there are none.

    A default device is one of them, and programs have their own: what they do to the program's tensors they must not do to
    those that are being taken apart or made.
    """
    functions = getattr(torch._C, "_len_torch_function_stack", int)()
    dispatches = getattr(torch._C, "_len_torch_dispatch_stack", int)()
    if not functions and not dispatches:
        return None
    stack = contextlib.ExitStack()
    if functions:
        stack.enter_context(torch._C.DisableTorchFunction())
    if dispatches:
        from torch.utils import _python_dispatch

        stack.enter_context(_python_dispatch._disable_current_modes())
    return stack


def _is_elements(tensor: torch.Tensor) -> bool:
    """Whether a tensor is dense elements and nothing more. Everything else is left to torch's own way."""
    return (
        type(tensor) is torch.Tensor
        and torch.Tensor not in copyreg.dispatch_table
        and hasattr(tensor, "untyped_storage")  # not before 2.0
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


class Pickler(pickle.Pickler):
    """Leaves dense tensors out of a pickle. In the pickle each is a number."""

    def __init__(self, file: io.BytesIO, contents: list[Any], options: dict[str, Any]) -> None:
        super().__init__(file, **options)
        self._contents = contents

    def reducer_override(self, value: Any) -> Any:
        """What pickle asks about each object that it does not know itself."""
        if not isinstance(value, torch.Tensor) or not _is_elements(value):
            return NotImplemented
        self._contents.append(value)
        return _pickling.numbered, (len(self._contents) - 1,)


class LikePickler(_pickling.LikePickler):
    """Leaves dense tensors and large arrays out of a pickle like torch's."""

    def reducer_override(self, value: Any) -> Any:
        """What pickle asks about each object that it does not know itself."""
        if not isinstance(value, torch.Tensor):
            return super().reducer_override(value)
        if not _is_elements(value):
            return NotImplemented
        if value.device.type == "cpu":
            self.contents.append(value)
            return _pickling.numbered, (len(self.contents) - 1,)
        self.contents.append(value.detach().cpu())
        return _on_device, (len(self.contents) - 1, str(value.device), value.requires_grad)


def _on_device(index: int, device: str, requires_grad: bool) -> torch.Tensor:
    """The tensor of this number, where it was before it was sent."""
    with modes_off() or contextlib.nullcontext():
        tensor: torch.Tensor = _pickling.numbered(index).to(device)
        return tensor.requires_grad_() if requires_grad else tensor
