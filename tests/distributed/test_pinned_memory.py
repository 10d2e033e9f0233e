"""A group's calls have little pinned memory at a time, however many there are."""

import pytest
import torch
import torch.distributed as dist

from tests.distributed import processes

MIB = 1 << 20
#: The memory of a group at a time, as docs/user/distributed.md says: six chunks.
BUDGET = 48 * MIB
COPIED = {"TORCH_OCL_WITHOUT": "unified_memory"}


def peak(call):
    """The most pinned memory that is in use at a time while it runs, in bytes."""
    torch.ocl.synchronize()
    torch.ocl.reset_peak_host_memory_stats()
    call()
    torch.ocl.synchronize()
    return torch.ocl.host_memory_stats()["active_bytes.peak"]


def many_calls(rank):
    """50 calls of 8 MiB that nobody waits for before the last is made, and all are right."""
    tensors = [torch.full((2 * MIB,), rank + 1.0 + i, device="ocl") for i in range(50)]
    works = []

    def call():
        works.extend(dist.all_reduce(x, async_op=True) for x in tensors)
        for work in works:
            work.wait()

    pinned = peak(call)
    assert torch.ocl.host_memory_stats()["allocated_bytes.peak"] <= BUDGET
    assert all(x.eq(3.0 + 2 * i).all() for i, x in enumerate(tensors))
    return pinned


def exchanged(rank):
    """all_to_all_single of 64 MiB, of equal parts and of others."""
    size = dist.get_world_size()
    x = torch.arange(16 * MIB, dtype=torch.int32, device="ocl") + rank
    y = torch.empty_like(x)
    pinned = peak(lambda: dist.all_to_all_single(y, x))
    mine = slice(rank * len(x) // size, (rank + 1) * len(x) // size)
    expected = torch.arange(16 * MIB, dtype=torch.int32)[mine]
    found = y.cpu().view(size, -1)
    assert all(torch.equal(row, expected + i) for i, row in enumerate(found))
    # Nearly all goes from rank 0 to rank 1.
    sent = [[MIB, 12 * MIB], [3, MIB]]
    sizes = [row[rank] for row in sent], sent[rank]
    y = torch.empty(sum(sizes[0]), dtype=x.dtype, device="ocl")
    whole = x[: sum(sizes[1])]
    pinned = max(pinned, peak(lambda: dist.all_to_all_single(y, whole, *sizes)))
    ends = [sum(row[: rank + 1]) for row in sent]
    for i, (found, end) in enumerate(zip(y.cpu().split(sizes[0]), ends, strict=True)):
        assert torch.equal(found, torch.arange(end - sizes[0][i], end, dtype=x.dtype) + i)
    return pinned


def mixed(rank):
    """Calls of all kinds together; one is larger than what there is at a time."""
    large = torch.full((16 * MIB,), float(rank), device="ocl")
    some = [torch.full((3 * MIB,), float(rank), device="ocl") for _ in range(6)]
    parts = [torch.empty(4 * MIB, device="ocl") for _ in range(2)]
    gathered = torch.empty(2 * 4 * MIB, device="ocl")
    works = []

    def call():
        works.append(dist.all_reduce(large, async_op=True))
        with dist._coalescing_manager(async_ops=True) as together:
            for x in some:
                dist.all_reduce(x)
        works.append(together)
        works.append(dist.all_gather(parts, large[: 4 * MIB].clone(), async_op=True))
        works.append(dist.all_gather_into_tensor(gathered, parts[0] * 0 + rank, async_op=True))
        works.append(dist.all_reduce(some[0][:100], async_op=True))
        for work in works:
            work.wait()

    call()
    assert large.eq(1).all() and all(x[100:].eq(1).all() for x in some)
    assert some[0][:100].eq(2).all()
    assert gathered.view(2, -1)[1].eq(1).all() and gathered.view(2, -1)[0].eq(0).all()


def exchanged_with_the_cpu(rank):
    """all_to_all where rank 1 has CPU tensors: in chunks, by its own sizes only."""
    device = "ocl" if rank == 0 else "cpu"
    for sent in ([[7, 7], [7, 7]], [[0, 50_000], [3, 1]], [[20_000, 0], [0, 0]], [[5, 0], [0, 9]]):
        starts = [0, 1000]
        mine = torch.arange(sum(sent[rank]), dtype=torch.float32) + starts[rank]
        sizes = [row[rank] for row in sent]
        y = torch.empty(sum(sizes), device=device)
        dist.all_to_all_single(y, mine.to(device), sizes, sent[rank])
        expected = [
            (torch.arange(sum(row), dtype=torch.float32) + start).split(row)[rank]
            for row, start in zip(sent, starts, strict=True)
        ]
        assert torch.equal(y.cpu(), torch.cat(expected)), sent
    for columns in (3, 4000):
        x = torch.arange(4.0 * columns, device=device).view(columns, 4).t() + rank
        y = torch.empty(4, columns, device=device)
        dist.all_to_all_single(y, x if rank == 0 else x.contiguous())
        rows = torch.arange(4.0 * columns).view(columns, 4).t()[2 * rank : 2 * rank + 2]
        assert torch.equal(y.cpu(), torch.cat([rows, rows + 1])), columns
        parts = [torch.empty(columns, 2, device=device) for _ in range(2)]
        sent = [torch.full_like(part, rank + 10.0 * i) for i, part in enumerate(parts)]
        dist.all_to_all(parts, sent)
        assert all(part.eq(i + 10.0 * rank).all() for i, part in enumerate(parts))


def a_transfer_between(rank):
    """A peer may need a send first, however many collectives this rank has called before."""
    tensors = [torch.ones(2 * MIB, device="ocl") for _ in range(20)]
    x = torch.full((3 * MIB,), float(rank), device="ocl")

    def reduce():
        return [dist.all_reduce(t, async_op=True) for t in tensors]

    if rank == 0:
        works = reduce()
        dist.send(x + 5, 1)
    else:
        dist.recv(x, 0)
        assert x.eq(5).all()
        works = reduce()
    for work in works:
        work.wait()
    assert all(t.eq(2).all() for t in tensors)


def after_a_failure(rank):
    """Calls that fail give their memory back."""
    group = dist.new_group()
    for _ in range(20):
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(3 * MIB, device="ocl"), dist.ReduceOp.BAND, group=group)
    x = torch.ones(3 * MIB, device="ocl")
    dist.all_reduce(x)
    assert x.eq(2).all()


@pytest.mark.parametrize("function", [many_calls, exchanged], ids=lambda f: f.__name__)
def test_a_group_has_little_at_a_time(function):
    for pinned in processes.run(function, environment=COPIED):
        assert 0 < pinned <= BUDGET


@pytest.mark.parametrize("chunk", ["8388608", "65536", "0"])
def test_large_and_small_calls_go_together(chunk):
    processes.run(all_mixed, environment=COPIED | {"TORCH_OCL_DISTRIBUTED_CHUNK": chunk})


@pytest.mark.parametrize("without", ["unified_memory", ""])
def test_all_to_all_with_a_rank_on_the_cpu(without):
    environment = {"TORCH_OCL_DISTRIBUTED_CHUNK": "16384", "TORCH_OCL_WITHOUT": without}
    processes.run(exchanged_with_the_cpu, environment=environment)


def all_mixed(rank):
    processes.each((mixed, a_transfer_between, after_a_failure), rank)
