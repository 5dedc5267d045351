"""Accelerate, unmodified: its functions for objects, and the gather of tensors that is not ours."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object


def main() -> None:
    """Each function once."""
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    lines = [f"gather_object {gather_object([{'rank': rank}, 'x' * rank])}"]
    objects = [rank, {"from": rank}]
    broadcast_object_list(objects, 2)
    lines.append(f"broadcast_object_list {objects}")
    lines.append(f"gather {accelerator.gather(torch.full((2,), rank)).tolist()}")
    lines.append(f"objects for metrics {accelerator.gather_for_metrics([rank], use_gather_object=True)}")
    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{rank}"), "w") as output:
        output.write("\n".join(lines) + "\n")
    accelerator.wait_for_everyone()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
