"""Objects with tensors on GPUs, in the ways in which jobs come by them; each rank writes what it got, one line for each case.

``SWITCH_CASE`` is the backend of the group. With nccl alone torch itself moves objects over the GPU, and each rank needs one of its own.
"""

from __future__ import annotations

import multiprocessing
import os
from typing import Any, Callable, Iterator

import torch
import torch.distributed as dist

BACKEND = os.environ["SWITCH_CASE"]
RANK = int(os.environ["RANK"])
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())


def told(value: Any) -> str:
    """Type, values, and where they are."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {value.double().sum().item()} on {value.device} {'pinned' if value.is_pinned() else ''}"
    if isinstance(value, dict):
        return str({key: told(entry) for key, entry in value.items()})
    return f"{type(value).__name__} {value!r}"


def gathered(mine: Any) -> str:
    """By each of the three functions."""
    size = dist.get_world_size()
    everybodys: list[Any] = [None] * size
    dist.all_gather_object(everybodys, mine)
    on_root: list[Any] = [None] * size
    dist.gather_object(mine, on_root if RANK == 0 else None)
    shared = [mine if RANK == 1 else None]
    dist.broadcast_object_list(shared, 1)
    return "; ".join(map(told, [*everybodys, *on_root, *shared]))


def boxes() -> dict[str, Any]:
    """What a detector hands in: more on the device than fits into a message, and a number on the host."""
    return {"boxes": torch.full((30_000, 4), float(RANK), device=DEVICE), "half": torch.ones(3, dtype=torch.bfloat16, device=DEVICE), "count": torch.ones(2)}


def under_default_device() -> str:
    """Tensors of the host must stay there, though new ones would be made on the GPU."""
    torch.set_default_device(DEVICE)
    try:
        return gathered({"host": torch.ones(5, device="cpu"), "new": torch.ones(5)})
    finally:
        torch.set_default_device("cpu")


def beside_a_fork() -> str:
    """A child of a process that uses CUDA may not touch it; gathering must neither hang nor change that."""
    child = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
    child.start()
    found = gathered(boxes())
    child.join(60)
    return f"{child.exitcode} {found}"


CASES: dict[str, Callable[[], str]] = {
    "on the device": lambda: gathered(boxes()),
    "pinned": lambda: gathered(torch.arange(100_000.0).pin_memory()),
    "view of a large tensor": lambda: gathered(torch.arange(1_000_000.0, device=DEVICE)[RANK : RANK + 10]),
    "with a gradient": lambda: gathered(torch.ones(3, device=DEVICE, requires_grad=True)),
    "default device": under_default_device,
    "beside a fork": beside_a_fork,
}


def lines() -> Iterator[str]:
    """What came of each."""
    for name, case in CASES.items():
        try:
            yield f"{name}: {case()}"
        except RuntimeError as error:
            yield f"{name}: {type(error).__name__}: {error}"


def main() -> None:
    """All cases on one group."""
    torch.cuda.set_device(DEVICE)
    if "fsgather" in BACKEND:
        import fsgather.torch

        fsgather.torch.register()
    dist.init_process_group(BACKEND)
    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{RANK}"), "w") as output:
        output.write("\n".join(lines()) + "\n")
    # By tensors, as before: both go on side by side.
    is_by_nccl = "nccl" in BACKEND and torch.cuda.device_count() >= dist.get_world_size()
    total = torch.ones(1, device=DEVICE if is_by_nccl else "cpu")
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size(), total
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
