"""Jobs with the functions of the SAM, MDETR and DPR code, and with some of their own.

``$SWITCH_OUTPUT`` gets what they return, which must be the same with ``FSGATHER_PATCH`` and without, and
``$SWITCH_OUTPUT/calls`` which of the functions that are to be replaced have run.
"""

from __future__ import annotations

import os
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs"))

# Before torch: it is in the middle of this import that torch's hook runs.
from training.utils.distributed import all_gather, all_gather_via_filesys, gather_to_rank_0_via_filesys  # noqa: I001
from dpr.utils.dist_utils import all_gather_list
from util.dist import all_gather as mdetr_all_gather

import own_gathers
import sam3.train.utils.distributed as sam3
import torch
import torch.distributed as dist
from own_gathers import all_gather_tensors


def main() -> None:
    """Every function, by the path that variables choose."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    directory = os.environ["SWITCH_OUTPUT"]
    mine = {"rank": rank, "scores": torch.arange(3000 * (rank + 1)).tolist()}
    lines: list[Any] = []

    def note(what: str, result: Any) -> None:
        lines.append(f"{what}: {str(hash(repr(result)))[:6] if len(repr(result)) > 200 else repr(result)} {len(result)}")

    note("all_gather", all_gather(mine))
    note("all_gather in a directory", all_gather(mine, filesys_save_dir=directory))
    if "MDETR_FILESYS_REDUCE_RANK_0_ONLY" not in os.environ:
        # MDETR's own does not know this variable.
        note("util.dist", mdetr_all_gather(mine))
    note("force_filesys", all_gather(mine, force_filesys=True, filesys_save_dir=directory))
    note("force_cpu", all_gather(mine, force_cpu=True))
    note("via_filesys", all_gather_via_filesys(mine, directory))
    note("via_filesys, rank 0", all_gather_via_filesys(mine, directory, True))
    note("gather_to_rank_0", gather_to_rank_0_via_filesys(mine, directory))
    if "MDETR_FILESYS_REDUCE_RANK_0_ONLY" not in os.environ:
        note("sam3", sam3.all_gather(mine))
    note("sam3, another function", sam3.gather_to_rank_0_via_filesys(rank, "here"))
    note("dpr", all_gather_list(rank))
    pair = dist.new_group([1, 2])
    if rank in (1, 2):
        note("dpr, group", all_gather_list(rank, pair))
        note("own, group", own_gathers.all_gather(rank, pair))
        note("own gather, group", own_gathers.gather(rank, 2, pair))
    try:
        all_gather_list("x" * (20_000 if rank == 2 or "FSGATHER_PATCH" not in os.environ else 1))
        lines.append("dpr, too large: went well")
    except ValueError:
        lines.append("dpr, too large: ValueError")
    for _ in range(3):
        note("own", own_gathers.all_gather(mine))
        note("own gather", own_gathers.gather(mine, size - 1))
        note("own flat", own_gathers.all_gather_flat([rank, rank]))
    note("own tensors", all_gather_tensors(torch.ones(2)))
    with open(os.path.join(directory, f"rank-{rank}"), "w") as output:
        output.write("\n".join(lines) + "\n")
    modules = [sys.modules[name] for name in ("training.utils.distributed", "sam3.train.utils.distributed", "util.dist")]
    modules += [sys.modules["dpr.utils.dist_utils"], own_gathers]
    with open(os.path.join(directory, f"calls-{rank}"), "w") as output:
        for module in modules:
            calls = {name: module.CALLS.count(name) for name in sorted(set(module.CALLS))}
            output.write(f"{module.__name__}: {calls}\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
