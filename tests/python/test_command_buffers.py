"""Replays whose kernels go by command buffers (cl_khr_command_buffer) compute what launches do.

Intel's runtime and PoCL have them, and are made to use them here."""

import gc
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

CHAIN = 20
WRITTEN = f"{CHAIN} kernels by command buffers"


@pytest.fixture(autouse=True)
def switched_on(monkeypatch):
    monkeypatch.setenv("TORCH_OCL_COMMAND_BUFFERS", "1")


def chain(x):
    """Kernels that each need the one before: an order that isn't kept shows."""
    for i in range(CHAIN // 2):
        x = (x * 3).sub_(i)
    return x


def captured(function):
    """The graph of a call, made after another one, and its result."""
    function()
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        result = function()
    return graph, result


def text_of(graph, tmp_path):
    graph.debug_dump(str(tmp_path / "graph.txt"))
    return (tmp_path / "graph.txt").read_text()


def whole(*shape):
    """Small whole numbers: results are the same whatever the order of rounding."""
    return torch.randint(-2, 3, shape).float()


@pytest.mark.parametrize("size", [16, 1 << 16])
def test_replays_use_them_from_the_second_on(size, tmp_path):
    x = torch.zeros(size, device="ocl")
    graph, y = captured(lambda: chain(x))
    for turn in range(4):
        value = whole(size)
        x.copy_(value)
        launched = torch.ocl.launch_count()
        graph.replay()
        assert torch.ocl.launch_count() - launched == CHAIN
        assert_close(y.cpu(), chain(value), rtol=0, atol=0)
        assert (WRITTEN in text_of(graph, tmp_path)) == (turn > 0)


@pytest.mark.parametrize("variable", ["0", "never set"])
def test_switched_off(variable, monkeypatch, tmp_path):
    if variable == "0":
        monkeypatch.setenv("TORCH_OCL_COMMAND_BUFFERS", "0")
    else:
        monkeypatch.delenv("TORCH_OCL_COMMAND_BUFFERS")
    x = torch.ones(16, device="ocl")
    graph, y = captured(lambda: chain(x))
    for _ in range(3):
        graph.replay()
    assert_close(y.cpu(), chain(torch.ones(16)), rtol=0, atol=0)
    # By default, too: they are slower than launches on both drivers that tests run on.
    assert WRITTEN not in text_of(graph, tmp_path)


def test_replays_without_a_wait():
    x = torch.zeros(1 << 16, device="ocl")

    def step():
        for _ in range(CHAIN):
            x.add_(1)

    graph, _ = captured(step)
    x.zero_()
    for _ in range(50):
        graph.replay()
    assert_close(x.cpu(), torch.full((1 << 16,), 50.0 * CHAIN), rtol=0, atol=0)


def test_streams_by_turns_and_in_a_row(tmp_path):
    x = torch.zeros(1000, device="ocl")
    graph, y = captured(lambda: chain(x))
    streams = [torch.ocl.current_stream(), torch.ocl.Stream(), torch.ocl.Stream()]
    for turn in range(18):
        # By turns at first, then several times each.
        stream = streams[turn % 3 if turn < 6 else turn // 3 % 3]
        value = whole(1000)
        torch.ocl.synchronize()
        with torch.ocl.stream(stream):
            x.copy_(value)
            graph.replay()
            assert_close(y.cpu(), chain(value), rtol=0, atol=0)
        if turn < 6:
            assert WRITTEN not in text_of(graph, tmp_path)
    assert WRITTEN in text_of(graph, tmp_path)


def test_random_numbers_go_on(tmp_path):
    x = torch.zeros(1000, device="ocl")
    graph, y = captured(lambda: chain(x).add_(torch.rand_like(x)).add_(chain(x)))
    torch.manual_seed(3)
    expected = [chain(x) + torch.rand_like(x) + chain(x) for _ in range(4)]
    torch.manual_seed(3)
    for one in expected:
        graph.replay()
        assert_close(y, one, rtol=0, atol=0)
    # Kernels that draw are launched; the kernels on both sides of it are two command buffers.
    assert f"{2 * CHAIN + 2} kernels by command buffers" in text_of(graph, tmp_path)


def test_failed_checks_are_raised():
    table = torch.rand(10, 3, device="ocl")
    index = torch.tensor([1, 2, 3], device="ocl")
    graph, rows = captured(lambda: chain(nn.functional.embedding(index, table)))
    for stream in (torch.ocl.current_stream(), torch.ocl.Stream()):
        with torch.ocl.stream(stream):
            for _ in range(3):
                index.fill_(9)
                graph.replay()
                assert_close(rows.cpu(), chain(table.cpu()[[9, 9, 9]]))
                index.fill_(10)
                graph.replay()
                with pytest.raises(IndexError):
                    torch.ocl.synchronize()


def test_profiles_name_every_kernel():
    x = torch.rand(1000, device="ocl")
    graph, y = captured(lambda: chain(x))
    for _ in range(3):
        graph.replay()
    with torch.ocl.profiler(rows=0, roofline=False) as profiled:
        graph.replay()
        graph.replay()
    assert sum(k.calls for k in profiled.kernels if "pointwise" in k.name) == 2 * CHAIN
    graph.replay()
    assert_close(y.cpu(), chain(x.cpu()))


def test_destruction_in_flight():
    for _ in range(10):
        x = torch.zeros(1 << 18, device="ocl")

        def step(x=x):
            for _ in range(CHAIN):
                x.add_(1)

        graph, _ = captured(step)
        x.zero_()
        for _ in range(4):
            graph.replay()
        del graph
        gc.collect()
        assert_close(x.cpu(), torch.full((1 << 18,), 4.0 * CHAIN), rtol=0, atol=0)


def test_compiled_replays():
    layers = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(8)]
    module = nn.Sequential(*layers).eval().to("ocl")
    compiled = torch.compile(module, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(6):
            x = torch.rand(4, 8, device="ocl")
            assert_close(compiled(x), module(x))


FORKED = """
import os, torch
x = torch.ones(16, device="ocl")
def step():
    for _ in range(20):
        x.add_(1)
step()
graph = torch.ocl.OclGraph()
with torch.ocl.graph(graph):
    step()
for _ in range(3):
    graph.replay()
torch.ocl.synchronize()
child = os.fork()
if child == 0:
    try:
        graph.replay()
    except RuntimeError as error:
        del graph
        os._exit(7 if "spawn" in str(error) else 8)
    os._exit(0)
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
graph.replay()
print(x.sum().item())
"""


def test_after_a_fork():
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert done.stdout.split() == ["status", "7", str(16.0 * (1 + 5 * 20))], done.stderr
