"""Process groups whose tensors go through memory shared with the inner backend, as NCCL's do.

Here gloo is inside, and what is shared is the host's memory of a CPU device. What only NCCL and
CUDA have is in tests/distributed/nccl.py, for a machine with two GPUs."""

import datetime
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from tests.distributed import processes, training
from tests.distributed.test_collectives import CASES, compare

MIB = 1 << 20


def share(rank: int, memory: str = "host", kept: int = 64 * MIB):
    """Gives the group, of CPU tensors, a backend for ocl with shared memory; returns that."""
    from torch_ocl import _distributed

    group = dist.group.WORLD
    store = dist.PrefixStore("shared/", group.get_group_store())
    timeout = datetime.timedelta(seconds=60)
    inner = dist.ProcessGroupGloo(store, rank, dist.get_world_size(), timeout=timeout)
    backend = _distributed.share(inner, memory, kept)
    group._register_backend(torch.device("ocl"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    group._set_group_name(distributed_c10d._world.pg_names[group])  # of the new one, too
    return backend


def settled(backend) -> dict:
    """The counts of blocks. Threads of gloo hold a call's tensors for a moment after it."""
    end = time.monotonic() + 10
    while backend.shared_memory["in_use"] and time.monotonic() < end:
        time.sleep(0.01)
    return backend.shared_memory


def run(function, *arguments, size=2):
    return processes.run(function, *arguments, size=size, backend="cpu:gloo")


def as_on_the_cpu(rank, case):
    backend = share(rank)
    compare(rank, case, CASES[case])
    return settled(backend)


@pytest.mark.parametrize("case", CASES)
def test_collectives_are_as_on_the_cpu(case):
    for counts in run(as_on_the_cpu, case):
        assert counts["made"] > 0 and counts["in_use"] == 0
        assert counts["kept"] <= counts["made"] and 0 < counts["kept_bytes"] <= 64 * MIB


def blocks(rank):
    """Segments made and kept, by calls one after the other and by calls at a time."""
    backend = share(rank, kept=8 * MIB)
    found = []
    for _ in range(10):
        dist.all_reduce(torch.ones(100, device="ocl"))
    found.append(settled(backend))
    several = [torch.full((MIB,), float(rank + i), device="ocl") for i in range(6)]  # of 4 MiB
    works = [dist.all_reduce(x, async_op=True) for x in several]
    for work in works:
        work.wait()
    for i, x in enumerate(several):
        assert torch.equal(x.cpu(), torch.full((MIB,), 2.0 * i + 1)), i
    del work, works
    found.append(settled(backend))
    dist.barrier()
    dist.destroy_process_group()
    found.append(settled(backend))
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)  # for the caller to end
    return found


def test_blocks_are_kept_up_to_a_bound_and_released_with_the_group():
    for first, second, last in run(blocks):
        assert 1 <= first["made"] <= 3 and first["kept_bytes"] == 2 * MIB * first["made"]
        assert second["made"] > 1
        assert second["kept_bytes"] <= 8 * MIB
        assert last["kept"] == last["kept_bytes"] == 0


def put_off(rank):
    """Seconds until a call ends that nobody waits for, while the program computes on; and whether
    one that is asked about does at once."""
    share(rank)
    x, busy = torch.full((1000,), float(rank), device="ocl"), torch.ones(256, 256, device="ocl")
    dist.all_reduce(torch.ones(1, device="ocl"))
    ended, events = [], [torch.ocl.Event(), torch.ocl.Event()]

    def compute():
        """Keeps the device at work, with no more than that ahead of it."""
        event = events.pop(0)
        event.synchronize()
        for _ in range(20):
            busy.mul_(1.0).matmul(busy)
        event.record()
        events.append(event)

    start = time.monotonic()
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future().then(lambda _: ended.append(time.monotonic() - start))
    while not ended and time.monotonic() < start + 30:
        compute()
    future.wait()
    right = [torch.equal(x.cpu(), torch.ones(1000))]
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed() and time.monotonic() < start + 60:
        compute()
    right += [work.is_completed(), torch.equal(x.cpu(), torch.full((1000,), 2.0))]
    return ended[0], right


@pytest.mark.slow
def test_a_call_that_nobody_waits_for_ends_while_the_program_computes_on():
    for seconds, right in run(put_off):
        assert seconds < 10 and all(right), (seconds, right)


def small_tensors(rank):
    """Many of a call share a block, and don't overlap."""
    backend = share(rank)
    x = torch.arange(5, device="ocl") + 10 * rank
    rows = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(rows, x)
    made = backend.shared_memory["made"]
    return made, [row.tolist() for row in rows]


def lists(rank):
    """all_to_all of lists, which the inner backend gets as lists."""
    share(rank)
    sent = [torch.full((3,), 10.0 * rank + other, device="ocl") for other in range(2)]
    received = [torch.empty(3, device="ocl") for _ in range(2)]
    dist.all_to_all(received, sent)
    return [x.tolist() for x in received]


def test_lists_go_as_lists():
    assert run(lists) == [[[0.0] * 3, [10.0] * 3], [[1.0] * 3, [11.0] * 3]]


def test_small_tensors_share_a_block():
    expected = [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
    assert run(small_tensors) == [(1, expected)] * 2


def layouts(rank):
    """Views, empty tensors, scalars, and calls under way that read what earlier kernels write."""
    share(rank)
    x = torch.arange(12.0).view(3, 4).to("ocl")
    columns = x.t()[1:]
    dist.all_reduce(columns)
    empty, scalar = torch.empty(0, 3, device="ocl"), torch.tensor(2.5, device="ocl")
    dist.all_reduce(empty)
    dist.all_reduce(scalar)
    y = torch.full((50_000,), 1.0 + rank, device="ocl")
    z = torch.empty(100_000, device="ocl")
    tripled = y * 3
    works = [dist.all_gather_into_tensor(z, tripled, async_op=True)]
    works += [dist.all_reduce(y, async_op=True)]
    for work in works:
        work.wait()
    y.add_(z[:50_000])
    z.mul_(2)
    return x.tolist(), scalar.item(), [*y[::25_000].tolist(), *z[::50_000].tolist()]


def test_layouts():
    x = torch.arange(12.0).view(3, 4)
    x[:, 1:] *= 2
    assert run(layouts) == [(x.tolist(), 5.0, [6.0, 6.0, 6.0, 12.0])] * 2


def batches(rank):
    """Sends before receives on all ranks: only as one batch do large ones end with NCCL."""
    share(rank)
    size = dist.get_world_size()
    sent = torch.full((300_000,), float(rank), device="ocl")
    received = [torch.empty_like(sent) for _ in range(size)]
    others = [other for other in range(size) if other != rank]
    ops = [dist.P2POp(dist.isend, sent, other) for other in others]
    ops += [dist.P2POp(dist.irecv, received[other], other) for other in others]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [received[other].mean().item() for other in others]


def test_batches_of_sends_and_receives():
    assert run(batches, size=3) == [[1.0, 2.0], [0.0, 2.0], [0.0, 1.0]]


def refusals(rank):
    """Errors name what is wrong, and leave no block behind."""
    backend = share(rank)
    floats = torch.ones(3, device="ocl")
    with pytest.raises(RuntimeError, match="takes no others"):
        backend.allreduce([torch.ones(3)]).wait()
    with pytest.raises(RuntimeError, match="sparse"):
        dist.all_reduce(floats.to_sparse())
    for async_op in (False, True):
        with pytest.raises((RuntimeError, ValueError), match="non-integral"):
            work = dist.all_reduce(floats, dist.ReduceOp.BAND, async_op=async_op)
            work.wait()
    work = None
    dist.all_reduce(floats)
    return floats.tolist(), settled(backend)["in_use"], backend.supports_splitting


def test_errors():
    assert run(refusals) == [([2.0] * 3, 0, False)] * 2


def without_cuda(rank):
    """A CPU device shares nothing with CUDA, whatever PyTorch is."""
    share(rank, "cuda")
    with pytest.raises(RuntimeError, match="NCCL for ocl tensors"):
        dist.all_reduce(torch.ones(3, device="ocl"))
    with pytest.raises(RuntimeError, match="NCCL for ocl tensors"):
        dist.send(torch.ones(3, device="ocl"), 1 - rank)


def test_cuda_memory_says_what_is_missing():
    run(without_cuda)


def data_parallel(rank):
    share(rank)
    net = DistributedDataParallel(training.model("ocl"))
    return training.train(net, training.optimizer(net.parameters()), rank, 2, "ocl")


def sharded(rank):
    share(rank)
    net = training.model("ocl")
    mesh = init_device_mesh("ocl", (2,))
    for layer in net:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return training.train(net, training.optimizer(net.parameters()), rank, 2, "ocl")


@pytest.mark.parametrize("function", [data_parallel, sharded])
def test_training(function):
    for losses in run(function):
        training.check(losses)


def names(rank):
    """The meaning of "nccl", in a PyTorch that has it and in one that hasn't."""

    def devices(backend):
        return set(distributed_c10d.BackendConfig(backend).get_device_backend_map())

    dist.distributed_c10d.is_nccl_available = lambda: True
    assert devices("nccl") == {"cuda"}  # a program of CUDA
    assert devices("cpu:gloo,ocl:nccl") == {"cpu", "ocl"}
    torch.ocl.init()
    assert devices("nccl") == {"cuda", "ocl"}
    assert devices("cuda:nccl") == {"cuda"}
    dist.distributed_c10d.is_nccl_available = lambda: False
    assert devices("cuda:nccl") == {"cuda"}
    import torch_ocl

    with pytest.raises(RuntimeError, match="built with CUDA and NCCL"):
        dist.init_process_group("cpu:gloo,ocl:nccl", store=dist.HashStore(), rank=0, world_size=1)
    torch_ocl.cuda_to_ocl()
    with pytest.raises(RuntimeError, match="built with CUDA and NCCL"):
        dist.init_process_group("cpu:gloo,ocl:nccl", store=dist.HashStore(), rank=0, world_size=1)
    # Programs that can't be changed have gloo instead.
    for backend in ("nccl", "NCCL", "cpu:gloo,cuda:nccl"):
        with pytest.warns(UserWarning, match="this PyTorch has no NCCL"):
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        x = torch.ones(3, device="cuda")
        dist.all_reduce(x)
        dist.barrier()
        assert x.is_cuda and x.sum() == 3 and "nccl" not in dist.get_backend()
        dist.destroy_process_group()


def test_names():
    processes.run(names, size=1, backend="")
