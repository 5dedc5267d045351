"""An ordinary job of torch: gathers objects and reduces tensors until it is told to end, or until a rank is told to die."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def main(notes: Path) -> None:
    """Leaves a note of who has met; ends when a note says so."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    while True:
        gathered: list[Any] = [None] * size
        dist.all_gather_object(gathered, (rank, socket.gethostname(), (notes / "end").exists()))
        assert [one[0] for one in gathered] == list(range(size))
        total = torch.ones(1) * rank
        dist.all_reduce(total)
        assert total.item() == size * (size - 1) / 2
        if rank == 0:
            note = notes / "met.new"
            note.write_text(" ".join([os.environ["MASTER_ADDR"], *(one[1] for one in gathered)]))
            note.rename(notes / "met")
        if all(one[2] for one in gathered):
            break
        if rank == 1 and (notes / "die").exists():
            (notes / "die").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
