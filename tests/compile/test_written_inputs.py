"""Compiled programs that write several parts of an input write them in place."""

import dataclasses

import pytest
import torch
from torch._inductor.fx_passes import reinplace

from torch_ocl.upstream.compile import written_inputs


def a_cache_of_layers(cache, x):
    for layer in cache:
        layer[0, -1:].copy_(x)
        layer[1, -1:] = x * 2
        x = x + (layer[0] * layer[1]).sum(0, keepdim=True)
    return x


def an_old_value(cache, x):
    before = cache[1, 0] + 0
    cache[0, 0, :1] = x
    kept = cache[1] * 1
    cache[1, 0, 1:2] = x + cache[0, 0, :1]
    return before, kept, cache[1, 0] - before


def read_after_all(cache, x):
    first = cache[0]
    first[0, 2:3] = x
    y = first * 2
    first[0, 2:4] = -x
    cache[:, 1].diagonal(dim1=1, dim2=2).fill_(3)
    return y, first + y


def returned(cache, x):
    cache[0, 1] += x
    cache[1, 1] -= x
    return cache, cache[1]


def overlapping(cache, x):
    cache[:, 0] = cache[:, 1] * x
    cache[0] = cache[1] + cache[0]
    cache[:, :, 1:] = cache[:, :, :-1] + 1
    return cache.sum()


def into_itself(cache, x):
    cache[0, 0] = cache[1, 0]
    cache[1, 0] = cache[0, 1]
    cache[0, 1].copy_(cache[0, 0])
    return x + cache[0, 1, :1]


PROGRAMS = (a_cache_of_layers, an_old_value, read_after_all, returned, overlapping, into_itself)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(program, dynamic=dynamic)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for length in (5, 9):
            cache = torch.randint(-4, 5, (2, 2, length, 6)).to(dtype)
            x = torch.randint(-4, 5, (1, 6)).to(dtype)
            other = cache.to("ocl")
            expected = program(cache, x)
            actual = compiled(other, x.to("ocl"))
            rtol = 2e-2 if dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(actual, expected, check_device=False, rtol=rtol, atol=0)
            torch.testing.assert_close(other.cpu(), cache, rtol=0, atol=0)


def memory_of_a_call():
    """Bytes that a compiled call takes beside a cache of 16 MB."""
    torch._dynamo.reset()
    cache = torch.zeros(4, 2, 1024, 512, device="ocl")
    x = torch.ones(1, 512, device="ocl")
    compiled = torch.compile(a_cache_of_layers)
    compiled(cache, x)
    torch.ocl.reset_peak_memory_stats()
    before = torch.ocl.memory_allocated()
    compiled(cache, x)
    return torch.ocl.max_memory_allocated() - before


@torch._inductor.config.patch(force_disable_caches=True)
def test_a_cache_is_not_copied(monkeypatch):
    """Upstream copies it for each of its layers."""
    assert memory_of_a_call() < 1 << 20
    ours = reinplace.inplaceable_ops[reinplace._generalized_scatter]
    upstream = dataclasses.replace(ours, extra_check=reinplace.should_reinplace_scatter)
    monkeypatch.setitem(reinplace.inplaceable_ops, reinplace._generalized_scatter, upstream)
    assert memory_of_a_call() >= 16 << 20


def test_other_graphs_are_upstreams():
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    kinds = {reinplace._generalized_scatter}
    first = graph.call_function(reinplace._generalized_scatter, (x, y, []))
    second = graph.call_function(reinplace._generalized_scatter, (first, y, []))
    assert not written_inputs.writes_an_input(first, kinds)
    graph.call_function(torch.ops.aten.copy_.default, (y, second))
    assert not written_inputs.writes_an_input(first, kinds)
    graph.call_function(torch.ops.aten.copy_.default, (x, second))
    assert written_inputs.writes_an_input(first, kinds)
    assert written_inputs.writes_an_input(second, kinds)
