"""torch.ops.symm_mem: products run as collectives; symmetric memory says what to use."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from torch.distributed._functional_collectives import wait_tensor

from tests.distributed import processes


def products(rank):
    generator = torch.Generator().manual_seed(3)
    a, b, c = (torch.randn(size, generator=generator) for size in ((8, 6), (6, 4), (6, 5)))
    group = dist.group.WORLD.group_name
    for dim in (0, 1):
        shard = a.chunk(2, dim)[rank].to("ocl")
        gathered, results = torch.ops.symm_mem.fused_all_gather_matmul(
            shard, [b.to("ocl"), c.to("ocl")], dim, group
        )
        assert torch.equal(gathered.cpu(), a)
        for result, other in zip(results, (b, c), strict=True):
            assert result.device.type == "ocl"
            torch.testing.assert_close(result.cpu(), a @ other)
        mine = torch.ops.symm_mem.fused_matmul_reduce_scatter(
            (a * (rank + 1)).to("ocl"), b.to("ocl"), "sum", dim, group
        )
        torch.testing.assert_close(mine.cpu(), (3 * a @ b).chunk(2, dim)[rank])
    rows = torch.ops.symm_mem._low_contention_all_gather(a.chunk(2)[rank].to("ocl"), group)
    assert torch.equal(wait_tensor(rows).cpu(), a)
    part = torch.ops.symm_mem._low_contention_reduce_scatter(a.to("ocl"), "sum", group)
    assert torch.equal(wait_tensor(part).cpu(), 2 * a.chunk(2)[rank])


def refusals(rank):
    group = dist.group.WORLD.group_name
    for call in (
        lambda: symmetric.empty(8, device="ocl"),
        lambda: symmetric.empty(8, device=torch.device("ocl", 0)),
        lambda: symmetric.rendezvous(torch.empty(8, device="ocl"), group),
        lambda: symmetric.get_symm_mem_workspace(group, 64),
        lambda: symmetric.get_mem_pool("ocl"),
    ):
        with pytest.raises(RuntimeError, match="ocl has no symmetric memory"):
            call()
    with pytest.raises(RuntimeError, match="does not support device type cpu"):
        symmetric.empty(8, device="cpu")


def all_cases(rank):
    processes.each((products, refusals), rank)


def test_symmetric_memory():
    processes.run(all_cases)
