"""Features beside tensors' collectives: objects, barriers, subgroups, sparse tensors, futures.

Three ranks do all of it for tensors on the CPU and on ocl, and compare."""

import datetime
import os
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh

from tests.distributed import processes
from tests.distributed.test_collectives import WAYS, numbers

SIZE = 3


def objects(device, rank):
    """Python objects, one of which holds a tensor of the device."""
    tensor = torch.full((2,), float(rank), device=device)
    mine = {"rank": rank, "tensor": tensor, "text": "ä" * rank}
    gathered = [None] * SIZE
    dist.all_gather_object(gathered, mine)
    at_1 = [None] * SIZE if rank == 1 else None
    dist.gather_object(mine, at_1, dst=1)
    sent = [mine, None, rank] if rank == 2 else [None] * SIZE
    dist.broadcast_object_list(sent, src=2, device=torch.device(device))
    own = [None]
    dist.scatter_object_list(own, gathered if rank == 0 else None, src=0)
    passed = [None, None]
    if rank == 0:
        dist.send_object_list([mine, "second"], dst=1, device=torch.device(device))
    elif rank == 1:
        dist.recv_object_list(passed, src=0, device=torch.device(device))
    found = [*gathered, *(at_1 or []), *sent, *own, *passed]
    for thing in found:
        if isinstance(thing, dict):
            assert thing["tensor"].device.type == device
            thing["tensor"] = thing["tensor"].tolist()
    assert [thing["rank"] for thing in gathered] == [0, 1, 2] and own[0]["rank"] == rank
    return found


def lists(device, rank):
    """all_to_all and reduce_scatter of lists, of different sizes."""
    # Rank i sends i + j + 1 elements to rank j.
    sent = [numbers("float32", rank, rank + j + 1).to(device) for j in range(SIZE)]
    received = [torch.empty(i + rank + 1, device=device) for i in range(SIZE)]
    if device == "cpu":  # gloo's lists are of equal sizes
        sizes = [len(t) for t in received], [len(t) for t in sent]
        whole = torch.empty(sum(sizes[0]))
        dist.all_to_all_single(whole, torch.cat(sent), *sizes)
        received = list(whole.split(sizes[0]))
    else:
        dist.all_to_all(received, sent)
    out = torch.empty(4, 2, device=device)
    parts = [numbers("float32", 3 * rank + j, 4, 2).to(device) for j in range(SIZE)]
    dist.reduce_scatter(out, parts, dist.ReduceOp.MAX)
    return [*received, out]


def uneven_gathers(device, rank):
    """all_gather of rows of different sizes, as NCCL has it; gloo has none."""
    if device == "cpu":
        return [torch.full((i + 1, 2), float(i)) for i in range(SIZE)] * 2
    found = []
    for asynchronous in (False, True):
        rows = [torch.empty(i + 1, 2, device=device) for i in range(SIZE)]
        mine = torch.full((rank + 1, 2), float(rank), device=device)
        work = dist.all_gather(rows, mine, async_op=asynchronous)
        if asynchronous:
            work.wait()
        found += rows
    return found


def sparse(device, rank):
    """all_reduce: ranks with other places, as many or none, and with dense dimensions."""
    found = []
    for shape, dense in (((5,), ()), ((4, 3), ()), ((4, 3), (2,)), ((6,), (2, 3))):
        nonzero = rank + 1 if dense else rank
        places = torch.stack([(torch.arange(nonzero) * (rank + 1)) % extent for extent in shape])
        entries = numbers("float32", rank, nonzero, *dense)
        for dtype in (torch.float32, torch.int64):
            x = torch.sparse_coo_tensor(
                places, entries.to(dtype), shape + dense, check_invariants=True
            )
            x = x.to(device)
            dist.all_reduce(x)
            assert x.device.type == device
            found.append(x.to_dense())
    return found


def futures(device, rank):
    """Callbacks, also chained, and what asynchronous works say of themselves."""
    x = numbers("float32", rank, 4).to(device)
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    shifted = doubled.then(lambda future: future.value() + 1)
    y = shifted.wait()
    assert work.wait() and work.is_completed() and work.is_success()
    several = [numbers("float32", rank + i, 4).to(device) for i in range(5)]
    works = [dist.all_reduce(t, async_op=True) for t in several]
    ends = torch.futures.collect_all([work.get_future() for work in works]).wait()
    assert all(torch.equal(end.value()[0], t) for end, t in zip(ends, several, strict=True))
    return [x, y, *several]


def groups(device, rank):
    """Subgroups by ranks, by number, and of a mesh of devices."""
    found = []
    pair = dist.new_group([0, 2])
    x = numbers("float32", rank, 3).to(device)
    if rank != 1:
        dist.all_reduce(x, group=pair)
        dist.broadcast(x, group=pair, group_src=1)
    found.append(x)
    mine, all_of_them = dist.new_subgroups(group_size=1)
    assert len(all_of_them) == SIZE
    y = numbers("float32", rank, 2).to(device)
    dist.all_reduce(y, group=mine)
    found.append(y)
    mesh = init_device_mesh(device, (1, SIZE), mesh_dim_names=("outer", "inner"))
    z = numbers("float32", rank, 2).to(device)
    dist.all_reduce(z, group=mesh["inner"].get_group())
    dist.all_reduce(z, group=mesh["outer"].get_group())
    found.append(z)
    if rank != 1:
        dist.destroy_process_group(pair)
    return found


def barriers(device, rank):
    start = time.monotonic()
    if rank == 1:
        time.sleep(0.3)
    dist.barrier()
    assert time.monotonic() - start > 0.25
    dist.barrier(async_op=True).wait()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    x = torch.ones(3, device=device)
    dist.all_reduce(x)
    dist.monitored_barrier(wait_all_ranks=True)
    dist.barrier(device_ids=None)
    return [x]


def differentiable(device, rank):
    """The collectives of torch.distributed.nn, and what they give as gradients."""
    from torch.distributed import nn

    x = numbers("float32", rank, 2, 3).to(device).requires_grad_()
    found = [nn.all_reduce(x), *nn.all_gather(x), nn.broadcast(x * 1, 1)]
    sum((1 + i) * t.square().sum() for i, t in enumerate(found)).backward()
    return [*(t.detach() for t in found), x.grad]


def functional_gradients(device, rank):
    """Gradients of functional collectives, whose formulas are torch's own."""
    group, found = dist.group.WORLD, []
    calls = (
        lambda x: functional.all_reduce(x, "sum", group),
        lambda x: functional.all_gather_tensor(x, 0, group),
        lambda x: functional.reduce_scatter_tensor(x, "sum", 0, group),
        lambda x: functional.all_to_all_single(x, None, None, group),
        lambda x: functional.all_reduce_coalesced([x], "sum", group)[0],
        lambda x: functional.all_gather_tensor_autograd(x, 0, group),
        lambda x: functional.reduce_scatter_tensor_autograd(x, "sum", 0, group),
    )
    for call in calls:
        x = numbers("float32", rank, 2 * SIZE, 3).to(device).requires_grad_()
        y = call(x) + 0
        weights = torch.arange(y.numel(), device=device).view(y.shape) + 1.0 + rank
        if y.requires_grad:
            (y * weights).sum().backward()
        found += [y.detach(), y.requires_grad, x.grad]
    return found


def complex_pieces(device, rank):
    parts = [numbers("float32", rank + i, 2 * SIZE, 3) for i in range(2)]
    whole = torch.complex(*parts)
    whole = whole.to(device)
    out = torch.empty(2, 3, dtype=whole.dtype, device=device)
    dist.reduce_scatter_tensor(out, whole)
    found = [out.clone()]
    dist.reduce_scatter(out, list(whole.conj().chunk(SIZE)))
    if device == "ocl":  # gloo itself has none of complex numbers
        parts = [part.to(device) for part in parts]
        whole, *parts = (
            functional.all_to_all_single(x, None, None, dist.group.WORLD) + 0
            for x in (whole, *parts)
        )
        assert torch.equal(whole, torch.complex(*parts))
    return [*found, out]


def named_devices_and_timeouts(device, rank):
    """A barrier on the local rank's device, of which there may be fewer; a timeout set later."""
    dist.barrier(device_ids=[rank] if device == "ocl" else None)
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=70), dist.group.WORLD)
    return []


CASES = (objects, lists, sparse, futures, groups, barriers, differentiable, functional_gradients)
CASES += (uneven_gathers, complex_pieces, named_devices_and_timeouts)


def compare(rank):
    def of(case):
        def run(rank):
            expected, found = case("cpu", rank), case("ocl", rank)
            assert len(found) == len(expected)
            for x, y in zip(found, expected, strict=True):
                if isinstance(x, torch.Tensor):
                    assert x.device.type == "ocl"
                    torch.testing.assert_close(x.cpu(), y)
                else:
                    assert x == y

        run.__name__ = case.__name__
        return run

    processes.each(tuple(of(case) for case in CASES), rank)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_as_on_the_cpu(way):
    processes.run(compare, size=SIZE, backend="gloo", environment=WAYS[way])


def a_rank_is_missing(rank):
    """monitored_barrier names it."""
    dist.barrier()  # all begin at a time
    if rank == 2:
        time.sleep(3)
        return
    match = "[Rr]ank 2" if rank == 0 else "monitoredBarrier|Rank 0"
    with pytest.raises(RuntimeError, match=match):
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1))


def test_a_monitored_barrier_names_who_is_missing():
    processes.run(a_rank_is_missing, size=SIZE, backend="gloo")


def split(rank, folder):
    dist.init_process_group(
        store=dist.FileStore(f"{folder}/store", SIZE),
        rank=rank,
        world_size=SIZE,
        device_id=torch.device("ocl", 0),
    )
    group = dist.split_group(split_ranks=[[0, 2], [1]])
    x = torch.full((5,), float(rank + 1), device="ocl")
    dist.all_reduce(x, group=group)
    size = dist.get_world_size(group)
    dist.destroy_process_group()
    return size, x.tolist()


def test_split_group(tmp_path):
    found = processes.run(split, str(tmp_path), size=SIZE, backend="")
    assert found == [(2, [4.0] * 5), (1, [2.0] * 5), (2, [4.0] * 5)]


def a_late_rank(rank, device):
    """It finds the others there, which didn't find it: all must send large tensors alike."""
    if rank == 1:
        time.sleep(4.5)
    group = dist.new_group()
    x = torch.full((3 << 20,), rank + 1.0, device=device)  # 12 MiB
    dist.all_reduce(x, group=group)
    return x.cpu().eq(3).all().item()


@pytest.mark.parametrize("device", ["ocl", "cpu"])
def test_a_late_rank(device):
    environment = {"TORCH_GLOO_LAZY_INIT": "1", "TORCH_OCL_WITHOUT": "unified_memory"}
    assert processes.run(a_late_rank, device, environment=environment) == [True, True]


def chunks_of_two_sizes(rank):
    os.environ["TORCH_OCL_DISTRIBUTED_CHUNK"] = str(10_000 * (1 + rank))
    group = dist.new_group()
    x = torch.full((100_000,), rank + 1.0, device="ocl")
    dist.all_reduce(x, group=group)
    return x.cpu().eq(3).all().item()


def test_chunks_of_two_sizes():
    environment = {"TORCH_OCL_WITHOUT": "unified_memory"}
    assert processes.run(chunks_of_two_sizes, environment=environment) == [True, True]
