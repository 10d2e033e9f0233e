"""Names of a backend, what else can be inside, devices of one process, and work that overlaps."""

import pathlib
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.distributed import processes, training
from tests.distributed.test_collectives import WAYS

NAMES = (None, "gloo", "cpu:gloo,ocl:gloo", "ocl:gloo")


def names(rank, folder):
    """Each name makes a group for `ocl`, and for the CPU unless it names `ocl` alone."""
    for number, name in enumerate(NAMES):
        store = dist.FileStore(f"{folder}/{number}", 2)
        dist.init_process_group(name, store=store, rank=rank, world_size=2)
        for device in ("ocl",) if name == "ocl:gloo" else ("ocl", "cpu"):
            x = torch.full((3,), rank + 1.0, device=device)
            dist.all_reduce(x)
            assert x.device.type == device and x.tolist() == [3.0] * 3, name
        dist.destroy_process_group()


def test_names(tmp_path):
    processes.run(names, str(tmp_path), backend="")


def another_inner_backend(rank):
    """Torch's stand-in for a backend: a call ends at once, a gather has this rank's own tensor."""
    from torch._C._distributed_c10d import FakeProcessGroup

    from torch_ocl import _distributed

    inner = FakeProcessGroup._create_internal(0, 3)
    backend = _distributed.wrap(inner, None, 0)
    assert backend.name() == inner.name()
    x = torch.arange(4.0, device="ocl")
    rows = [torch.empty_like(x) for _ in range(3)]
    backend.allgather([rows], [x]).wait()
    assert all(torch.equal(row.cpu(), x.cpu()) for row in rows)
    for work in (backend.allreduce([x]), backend.broadcast(x, 0)):
        work.wait()
        assert work.is_completed()
    backend.barrier().wait()
    assert x.tolist() == [0, 1, 2, 3] and backend.calls == 4


@pytest.mark.parametrize("way", WAYS)
def test_another_inner_backend(way):
    processes.run(another_inner_backend, size=1, backend="", environment=WAYS[way])


def overlap(rank):
    """Rank 1 comes late. What rank 0 computes meanwhile waits for nothing."""
    x, a = torch.ones(3 << 20, device="ocl"), torch.ones(64, 64, device="ocl")
    torch.ocl.synchronize()
    dist.barrier()
    if rank == 1:
        time.sleep(2)
    work = dist.all_reduce(x, async_op=True)
    start = time.monotonic()
    assert (a @ a).sum().item() == 64.0**3
    if rank == 0:
        assert not work.is_completed() and time.monotonic() - start < 1.5
    work.wait()
    assert x.eq(2).all()


@pytest.mark.parametrize("way", WAYS)
def test_work_overlaps(way):
    processes.run(overlap, environment=WAYS[way])


def parts_of_a_device(rank):
    """Each rank's mesh takes a part, with a model and a tensor that lie there."""
    mesh = init_device_mesh("ocl", (2,))
    assert torch.ocl.device_count() == 2 and torch.ocl.current_device() == rank
    a = torch.arange(24.0).view(4, 6)
    x = distribute_tensor(a.to("ocl"), mesh, [Shard(0)])
    y = distribute_tensor(a.t().contiguous().to("ocl"), mesh, [Replicate()])
    assert x.to_local().device.index == rank
    torch.testing.assert_close((x @ y).full_tensor().cpu(), a @ a.t())
    net = torch.nn.parallel.DistributedDataParallel(training.model("ocl"))
    assert next(net.parameters()).device.index == rank
    training.check(training.train(net, training.optimizer(net.parameters()), rank, 2, "ocl"))


def test_the_usual_chunk_is_what_documents_say():
    from torch_ocl import _distributed, _environment

    said = f"default {_distributed.USUAL_CHUNK}"
    assert _environment.VARIABLES["TORCH_OCL_DISTRIBUTED_CHUNK"].endswith(said)
    page = pathlib.Path(__file__).parents[2] / "docs/user/distributed.md"
    assert f"{_distributed.USUAL_CHUNK} by default" in page.read_text()


def test_parts_of_a_device():
    processes.run(parts_of_a_device, environment={"TORCH_OCL_PARTITION": "2"})


def sampled(rank):
    """Each rank sees its share of the rows, in another order in each epoch."""
    data = TensorDataset(torch.arange(20))
    sampler = DistributedSampler(data, seed=3)
    orders = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        loader = DataLoader(data, batch_size=5, sampler=sampler, pin_memory=True)
        mine = torch.cat([batch.to("ocl", non_blocking=True) for (batch,) in loader])
        both = torch.empty(20, dtype=torch.int64, device="ocl")
        dist.all_gather_into_tensor(both, mine)
        assert sorted(both.tolist()) == list(range(20))
        orders.append(mine.tolist())
    assert orders[0] != orders[1]


def test_distributed_sampler():
    processes.run(sampled)
