"""Process groups over NCCL, on a machine with two NVIDIA GPUs and a PyTorch that has CUDA.

    python -m tests.distributed.nccl

Two ranks make each collective, and train by DistributedDataParallel and fully_shard. Prints what
fails, and how fast all_reduce is. Exit status 1 if anything failed."""

import os
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import torch_ocl  # noqa: F401  # which some set-ups don't load by themselves
from tests.distributed import training

SIZE = 2


def on(device: torch.device, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Whole numbers, others on each rank."""
    values = torch.arange(torch.Size(shape).numel()) % 97 + dist.get_rank() + 1
    return values.to(dtype).view(shape).to(device)


def of_rank(rank: int, x: torch.Tensor) -> torch.Tensor:
    return (x - dist.get_rank() + rank).cpu()


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.cpu(), expected.to(actual.dtype))


def all_reduce(device):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        for shape in ((5,), (3, 700), (1 << 20,)):
            x = on(device, *shape, dtype=dtype)
            a, b = of_rank(0, x), of_rank(1, x)
            ops = [(dist.ReduceOp.SUM, a + b), (dist.ReduceOp.MAX, torch.maximum(a, b))]
            if dtype.is_floating_point:
                ops.append((dist.ReduceOp.AVG, (a + b) / 2))
            for op, expected in ops:
                y = x.clone()
                dist.all_reduce(y, op)
                same(y, expected)
    x = on(device, 40, 50).t()  # not contiguous
    expected = of_rank(0, x) + of_rank(1, x)
    dist.all_reduce(x)
    same(x, expected)
    works, results = [], []
    for number in range(20):
        results.append(torch.full((1000 + number,), 1.0 + dist.get_rank(), device=device))
        works.append(dist.all_reduce(results[-1], async_op=True))
    for work, result in zip(works, results, strict=True):
        work.wait()
        same(result, torch.full(result.shape, 3.0))


def others(device):
    x = on(device, 6, 4)
    y = x.clone()
    dist.broadcast(y, 1)
    same(y, of_rank(1, x))
    y = x.clone()
    dist.reduce(y, 0)
    if dist.get_rank() == 0:
        same(y, of_rank(0, x) + of_rank(1, x))
    rows = torch.empty(12, 4, device=device)
    dist.all_gather_into_tensor(rows, x)
    same(rows, torch.cat([of_rank(0, x), of_rank(1, x)]))
    lists = [torch.empty_like(x) for _ in range(SIZE)]
    dist.all_gather(lists, x)
    for rank, tensor in enumerate(lists):
        same(tensor, of_rank(rank, x))
    half = torch.empty(3, 4, device=device)
    dist.reduce_scatter_tensor(half, x)
    same(half, (of_rank(0, x) + of_rank(1, x)).chunk(2)[dist.get_rank()])
    turned = torch.empty_like(x)
    dist.all_to_all_single(turned, x)
    parts = [of_rank(rank, x).chunk(2)[dist.get_rank()] for rank in range(SIZE)]
    same(turned, torch.cat(parts))
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": dist.get_rank()})
    assert objects == [{"rank": 0}, {"rank": 1}], objects
    dist.barrier()


def point_to_point(device):
    rank, x = dist.get_rank(), on(device, 70, 3)
    y = torch.empty_like(x)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(y, 1)
    else:
        dist.recv(y, 0)
        dist.send(x, 0)
    same(y, of_rank(1 - rank, x))
    large, received = on(device, 3 << 20), torch.empty(3 << 20, device=device)
    pair = [dist.P2POp(dist.isend, large, 1 - rank), dist.P2POp(dist.irecv, received, 1 - rank)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    same(received, of_rank(1 - rank, large))


def data_parallel(device):
    for options in ({}, {"static_graph": True}, {"bucket_cap_mb": 0.0005}):
        net = nn.parallel.DistributedDataParallel(training.model(device), **options)
        optimizer = training.optimizer(net.parameters())
        losses = train(net, optimizer, device)
        torch.testing.assert_close(losses, training.alone(), rtol=1e-5, atol=1e-5)


def fully_sharded(device):
    net = training.model(device)
    fully_shard(net, mesh=init_device_mesh("ocl", (SIZE,)))
    losses = train(net, training.optimizer(net.parameters()), device)
    torch.testing.assert_close(losses, training.alone(), rtol=1e-5, atol=1e-5)


def train(net, optimizer, device):
    """training.train(), but the mean of losses is taken on the device: NCCL has no CPU tensors."""
    losses = []
    for step in range(training.STEPS):
        x, y = training.share(training.batch(step, device), dist.get_rank(), SIZE)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    total = torch.stack(losses)
    dist.all_reduce(total)
    return total.cpu() / SIZE


def speed(device):
    for name, elements in (("4 KiB", 1 << 10), ("64 MiB", 16 << 20)):
        x, best = torch.ones(elements, device=device), float("inf")
        for _ in range(8):
            dist.barrier()
            torch.ocl.synchronize()
            start = time.perf_counter()
            for _ in range(10):
                dist.all_reduce(x, dist.ReduceOp.MAX)
            torch.ocl.synchronize()
            best = min(best, (time.perf_counter() - start) / 10)
        if dist.get_rank() == 0:
            rate = 4 * elements / best / 1e9
            print(f"all_reduce of {name}: {best * 1e6:.0f} us, {rate:.1f} GB/s", flush=True)


CASES = (all_reduce, others, point_to_point, data_parallel, fully_sharded, speed)


def rank_main(rank: int, folder: str) -> None:
    device = torch.device("ocl", rank)
    torch.ocl.set_device(device)
    store = dist.FileStore(f"{folder}/store", SIZE)
    dist.init_process_group("cpu:gloo,ocl:nccl", store=store, rank=rank, world_size=SIZE)
    failed = []
    for case in CASES:
        try:
            case(device)
        except Exception:
            failed.append(case.__name__)
            print(f"rank {rank}, {case.__name__}:\n{traceback.format_exc()}", flush=True)
        if rank == 0 and case.__name__ not in failed:
            print(case.__name__, "ok", flush=True)
    dist.destroy_process_group()
    sys.exit(len(failed))


def main() -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (folder,), SIZE)


if __name__ == "__main__":
    main()
