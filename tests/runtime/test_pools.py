"""Pools of memory, allocation by hand, statistics of pinned memory."""

import gc
import threading

import pytest
import torch

MIB = 2**20


@pytest.fixture(autouse=True)
def clean_cache():
    gc.collect()
    torch.ocl.synchronize()
    torch.ocl.empty_cache()
    yield
    torch.ocl.set_per_process_memory_fraction(1.0)
    torch.ocl.caching_allocator_enable()


def empty(n_bytes):
    return torch.empty(n_bytes, dtype=torch.uint8, device="ocl")


def segment_of(tensor):
    return next(
        segment
        for segment in torch.ocl.memory_snapshot()
        if 0 <= tensor.data_ptr() - segment["address"] < segment["total_size"]
    )


def test_a_pools_memory_lies_apart():
    pool = torch.ocl.MemPool()
    outside = empty(100)
    with torch.ocl.use_mem_pool(pool):
        inside = empty(100)
        assert pool.use_count() == 2
    assert pool.use_count() == 1
    after = empty(100)
    assert segment_of(inside)["segment_pool_id"] == pool.id
    assert segment_of(outside)["segment_pool_id"] == (0, 0) == segment_of(after)["segment_pool_id"]
    assert [s["address"] for s in pool.snapshot()] == [segment_of(inside)["address"]]
    inside.fill_(3)
    assert (inside.sum() + outside.zero_().sum()).item() == 300


def test_a_pools_memory_stays_its_own_until_it_is_gone():
    pool = torch.ocl.MemPool()
    with torch.ocl.use_mem_pool(pool):
        tensor = empty(40 * MIB)
    address = tensor.data_ptr()
    del tensor
    torch.ocl.empty_cache()
    assert empty(40 * MIB).data_ptr() != address
    with torch.ocl.use_mem_pool(pool):
        assert empty(40 * MIB).data_ptr() == address
    reserved = torch.ocl.memory_reserved()
    del pool
    assert torch.ocl.memory_reserved() == reserved - 40 * MIB


def test_tensors_outlive_their_pool():
    pool = torch.ocl.MemPool()
    with torch.ocl.use_mem_pool(pool):
        tensor = torch.arange(1000, device="ocl")
    del pool
    torch.ocl.empty_cache()
    assert tensor.sum().item() == 499500
    reserved = torch.ocl.memory_reserved()
    del tensor
    torch.ocl.empty_cache()
    assert torch.ocl.memory_reserved() < reserved


def test_pools_are_of_a_thread_and_nest():
    first, second = torch.ocl.MemPool(), torch.ocl.MemPool()
    elsewhere = []
    with torch.ocl.use_mem_pool(first):
        with torch.ocl.use_mem_pool(second):
            inner = empty(100)
        outer = empty(100)
        thread = threading.Thread(target=lambda: elsewhere.append(empty(100)))
        thread.start()
        thread.join()
    assert segment_of(inner)["segment_pool_id"] == second.id
    assert segment_of(outer)["segment_pool_id"] == first.id
    assert segment_of(elsewhere[0])["segment_pool_id"] == (0, 0)


def test_a_pools_memory_is_not_shared_between_streams():
    pool, stream = torch.ocl.MemPool(), torch.ocl.Stream()
    with torch.ocl.use_mem_pool(pool):
        tensor = empty(3 * MIB)
        address = tensor.data_ptr()
        del tensor
        with torch.ocl.stream(stream):
            other = empty(3 * MIB)
        assert other.data_ptr() != address
        assert segment_of(other)["stream"] == stream.stream_id
        other.record_stream(stream)  # its own: freed at once
        address = other.data_ptr()
        del other
        with torch.ocl.stream(stream):
            assert empty(3 * MIB).data_ptr() == address


def test_a_pool_without_splitting():
    pool = torch.ocl.MemPool(no_split=True)
    with torch.ocl.use_mem_pool(pool):
        tensors = [empty(1000) for _ in range(3)]
    assert len({segment_of(t)["address"] for t in tensors}) == 3
    assert all(len(segment_of(t)["blocks"]) == 1 for t in tensors)


def test_a_pool_that_helps_out():
    total = torch.ocl.mem_get_info()[1]
    for helps in (True, False):
        pool = torch.ocl.MemPool(use_on_oom=helps)
        with torch.ocl.use_mem_pool(pool):
            empty(100 * MIB)
        torch.ocl.set_per_process_memory_fraction((torch.ocl.memory_reserved() + 30 * MIB) / total)
        if helps:
            assert segment_of(empty(90 * MIB))["segment_pool_id"] == pool.id
        else:
            with pytest.raises(torch.OutOfMemoryError):
                empty(90 * MIB)
        torch.ocl.set_per_process_memory_fraction(1.0)
        del pool


def test_a_graph_may_use_a_pool():
    pool = torch.ocl.MemPool()
    x = torch.ones(1000, device="ocl")
    x.mul(2)
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph, pool=pool.id):
        y = x.mul(2)
    assert graph.pool() == pool.id and pool.use_count() == 2
    x.fill_(5)
    graph.replay()
    assert y.sum().item() == 10000
    graph.reset()
    assert pool.use_count() == 1


def test_a_pool_with_an_allocator_is_refused():
    with pytest.raises(NotImplementedError):
        torch.ocl.MemPool(allocator=object())


def test_allocation_by_hand():
    before = torch.ocl.memory_allocated()
    address = torch.ocl.caching_allocator_alloc(5 * MIB)
    assert torch.ocl.memory_allocated() - before == 5 * MIB
    torch.ocl.caching_allocator_delete(address)
    assert torch.ocl.memory_allocated() == before
    stream = torch.ocl.Stream()
    first = torch.ocl.caching_allocator_alloc(100, 0, stream)
    second = torch.ocl.caching_allocator_alloc(100, "ocl:0", stream.stream_id)
    assert abs(first - second) == 512  # one segment
    for each in (first, second, torch.ocl.caching_allocator_alloc(0)):
        torch.ocl.caching_allocator_delete(each)
    with pytest.raises(TypeError):
        torch.ocl.caching_allocator_alloc(100, stream="default")


def test_memory_without_caching():
    torch.ocl.empty_cache()
    segments = torch.ocl.memory_stats()["segment.all.current"]
    with torch.ocl.memory.caching_allocator_disabled():
        tensors = [torch.full((n,), 3.0, device="ocl") for n in (1, 1000, 5 * MIB)]
        assert torch.ocl.memory_stats()["segment.all.current"] == segments + 3
        assert [t.sum().item() / 3 for t in tensors] == [1, 1000, 5 * MIB]
        tensors.clear()
        assert torch.ocl.memory_stats()["segment.all.current"] == segments
    tensor = empty(30 * MIB)  # what is free of others' segments is smaller
    del tensor
    assert torch.ocl.memory_stats()["segment.all.current"] == segments + 1


def test_nested_statistics():
    tensor = empty(3 * MIB)
    flat, nested = torch.ocl.memory_stats(), torch.ocl.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"]
    assert nested["num_ooms"] == flat["num_ooms"]
    del tensor


def test_statistics_of_pinned_memory():
    torch.ocl.empty_host_cache()
    torch.ocl.reset_accumulated_host_memory_stats()
    torch.ocl.reset_peak_host_memory_stats()
    before = torch.ocl.host_memory_stats()
    tensor = torch.empty(100_000, dtype=torch.uint8).pin_memory()
    stats = torch.ocl.host_memory_stats()
    assert stats["active_bytes.current"] - before["active_bytes.current"] == 131072
    assert stats["active_requests.allocated"] == stats["num_host_alloc"] == 1
    assert stats["host_alloc_time.count"] == 1
    assert stats["host_alloc_time.min"] == stats["host_alloc_time.max"] >= 0
    nested = torch.ocl.host_memory_stats_as_nested_dict()
    assert nested["active_bytes"]["peak"] == stats["active_bytes.peak"]
    del tensor
    torch.ocl.empty_host_cache()
    after = torch.ocl.host_memory_stats()
    assert after["active_bytes.current"] == before["active_bytes.current"]
    assert after["num_host_free"] == after["host_free_time.count"] == 1


def test_old_names():
    assert torch.ocl.memory_cached() == torch.ocl.memory_reserved()
    assert torch.ocl.max_memory_cached() == torch.ocl.max_memory_reserved()
    tensor = empty(4 * MIB)
    del tensor
    for reset in (torch.ocl.reset_max_memory_allocated, torch.ocl.reset_max_memory_cached):
        reset()
        assert torch.ocl.max_memory_allocated() == torch.ocl.memory_allocated()
    assert torch.ocl.get_allocator_backend() == "native"
    assert "GPU:0\nprocess" in torch.ocl.list_gpu_processes()
    free, total = torch.ocl.mem_get_info()
    assert 0 <= torch.ocl.device_memory_used() <= total
