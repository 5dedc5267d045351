"""Threads with a group each, groups that are destroyed and made again, and forked processes that have a job of their own first."""

from __future__ import annotations

import multiprocessing
import os
import threading
from typing import Any

import torch.distributed as dist

ROUNDS = 50


def gather_often(group: Any, text: str, errors: list[str]) -> None:
    """Every round gives what it must."""
    try:
        size = dist.get_world_size(group)
        for number in range(ROUNDS):
            into: list[Any] = [None] * size
            dist.all_gather_object(into, (text, number, "x" * 100 * number), group)
            assert into == [(text, number, "x" * 100 * number)] * size, into
    except BaseException as error:
        errors.append(f"{text}: {error!r}")


def job_of_a_child(rank: int, file: str) -> None:
    """A process group that the parent knows nothing of; torch cannot have more than that after a fork."""
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    into = [None, None]
    dist.all_gather_object(into, rank)
    assert into == [0, 1], into
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """All of it in one job."""
    file = os.path.join(os.environ["SWITCH_OUTPUT"], f"children-of-{os.environ['RANK']}")
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=job_of_a_child, args=(place, file)) for place in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0, child.exitcode
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for _life in range(3):
        groups = [dist.new_group() for _ in range(3)]
        errors: list[str] = []
        threads = [threading.Thread(target=gather_often, args=(group, str(place), errors)) for place, group in enumerate(groups)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        dist.barrier()
        for group in groups:
            dist.destroy_process_group(group)
    into: list[Any] = [None] * size
    dist.all_gather_object(into, rank)
    assert into == list(range(size)), into
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
