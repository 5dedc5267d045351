"""Two jobs of two ranks each, whose processes also form groups over a store of their own, as trainers and their workers do."""

from __future__ import annotations

import datetime
import os
import socket
import subprocess
import sys
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

CASE = sys.argv[1]
WAIT = datetime.timedelta(minutes=5)


def launch() -> int:
    """Starts all four processes."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [str(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    processes = []
    for place in range(4):
        variables = {"RANK": str(place % 2), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ports[place // 2]}
        variables.update(PLACE=str(place), JOINED_PORT=ports[2])
        processes.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **variables}))
    return max(process.wait() for process in processes)


def join(rank: int, size: int) -> Any:
    """Returns a group of torch's over a store of its own, in which ranks have numbers of their own."""
    store = dist.TCPStore("127.0.0.1", int(os.environ["JOINED_PORT"]), size, rank == 0, WAIT)
    prefixed = dist.PrefixStore("joined", store)
    group, _ = distributed_c10d._new_process_group_helper(size, rank, [], "gloo", prefixed, group_name="joined", timeout=WAIT)
    distributed_c10d._world.pg_group_ranks[group] = {number: number for number in range(size)}
    return group


def main() -> None:
    """Gathers in the group, and in the jobs before and after it."""
    place = int(os.environ["PLACE"])
    dist.init_process_group("gloo", timeout=WAIT)
    of_job = [place // 2 * 2, place // 2 * 2 + 1]
    into: list[Any] = [None] * 2
    dist.all_gather_object(into, place)
    assert into == of_job, into
    if CASE == "one of each" and place % 2 == 1:
        # Not in the group, in which another process has this one's number.
        dist.destroy_process_group()
        return
    members = [0, 1, 2, 3] if CASE == "all" else [0, 2]
    group = join(members.index(place), len(members))
    into = [None] * len(members)
    dist.all_gather_object(into, place, group=group)
    assert into == members, into
    objects = [place]
    dist.broadcast_object_list(objects, len(members) - 1, group=group)
    assert objects == [members[-1]], objects
    if CASE == "all":
        into = [None] * 2
        dist.all_gather_object(into, place)
        assert into == of_job, into


if __name__ == "__main__":
    sys.exit(launch() if "PLACE" not in os.environ else main())
