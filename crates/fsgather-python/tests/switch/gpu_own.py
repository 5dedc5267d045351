"""fsgather's own functions given tensors on a GPU: what comes of them, where it is, and what it costs there.

Every case is a job, ``SWITCH_CASE``, of two or more ranks, which may share a GPU. It compares with what the tensors are known to hold.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable

import torch

import fsgather

RANK = int(os.environ.get("RANK", "0"))
SIZE = int(os.environ.get("WORLD_SIZE", "1"))
CUDA = torch.device("cuda", RANK % max(1, torch.cuda.device_count()))
DTYPES = "float64 float32 float16 bfloat16 complex64 complex128 int64 int32 int16 int8 uint8 bool uint16 float8_e4m3fn float8_e5m2"


def raw(tensor: torch.Tensor) -> bytes:
    """The elements as bytes, in order."""
    flat = tensor.detach().cpu().contiguous().flatten()
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def expect(found: Any, wanted: Any) -> None:
    """Fails a case."""
    if found != wanted:
        raise AssertionError(f"{str(found)[:200]} instead of {str(wanted)[:200]}")


def on_host(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Whether a tensor came back as promised: on the host, with the type, shape and bits that it had on the GPU."""
    expect((found.device.type, found.dtype, found.shape, type(found)), ("cpu", wanted.dtype, wanted.shape, torch.Tensor))
    expect(raw(found) == raw(wanted), True)


def every_type() -> None:
    """All types of elements, in several shapes and layouts."""

    def of(rank: int, device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(rank)
        made = []
        for name in DTYPES.split():
            dtype = getattr(torch, name, None)
            if dtype is None:
                continue
            source = torch.randint(0, 100, (60, 50 + rank)).to(dtype).to(device)
            made += [source, source.t(), source[3:5, ::7], source[0, 0], source[:0], source[:1].expand(4, -1)]
        return made

    for rank, part in enumerate(fsgather.all_gather(of(RANK, CUDA))):
        for found, wanted in zip(part, of(rank, torch.device("cpu"))):
            on_host(found, wanted)


def every_function() -> None:
    """Each function that takes objects."""
    mine = {"scores": torch.full((40_000,), float(RANK), device=CUDA)}

    def check(part: Any, rank: int) -> None:
        on_host(part["scores"], torch.full((40_000,), float(rank)))

    for gather in (fsgather.all_gather, fsgather.all_gather_parts, fsgather.compat.all_gather_via_filesys):
        for rank, part in enumerate(gather(mine)):
            check(part, rank)
    for rank, part in enumerate(fsgather.gather_object(mine, 1) or []):
        check(part, rank)
    for rank, part in enumerate(fsgather.gather_iter(mine)):
        check(part, rank)
    for rank, part in enumerate(fsgather.start_all_gather(mine).wait()):
        check(part, rank)
    found = fsgather.broadcast_object(mine, 1)
    if RANK == 1:
        expect(found is mine, True)
    else:
        check(found, 1)


def joined() -> None:
    """Tensors that are joined come back on this rank's device."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        mine = torch.full((1000 * (RANK + 1), 70), RANK + 1, dtype=dtype, device=CUDA)
        found = fsgather.gather(mine)
        expect((found.device, found.dtype), (CUDA, dtype))
        wanted = torch.cat([torch.full((1000 * (rank + 1), 70), rank + 1, dtype=dtype) for rank in range(SIZE)])
        expect(raw(found) == raw(wanted), True)
        found = fsgather.gather(mine.t(), dim=1, dst=0)
        if RANK == 0:
            expect(found.device, CUDA)
            expect(raw(found) == raw(wanted.t()), True)


def on_a_side_stream() -> None:
    """What the current stream has yet to compute is waited for."""
    stream = torch.cuda.Stream(CUDA)
    base = torch.ones((4096, 4096), device=CUDA)
    for _ in range(5):
        with torch.cuda.stream(stream):
            stream.wait_stream(torch.cuda.default_stream(CUDA))
            slow = base
            for _ in range(30):
                slow = (slow @ base) / 4096
            value = torch.full((100_000,), 7.0, device=CUDA) * slow[0, 0]
            for part in fsgather.all_gather(value):
                on_host(part, torch.full((100_000,), 7.0))
            expect(raw(fsgather.gather(value)) == raw(torch.full((100_000 * SIZE,), 7.0)), True)


def without_memory_of_the_gpu() -> None:
    """Objects of others take none of it, nor does handing in."""
    mine = [torch.full((16 << 20,), float(RANK), device=CUDA) for _ in range(4)]
    torch.cuda.synchronize(CUDA)
    torch.cuda.reset_peak_memory_stats(CUDA)
    before = torch.cuda.memory_allocated(CUDA)
    for rank, part in enumerate(fsgather.all_gather(mine)):
        on_host(part[3][:1000], torch.full((1000,), float(rank)))
    expect(torch.cuda.max_memory_allocated(CUDA) - before, 0)


def under_a_default_device() -> None:
    """What was on the host stays there, though new tensors are made on the GPU."""
    for device in ("cuda", "meta"):
        with torch.device(device):
            mine = {"host": torch.arange(5.0, device="cpu"), "gpu": torch.ones(5, device=CUDA), "large": torch.ones(50_000, device="cpu")}
            for part in fsgather.all_gather(mine):
                for name, wanted in mine.items():
                    on_host(part[name], wanted)


def in_modes() -> None:
    """Under autocast, without gradients, in inference."""
    for mode in (torch.autocast("cuda", torch.bfloat16), torch.no_grad(), torch.inference_mode()):
        with mode:
            mine = torch.ones(30_000, device=CUDA) * 1.0078125
            for part in fsgather.all_gather(mine):
                on_host(part, torch.full((30_000,), 1.0078125))


def what_is_pickled() -> str:
    """What is no plain data comes as from pickle, with what it carries; where it is then is told."""
    parameter = torch.nn.Parameter(torch.full((300,), float(RANK), device=CUDA))
    leaf = torch.full((3,), float(RANK), device=CUDA, requires_grad=True)
    sparse = torch.eye(4, device=CUDA).to_sparse()
    conjugate = torch.full((3,), 1 + 2j, device=CUDA).conj()
    for rank, (par, one, spa, con) in enumerate(fsgather.all_gather((parameter, leaf, sparse, conjugate))):
        expect((type(par), par.requires_grad, one.requires_grad), (torch.nn.Parameter, True, True))
        expect((par.sum().item(), one.sum().item()), (300.0 * rank, 3.0 * rank))
        expect(spa.to_dense().sum().item(), 4.0)
        expect(con.sum().item(), 3 - 6j)
        where = f": a parameter on {par.device}, a leaf on {one.device}, a sparse tensor on {spa.device}, a conjugate on {con.device}"
    return where


def what_is_shared() -> None:
    """One tensor twice is one tensor twice, and views of one another stay such."""
    one = torch.arange(20_000.0, device=CUDA)
    for first, again, part in fsgather.all_gather([one, one, one[5:10]]):
        expect(first is again, True)
        first[7] = -1.0
        expect(part[2].item(), -1.0)


def seconds(call: Callable[[], Any]) -> float:
    """The median of five."""
    taken = []
    for _ in range(5):
        fsgather.barrier()
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[2]


def speed() -> str:
    """What a gather of 256 MB on the GPU costs, beside the copy to the host alone."""
    mine = torch.ones(64 << 20, device=CUDA)
    everybody = seconds(lambda: fsgather.all_gather(mine))
    root = seconds(lambda: fsgather.gather_object(mine))
    copy = seconds(mine.cpu)
    return f" all_gather {everybody * 1000:.0f} ms, gather_object {root * 1000:.0f} ms, the copy to the host alone {copy * 1000:.0f} ms"


def without_touching_it() -> None:
    """Who gets tensors of a GPU uses none for that."""
    mine = torch.full((50_000,), 3.0, device=CUDA) if RANK == 1 else None
    found = fsgather.all_gather(mine)[1]
    on_host(found, torch.full((50_000,), 3.0))
    expect(torch.cuda.is_initialized(), RANK == 1)


CASES: list[Callable[[], Any]] = [
    without_touching_it,
    every_type,
    every_function,
    joined,
    on_a_side_stream,
    without_memory_of_the_gpu,
    under_a_default_device,
    in_modes,
    what_is_pickled,
    what_is_shared,
    speed,
]


def main() -> None:
    """The case of a job. An exception ends the rank, as that of any program, and the others are told."""
    (case,) = (case for case in CASES if case.__name__ == os.environ["SWITCH_CASE"])
    said = case() or ""
    with open(os.path.join(os.environ["SWITCH_OUTPUT"], f"rank-{RANK}"), "w") as output:
        print(f"ok{said}", file=output)


if __name__ == "__main__":
    main()
