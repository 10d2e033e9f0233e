"""mode="reduce-overhead": what is replayed is what runs without it."""

import copy
import gc
import os
import threading

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from tests.fresh import run_script


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def reduced(function, **options):
    return torch.compile(function, mode="reduce-overhead", **options)


def captures():
    return counters["inductor"]["ocl_graph_captures"]


def skips():
    return counters["inductor"]["cudagraph_skips"]


def network():
    torch.manual_seed(0)
    layers = [nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5)]
    return nn.Sequential(*layers).to("ocl")


def inputs(count, *shape):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).to("ocl") for _ in range(count)]


def close(actual, expected):
    torch.testing.assert_close(actual.cpu(), expected.cpu(), rtol=2e-5, atol=2e-6)


@torch.no_grad()
def test_results_in_use_are_never_overwritten():
    net = network()
    compiled = reduced(net)
    batches = inputs(7, 4, 16)
    for x in batches:
        result = compiled(x)
        close(result, net(x))
    assert captures() == 2, "one whose result is in use, and the next"
    kept = [compiled(x) for x in batches]
    parts = [compiled(x)[1:] for x in batches]
    for x, whole, part in zip(batches, kept, parts, strict=True):
        close(whole, net(x))
        close(part, net(x)[1:])
    assert captures() == 2 and skips() == 0


@torch.no_grad()
def test_a_result_outlives_the_compiled_function():
    compiled = reduced(lambda x: x * 2 + 1)
    for _ in range(3):
        result = compiled(torch.arange(1000.0, device="ocl"))
    del compiled
    torch._dynamo.reset()
    gc.collect()
    torch.ocl.empty_cache()
    others = [torch.full((1000,), -1.0, device="ocl") for _ in range(50)]
    assert result.cpu().equal(torch.arange(1000.0) * 2 + 1)
    del others


def losses_of(net, forward, steps, accumulate=1, keep=False):
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    losses, held = [], []
    for step, (x, y) in enumerate(zip(inputs(steps, 4, 16), inputs(steps, 4, 5), strict=True)):
        loss = nn.functional.mse_loss(forward(x), y)
        loss.backward()
        losses.append(loss.item())
        if keep:
            held.append(loss)
        if step % accumulate == accumulate - 1:
            optimizer.step()
            optimizer.zero_grad()
    return losses


@pytest.mark.parametrize(
    "options", [{}, {"accumulate": 3}, {"keep": True}], ids=["each step", "accumulated", "kept"]
)
def test_training(options):
    net = network()
    twin = copy.deepcopy(net)
    expected = losses_of(twin, twin, 9, **options)
    actual = losses_of(net, reduced(net), 9, **options)
    torch.testing.assert_close(torch.tensor(actual), torch.tensor(expected), rtol=1e-4, atol=1e-6)
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.cpu(), q.cpu(), rtol=1e-3, atol=1e-5)
    assert captures() >= 3 and skips() == 0


def test_two_forward_passes_before_the_backward_ones():
    net = network()
    twin = copy.deepcopy(net)
    compiled = reduced(net)
    batches = inputs(12, 4, 16)
    for forward in (compiled, twin):
        for k in range(0, 12, 3):
            results = [forward(x) for x in batches[k : k + 3]]
            for result in results:
                result.square().sum().backward()
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad.cpu(), rtol=1e-4, atol=1e-5)
    assert captures() >= 2


def test_statistics_of_batch_norm():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to("ocl")
    twin = copy.deepcopy(net)
    compiled = reduced(net)
    for x in inputs(5, 2, 3, 9, 9):
        close(compiled(x), twin(x))
    for a, b in zip(net.buffers(), twin.buffers(), strict=True):
        close(a, b)
    assert captures() > 0


@torch.no_grad()
def test_inputs_that_are_written():
    def step(x, y):
        x.mul_(2)
        return x + y, y

    compiled = reduced(step)
    for x, y in zip(inputs(5, 6), inputs(5, 6), strict=True):
        mine = x.clone()
        sums, same = compiled(mine, y)
        close(mine, 2 * x)
        close(sums, 2 * x + y)
        assert same is y or same.data_ptr() == y.data_ptr()
    assert captures() > 0


@torch.no_grad()
def test_large_inputs_that_are_written():
    compiled = reduced(lambda x: x.add_(1).sum())
    for k in range(4):
        x = torch.full((1 << 19,), float(k), device="ocl")
        assert compiled(x).item() == (k + 1) * (1 << 19)
        assert x[0].item() == k + 1
    assert captures() == 0 and skips() == 1


@torch.no_grad()
def test_tensors_of_static_addresses_are_written_in_place():
    """As caches of keys and values are."""
    cache = torch.zeros(1 << 20, device="ocl")
    torch._dynamo.mark_static_address(cache)
    compiled = reduced(lambda cache, i, x: cache.index_copy_(0, i, x).sum())
    for k in range(5):
        i = torch.tensor([k], device="ocl")
        assert compiled(cache, i, torch.ones(1, device="ocl")).item() == k + 1
    assert captures() > 0 and skips() == 0


@torch.no_grad()
def test_views_of_inputs():
    compiled = reduced(lambda x: (x[1:].t(), x.sum(0)))
    for whole in inputs(5, 6, 4):
        x = whole[2:]
        view, sums = compiled(x)
        assert view.data_ptr() == x[1:].data_ptr()
        close(view, x[1:].t())
        close(sums, x.sum(0))


@torch.no_grad()
def test_random_numbers_go_on():
    def drop(x):
        return nn.functional.dropout(x, 0.5)

    x = torch.ones(1000, device="ocl")
    found = []
    for compiled in (reduced(drop), torch.compile(drop)):
        torch._dynamo.reset()
        torch.manual_seed(3)
        found.append([compiled(x).cpu() for _ in range(6)])
    for a, b in zip(*found, strict=True):
        assert a.equal(b)
    assert not found[0][3].equal(found[0][4])


@torch.no_grad()
def test_sizes():
    net = network()
    compiled = reduced(net, dynamic=True)
    for rows in (3, 5, 3, 5, 7, 5, 3, *range(8, 30), 3):
        (x,) = inputs(1, rows, 16)
        close(compiled(x), net(x))
    assert captures() >= 2


def test_gradients_with_sizes():
    net = network()
    twin = copy.deepcopy(net)
    compiled = reduced(net, dynamic=True)
    for rows in (3, 5, 3, 5, 3, 1, 5):
        (x,) = inputs(1, rows, 16)
        for forward in (compiled, twin):
            forward(x * rows).square().sum().backward()
    for p, q in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad.cpu(), rtol=1e-4, atol=1e-4)
    assert captures() > 0


@torch.no_grad()
def test_threads():
    net = network()
    compiled = reduced(net)
    compiled(*inputs(1, 4, 16))
    failures = []

    def work():
        try:
            with torch.no_grad(), torch.ocl.stream(torch.ocl.Stream()):
                for x in inputs(6, 4, 16):
                    close(compiled(x), net(x))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_of_another_device():
    code = """
import torch
from torch._dynamo.utils import counters
net = torch.nn.Sequential(torch.nn.Linear(9, 9), torch.nn.Tanh()).to("ocl:1")
compiled = torch.compile(net, mode="reduce-overhead")
for _ in range(5):
    x = torch.randn(3, 9, device="ocl:1")
    result = compiled(x)
    assert result.device == x.device
    torch.testing.assert_close(result, net(x))
    result.sum().backward()
assert torch.ocl.current_device() == 0
print("captures", counters["inductor"]["ocl_graph_captures"])
"""
    done = run_script(code, environment={**os.environ, "TORCH_OCL_PARTITION": "2"})
    assert "captures" in done.stdout and "captures 0" not in done.stdout, done.stderr[-3000:]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0].sum() * 2,
        lambda x: x + torch.tensor(2.0),
        lambda x: (x.cpu() + 1).to("ocl") * 2,
        lambda x: torch.randperm(x.numel(), device=x.device).sum() + x * 0,
    ],
    ids=["sizes from data", "a number of the CPU", "two devices", "randperm"],
)
@torch.no_grad()
def test_what_is_not_captured_runs(function):
    compiled = reduced(function)
    for x in inputs(4, 20):
        close(compiled(x), function(x))


@torch.no_grad()
def test_a_number_on_the_cpu_is_read_each_time():
    compiled = reduced(lambda x, factor: x * factor)
    for k, x in enumerate(inputs(5, 8)):
        close(compiled(x, torch.tensor(float(k))), x * k)


@torch.no_grad()
def test_within_a_capture_of_the_users():
    compiled = reduced(lambda x: x * 3)
    x = torch.ones(5, device="ocl")
    for _ in range(2):
        compiled(x)
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        result = compiled(x)
    x.fill_(2)
    graph.replay()
    assert result.tolist() == [6] * 5


@torch.no_grad()
def test_max_autotune_uses_the_tuner(monkeypatch, tmp_path):
    tunable = torch.ocl.tunable
    monkeypatch.setenv("TORCH_OCL_CACHE_DIR", str(tmp_path))
    before = tunable.is_enabled(), tunable.get_filename()
    tunable.set_filename(str(tmp_path / "tuned.csv"))
    try:
        net = network()
        compiled = torch.compile(net, mode="max-autotune")
        known = len(tunable.get_results())
        for x in inputs(4, 37, 16):
            close(compiled(x), net(x))
        assert tunable.is_enabled() and len(tunable.get_results()) > known
        assert captures() > 0
    finally:
        tunable.enable(before[0])
        tunable.set_filename(before[1])
