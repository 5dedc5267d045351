"""What happens when a rank fails: everybody is told, and a group survives what does it no harm."""

from __future__ import annotations

import os
import time
from typing import Any

import fsgather
import torch.distributed as dist


class Stubborn:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise ValueError("not me")


def expect(kind: type[BaseException], words: str, function: Any, *arguments: Any, **named: Any) -> None:
    """Fails unless the call raises that."""
    try:
        function(*arguments, **named)
    except kind as error:
        assert type(error) is kind and words in str(error), (type(error), error)
    else:
        raise AssertionError(f"{function} did not raise {kind}")


def main() -> None:
    """Objects that cannot be handed in on one rank or on all, and a rank that ends."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    into: list[Any] = [None] * size
    own, others = (ValueError, "not me"), (fsgather.PeerFailedError, "rank 2")

    expect(*(own if rank == 2 else others), dist.all_gather_object, into, Stubborn() if rank == 2 else rank)
    assert into == [None] * size, into
    dist.all_gather_object(into, rank)
    assert into == list(range(size)), into

    on_root = [None] * size if rank == 0 else None
    expect(*(own if rank == 2 else others), dist.gather_object, Stubborn() if rank == 2 else rank, on_root)
    objects = [Stubborn()] if rank == 2 else [None]
    expect(*(own if rank == 2 else others), dist.broadcast_object_list, objects, 2)
    expect(*(own if rank == 2 else others), dist.all_gather_object, into, Stubborn() if rank == 2 else 1, weights_only=True)
    for number in range(5):
        try:
            dist.all_gather_object(into, Stubborn())
        except (ValueError, fsgather.PeerFailedError) as error:
            assert "not me" in str(error), error
        else:
            raise AssertionError("it did not fail")
        dist.all_gather_object(into, (number, rank))
        assert into == [(number, place) for place in range(size)], (number, into)

    # What a program does that calls fsgather itself and gets over a failure, on the group of all ranks and another one.
    some = dist.new_group([1, 2, 3])
    for group, members in ((None, [0, 1, 2, 3]), (some, [1, 2, 3])):
        if rank in members:
            expect(fsgather.PeerFailedError, "rank 2", fsgather.all_gather, Stubborn() if rank == 2 else rank, group)
            expect(fsgather.PoisonedError, "rank 2", fsgather.all_gather, rank, group)
            fsgather.close()
            assert fsgather.all_gather(rank, group) == members

    dist.barrier()
    if rank == 1:
        raise MemoryError("out of luck")
    expect(fsgather.PeerFailedError, "MemoryError: out of luck", dist.all_gather_object, into, rank)
    open(os.path.join(os.environ["SWITCH_OUTPUT"], f"told-{rank}"), "w").close()
    # The launcher ends everybody when it notices the first.
    time.sleep(60)


if __name__ == "__main__":
    main()
