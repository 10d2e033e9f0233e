"""NCCL on `ocl` tensors, for a machine with two NVIDIA GPUs and a PyTorch that has NCCL.

    python -m tests.distributed.nccl [--only NAME] [--ranks 2]

Every collective against expected values, DistributedDataParallel and FSDP2 against one process, and
what an all_reduce takes beside NCCL's own on CUDA tensors and beside gloo. The exit code says
whether all went well. The rest of shared memory is in test_shared_memory.py, for any machine.
"""

import argparse
import datetime
import faulthandler
import os
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import torch_ocl  # noqa: F401 - where CUDA is there, it isn't loaded by itself
from tests.distributed import training

#: Seconds for all checks, and for a call.
LIMIT, TIMEOUT = 300, 60
SIZES = (4 << 10, 64 << 20)
DTYPES = (torch.float32, torch.bfloat16, torch.int64)
#: Elements; the second is a block of its own, of which a part is used.
LENGTHS = (6, 1_500_006)


def ocl() -> torch.device:
    return torch.device("ocl", torch.ocl.current_device())


def equal(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Says which elements differ first, and how many."""
    found, expected = found.cpu(), expected.to(found.dtype).cpu()
    assert found.shape == expected.shape, f"{what}: {found.shape}, expected {expected.shape}"
    wrong = (found != expected).nonzero()
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise AssertionError(
            f"{what}: {len(wrong)} of {found.numel()} elements are wrong, first at {at}: "
            f"{found[at].item()}, expected {expected[at].item()}"
        )


def mine(rank: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers on the CPU, other ones on each rank: every result is exact."""
    return ((torch.arange(length) + 3 * rank) % 7).to(dtype)


def everyones(length: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([mine(rank, length, dtype) for rank in range(dist.get_world_size())])


def cases():
    for dtype in DTYPES:
        for length in LENGTHS:
            yield length, dtype, f"{dtype}, {length} elements"


def all_reduce(rank: int) -> None:
    for length, dtype, what in cases():
        rows = everyones(length, dtype)
        expected = {"SUM": rows.sum(0), "MAX": rows.amax(0), "MIN": rows.amin(0)}
        if dtype.is_floating_point:
            expected["AVG"] = rows.float().mean(0)
        for name, value in expected.items():
            x = mine(rank, length, dtype).to(ocl())
            dist.all_reduce(x, getattr(dist.ReduceOp, name))
            equal(x, value, f"{name}, {what}")


def asynchronous(rank: int) -> None:
    """Many under way, and kernels before and after."""
    tensors = [torch.full((400_000,), float(i + rank), device=ocl()) * 2 for i in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    for i, (work, x) in enumerate(zip(works, tensors, strict=True)):
        work.wait()
        size = dist.get_world_size()
        total = 2.0 * (i * size + sum(range(size)))
        equal(x + 1, torch.full((400_000,), total + 1), f"call {i}")


def broadcast(rank: int) -> None:
    for length, dtype, what in cases():
        x = mine(rank, length, dtype).to(ocl())
        dist.broadcast(x, 1)
        equal(x, mine(1, length, dtype), what)


def reduce(rank: int) -> None:
    for length, dtype, what in cases():
        x = mine(rank, length, dtype).to(ocl())
        dist.reduce(x, 1)
        if rank == 1:
            equal(x, everyones(length, dtype).sum(0), what)


def all_gather(rank: int) -> None:
    size = dist.get_world_size()
    for length, dtype, what in cases():
        x = mine(rank, length, dtype).to(ocl())
        whole = torch.empty(size * length, dtype=dtype, device=ocl())
        dist.all_gather_into_tensor(whole, x)
        equal(whole.view(size, length), everyones(length, dtype), f"into a tensor, {what}")
        rows = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(rows, x)
        equal(torch.stack(rows), everyones(length, dtype), f"list, {what}")


def reduce_scatter(rank: int) -> None:
    size = dist.get_world_size()
    for length, dtype, what in cases():
        whole = mine(rank, size * length, dtype)
        expected = everyones(size * length, dtype).sum(0).chunk(size)[rank]
        out = torch.empty(length, dtype=dtype, device=ocl())
        dist.reduce_scatter_tensor(out, whole.to(ocl()))
        equal(out, expected, f"of a tensor, {what}")
        dist.reduce_scatter(out.zero_(), list(whole.to(ocl()).chunk(size)))
        equal(out, expected, f"of a list, {what}")


def all_to_all(rank: int) -> None:
    size = dist.get_world_size()
    for length, dtype, what in cases():
        rows = everyones(size * length, dtype)
        out = torch.empty(size * length, dtype=dtype, device=ocl())
        dist.all_to_all_single(out, rows[rank].to(ocl()))
        expected = torch.cat([row.chunk(size)[rank] for row in rows])
        equal(out, expected, what)
    # Rank i sends i + 2 j + 1 elements to rank j.
    sent = [torch.full((rank + 2 * j + 1,), 10.0 * rank + j, device=ocl()) for j in range(size)]
    received = [torch.empty(i + 2 * rank + 1, device=ocl()) for i in range(size)]
    dist.all_to_all(received, sent)
    for i, x in enumerate(received):
        equal(x, torch.full((i + 2 * rank + 1,), 10.0 * i + rank), f"from rank {i}")


def gather_and_scatter(rank: int) -> None:
    size, length = dist.get_world_size(), 1000
    x = mine(rank, length, torch.float32).to(ocl())
    rows = [torch.empty_like(x) for _ in range(size)] if rank == 0 else None
    dist.gather(x, rows, dst=0)
    if rank == 0:
        equal(torch.stack(rows), everyones(length, torch.float32), "gather")
    dist.scatter(x, rows, src=0)
    equal(x, mine(rank, length, torch.float32), "scatter")


def point_to_point(rank: int) -> None:
    size = dist.get_world_size()
    for length, dtype, what in cases():
        x, y = mine(rank, length, dtype).to(ocl()), torch.empty(length, dtype=dtype, device=ocl())
        if rank == 0:
            dist.send(x, 1)
        elif rank == 1:
            dist.recv(y, 0)
            equal(y, mine(0, length, dtype), f"recv, {what}")
        y.zero_()
        ops = [
            dist.P2POp(dist.isend, x, (rank + 1) % size),
            dist.P2POp(dist.irecv, y, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        equal(y, mine((rank - 1) % size, length, dtype), f"batch, {what}")


def coalesced(rank: int) -> None:
    tensors = [mine(rank, length, torch.float32).to(ocl()) for length in LENGTHS]
    with dist._coalescing_manager(device=ocl()):
        for x in tensors:
            dist.all_reduce(x)
    for x, length in zip(tensors, LENGTHS, strict=True):
        equal(x, everyones(length, torch.float32).sum(0), f"{length} elements")


def barrier_and_objects(rank: int) -> None:
    dist.barrier()
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": i} for i in range(dist.get_world_size())], found


def named_alone(rank: int) -> None:
    """A group of "nccl" takes tensors of both sides."""
    group = dist.new_group(backend="nccl")
    for device in (ocl(), torch.device("cuda", rank)):
        x = mine(rank, 1000, torch.float32).to(device)
        dist.all_reduce(x, group=group)
        equal(x, everyones(1000, torch.float32).sum(0), str(device))
    dist.barrier(group)
    dist.destroy_process_group(group)


def data_parallel(rank: int) -> None:
    net = DistributedDataParallel(training.model(ocl()))
    training.check(train(net, rank))


def sharded(rank: int) -> None:
    net = training.model(ocl())
    mesh = init_device_mesh("ocl", (dist.get_world_size(),))
    for layer in net:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    training.check(train(net, rank))


def train(net, rank: int) -> torch.Tensor:
    optimizer = training.optimizer(net.parameters())
    return training.train(net, optimizer, rank, dist.get_world_size(), ocl())


def memory(rank: int) -> None:
    """Blocks come back, and are kept within their bound."""
    from torch_ocl.upstream.distributed import nccl

    backend = dist.group.WORLD._get_backend(torch.device("ocl"))
    end = time.monotonic() + 10
    while backend.shared_memory["in_use"] and time.monotonic() < end:
        time.sleep(0.05)
    counts = backend.shared_memory
    assert counts["in_use"] == 0 and counts["kept_bytes"] <= nccl.KEPT, counts


def seconds(call, synchronize) -> float:
    """The least mean of five series."""
    best = float("inf")
    for _ in range(5):
        synchronize()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(10):
            call()
        synchronize()
        best = min(best, (time.perf_counter() - start) / 10)
    return best


def speed(rank: int) -> None:
    gloo, cuda = dist.new_group(backend="cpu:gloo,ocl:gloo"), dist.new_group(backend="cuda:nccl")
    ways = {
        "ocl over NCCL": (ocl(), dist.group.WORLD, torch.ocl.synchronize),
        "CUDA over NCCL": (torch.device("cuda", rank), cuda, torch.cuda.synchronize),
        "ocl over gloo": (ocl(), gloo, torch.ocl.synchronize),
    }
    for size in SIZES:
        for name, (device, group, synchronize) in ways.items():
            x = torch.zeros(size // 4, device=device)
            took = seconds(lambda x=x, group=group: dist.all_reduce(x, group=group), synchronize)
            if rank == 0:
                print(
                    f"all_reduce of {size >> 10} KiB, {name}: {took * 1e6:.0f} us, "
                    f"{size / took / 1e9:.3f} GB/s",
                    flush=True,
                )


CHECKS = (
    all_reduce,
    asynchronous,
    broadcast,
    reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather_and_scatter,
    point_to_point,
    coalesced,
    barrier_and_objects,
    named_alone,
    data_parallel,
    sharded,
    memory,
    speed,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="run the checks whose names have this in them")
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        return run_rank(int(os.environ["RANK"]), arguments)
    if reason := unusable(arguments.ranks):
        print(reason)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.distributed.nccl", *sys.argv[1:]]
        variables = os.environ | {"NCCL_TEST_STORE": f"{folder}/store"}
        ranks = [
            subprocess.Popen(command, env=variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(arguments.ranks)
        ]
        codes = [rank.wait() for rank in ranks]
    print("exit codes of the ranks:", codes)
    return int(any(codes))


def unusable(ranks: int) -> str:
    """Why the checks can't run here; empty if they can."""
    if not dist.is_nccl_available():
        return f"torch {torch.__version__} has no NCCL"
    for name, count in (("cuda", torch.cuda.device_count()), ("ocl", torch.ocl.device_count())):
        if count < ranks:
            return f"{ranks} ranks need as many devices of {name}, and there are {count}"
    return ""


def run_rank(rank: int, arguments: argparse.Namespace) -> int:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    torch.ocl.set_device(rank)
    torch.cuda.set_device(rank)
    print(
        f"rank {rank}: ocl:{rank} is {torch.ocl.get_device_name(rank)}, "
        f"cuda:{rank} is {torch.cuda.get_device_name(rank)}, torch {torch.__version__}",
        flush=True,
    )
    dist.init_process_group(
        "cpu:gloo,ocl:nccl",
        store=dist.FileStore(os.environ["NCCL_TEST_STORE"], arguments.ranks),
        rank=rank,
        world_size=arguments.ranks,
        timeout=datetime.timedelta(seconds=TIMEOUT),
    )
    failed = []
    for check in CHECKS:
        if arguments.only and arguments.only not in check.__name__:
            continue
        start = time.monotonic()
        try:
            check(rank)
            took = time.monotonic() - start
            print(f"rank {rank}: {check.__name__}: ok, {took:.1f} s", flush=True)
        except AssertionError as error:  # the other rank goes on likewise
            failed.append(check.__name__)
            print(f"rank {rank}: {check.__name__}: FAILED: {error}", flush=True)
        except Exception:
            print(f"rank {rank}: {check.__name__}: FAILED\n{traceback.format_exc()}", flush=True)
            os._exit(1)  # the ranks are no longer at the same call
    dist.destroy_process_group()
    if failed:
        print(f"rank {rank}: failed: {', '.join(failed)}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
