"""Every collective on ocl tensors gives what gloo gives on CPU tensors, in each dtype it has."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from tests.distributed import processes

REDUCED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
MOVED = (*REDUCED, "bool")
REDUCTIONS = ("SUM", "PRODUCT", "MIN", "MAX")
BITS = ("BAND", "BOR", "BXOR")


def numbers(dtype: str, rank: int, *shape: int) -> torch.Tensor:
    """Numbers of a rank, alike at every call, small enough for reductions of three to be exact."""
    generator = torch.Generator().manual_seed(17 + rank)
    values = torch.randint(0, 4, shape, generator=generator)
    return (values > 1) if dtype == "bool" else values.to(getattr(torch, dtype))


def reductions(device: str, rank: int, dtype: str) -> list:
    found = []
    integral = not getattr(torch, dtype).is_floating_point
    for name in (*REDUCTIONS, *(BITS if integral else ())):
        op = getattr(dist.ReduceOp, name)
        x = numbers(dtype, rank, 5, 3).to(device)
        dist.all_reduce(x, op)
        y = numbers(dtype, rank, 4).to(device)
        dist.reduce(y, dst=1, op=op)
        found += [x, y] if rank == 1 else [x]
        out = torch.empty(2, 3, dtype=getattr(torch, dtype), device=device)
        rows = numbers(dtype, rank, 2 * dist.get_world_size(), 3).to(device)
        dist.reduce_scatter_tensor(out, rows, op)
        found.append(out)
        if name == "SUM":
            out = torch.empty_like(out)
            dist.reduce_scatter(out, list(rows.chunk(dist.get_world_size())), op)
            found.append(out)
    return found


def moves(device: str, rank: int, dtype: str) -> list:
    size = dist.get_world_size()
    x = numbers(dtype, rank, 3, 2).to(device)
    found = []
    y = x.clone()
    dist.broadcast(y, 1)
    found.append(y)
    rows = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(rows, x)
    found += rows
    whole = torch.empty(3 * size, 2, dtype=x.dtype, device=device)
    dist.all_gather_into_tensor(whole, x)
    found.append(whole)
    stacked = torch.empty(size, 3, 2, dtype=x.dtype, device=device)
    if device == "ocl":  # as NCCL's; gloo refuses it
        dist.all_gather_into_tensor(stacked, x)
    else:
        stacked.copy_(whole.view_as(stacked))
    found.append(stacked)
    rows = [torch.empty_like(x) for _ in range(size)] if rank == 1 else None
    dist.gather(x, rows, dst=1)
    found += rows or []
    y = torch.empty_like(x)
    dist.scatter(y, list(whole.chunk(size)) if rank == 0 else None, src=0)
    found.append(y)
    y = torch.empty(2 * size, 2, dtype=x.dtype, device=device)
    dist.all_to_all_single(y, numbers(dtype, rank, 2 * size, 2).to(device))
    found.append(y)
    # Rank i sends i + j + 1 rows to rank j.
    sent, received = [rank + j + 1 for j in range(size)], [i + rank + 1 for i in range(size)]
    y = torch.empty(sum(received), 2, dtype=x.dtype, device=device)
    dist.all_to_all_single(y, numbers(dtype, rank, sum(sent), 2).to(device), received, sent)
    found.append(y)
    return found


def point_to_point(device: str, rank: int, dtype: str) -> list:
    size = dist.get_world_size()
    x = numbers(dtype, rank, 4, 2).to(device)
    y = torch.empty_like(x)
    if rank == 0:
        dist.send(x, 1, tag=3)
    elif rank == 1:
        dist.recv(y, 0, tag=3)
    z = torch.empty_like(x)
    works = [dist.isend(x, (rank + 1) % size), dist.irecv(z, (rank - 1) % size)]
    for work in works:
        work.wait()
    w = torch.empty_like(x)
    ops = [
        dist.P2POp(dist.isend, x, (rank + 1) % size),
        dist.P2POp(dist.irecv, w, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    v = torch.empty_like(x)
    if rank == 0:
        dist.send(x, 1)
        source = -1
    else:
        source = dist.recv(v) if rank == 1 else -1
    found = [z, w, torch.tensor(source)]
    return found + [y, v] if rank == 1 else found


def coalesced(device: str, rank: int, dtype: str) -> list:
    size = dist.get_world_size()
    some = [numbers(dtype, rank, 3).to(device), numbers(dtype, rank, 2, 2).to(device)]
    x, y = (t.clone() for t in some)
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.all_reduce(y)
    lists = [[torch.empty_like(t) for t in some] for _ in range(size)]
    dist.all_gather_coalesced(lists, some)
    outs = [torch.empty(size * t.shape[0], *t.shape[1:], dtype=t.dtype).to(device) for t in some]
    with dist._coalescing_manager():
        for out, t in zip(outs, some, strict=True):
            dist.all_gather_into_tensor(out, t)
    return [x, y, *itertools.chain(*lists), *outs]


def functionals(device: str, rank: int, dtype: str) -> list:
    group, size = dist.group.WORLD, dist.get_world_size()
    x = numbers(dtype, rank, size * 2, 3).to(device)
    found = [
        functional.all_reduce(x, "sum", group),
        functional.all_gather_tensor(x, 0, group),
        functional.all_gather_tensor(x, 1, group),
        functional.reduce_scatter_tensor(x, "sum", 0, group),
        functional.all_to_all_single(x, None, None, group),
        functional.broadcast(x, 1, group),
        *functional.all_reduce_coalesced([x, x + 1], "sum", group),
        *functional.all_gather_into_tensor_coalesced([x, x + 1], group),
        *functional.reduce_scatter_tensor_coalesced([x, x + 1], "sum", [0, 0], group),
    ]
    return [x + 0 for x in found]  # waits


def compare(rank: int, function: str, dtypes: tuple) -> list:
    for dtype in dtypes:
        expected = globals()[function]("cpu", rank, dtype)
        found = globals()[function]("ocl", rank, dtype)
        assert len(found) == len(expected)
        for number, (x, y) in enumerate(zip(found, expected, strict=True)):
            # Three numbers are added up in another order.
            torch.testing.assert_close(x.cpu(), y, msg=lambda m, n=number, d=dtype: f"{n} {d} {m}")
    return sorted({x.device.type for x in found})


CASES = {
    "reductions": REDUCED,
    "moves": MOVED,
    "point_to_point": ("float32", "bfloat16", "int64", "bool"),
    "coalesced": ("float32", "int64"),
    "functionals": ("float32", "bfloat16", "int64"),
}
# Memory lent to gloo, and copied to pinned memory.
WAYS = {"lent": {}, "pinned": {"TORCH_OCL_WITHOUT": "unified_memory"}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", CASES)
def test_it_is_as_on_the_cpu(function, way):
    size = 3 if way == "lent" else 2
    found = processes.run(compare, function, CASES[function], size=size, environment=WAYS[way])
    assert all("ocl" in devices for devices in found)
