"""MMEngine's collection of results: ``mmengine.dist.dist``.

Its metrics hand their results over by a temporary directory, or as tensors on the device; neither is an object
function of torch. Other modules of MMEngine take the two functions from there by name, when this has run.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from types import ModuleType
from typing import Any, Optional

from fsgather._switch import meeting, replacing
from fsgather._switch.replacing import Call
from fsgather._switch.selection import Selection

__all__ = ["MODULES", "install"]

MODULES = ("mmengine.dist.dist",)

_FUNCTIONS = {
    "collect_results_cpu": (("result_part", "size", "tmpdir"),),
    "_collect_results_device": (("result_part", "size"),),
}


def install(selection: Selection, module: ModuleType) -> None:
    """Replaces the two functions, where they are as we know them."""
    for name in replacing.check(module, _FUNCTIONS):
        replacing.replace(module, name, selection, _collect_results)


def _collect_results(
    call: Call, result_part: list[Any], size: int, tmpdir: Optional[str] = None
) -> Optional[list[Any]]:
    """The results of all ranks in the order of the data set on rank 0; ``None`` elsewhere.

    ``tmpdir``, where the original would leave its files, is not touched: payloads go where ``FSGATHER_DIR`` says.
    """
    world = meeting.of(None)
    if world is None:
        result: Optional[list[Any]] = call.original()
        return result
    parts = world.call("gather", result_part, 0, site=call.site)
    if parts is None:
        return None
    # The sampler deals samples out one by one, and pads the last round. Both as in the original, `None`s included.
    return [result for result in chain.from_iterable(zip_longest(*parts)) if result is not None][:size]
