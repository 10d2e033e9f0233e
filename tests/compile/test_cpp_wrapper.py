"""torch.compile with inductor's C++ wrapper: what Python's wrapper computes."""

import copy
import os
import re
import threading

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

from tests.compile.test_networks import NETWORKS, batch
from tests.fresh import run_script


@pytest.fixture(autouse=True)
def in_cpp():
    torch._dynamo.reset()
    counters.clear()
    with torch._inductor.config.patch(cpp_wrapper=True):
        yield
    torch._dynamo.reset()


def on_device(value):
    return value.to("ocl") if isinstance(value, torch.Tensor) else value


def check(function, *calls, dynamic=None):
    """Results and inputs, after each call, are those of the CPU's eager ops."""
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    for arguments in calls:
        theirs = [copy.deepcopy(value) for value in arguments]
        ours = [on_device(value) for value in arguments]
        wanted, found = function(*theirs), compiled(*ours)
        torch.testing.assert_close(found, wanted, check_device=False, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours, theirs, check_device=False)


@pytest.mark.parametrize("name", NETWORKS)
def test_training(name):
    torch.manual_seed(0)
    network = NETWORKS[name]()
    x, y = batch(name)

    def losses(compiled):
        moved = copy.deepcopy(network).to("ocl")
        optimizer = torch.optim.AdamW(moved.parameters(), 1e-2)
        run = torch.compile(moved, fullgraph=True) if compiled else moved
        results = []
        for _ in range(3):
            loss = functional.cross_entropy(run(x).reshape(-1, 61), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            results.append(loss.item())
        return torch.tensor(results)

    torch.testing.assert_close(losses(True), losses(False), rtol=1e-4, atol=1e-4)


def test_what_is_generated():
    """The program is there once, with its headers' names. Every call's error code is looked at."""

    def function(x, y):
        i = torch.zeros_like(x, dtype=torch.int64)
        return (x * 2 + y).softmax(-1), x.scatter_add(0, i, y), x.index_put((i[0],), y, True)

    x, y = torch.randn(9, 9), torch.randn(9, 9)
    compiled = torch.compile(function, dynamic=True)
    found, (code,) = run_and_get_code(compiled, x.to("ocl"), y.to("ocl"))
    torch.testing.assert_close(found, function(x, y), check_device=False)
    assert code.count("static const AOTIOclProgram") == 1
    assert '#include "inductor/base.clh"' in code
    assert "torch_ocl::number(" in code
    calls = re.findall(r"^.*aoti_torch_ocl_\w+\(.*$", code, re.M)
    assert len(calls) > 3
    assert all("AOTI_TORCH_ERROR_CODE_CHECK(" in call for call in calls), calls


def test_sizes_that_change():
    check(
        lambda x, y: (x + y[:, :1], (x * 3).softmax(-1), x.sum(0), x.shape[0] * 2),
        *((torch.randn(n, n + 3), torch.randn(n, n + 3)) for n in (5, 17, 64)),
        dynamic=True,
    )
    assert counters["stats"]["unique_graphs"] == 1


def test_numbers():
    """Numbers of Python, and tensors of one element on the CPU in several dtypes."""
    x = torch.randn(7)
    check(lambda x, f: x * f, (x, 1.5), (x, 2.5), (x, -3.5), dynamic=True)
    compiled = torch.compile(lambda x, s: x * s + s)
    for number in (
        torch.tensor(2.5),
        torch.tensor(2.5, dtype=torch.float64),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.tensor(3),
        torch.tensor(True),
    ):
        torch.testing.assert_close(compiled(x.to("ocl"), number).cpu(), x * number + number)


def test_views_and_writes():
    def function(x, y):
        x[2:5].mul_(y[:3])
        y.t().add_(1)
        return x[1:].exp(), y

    check(function, (torch.randn(8, 8), torch.randn(8, 8)))


def of(*shapes):
    def operands():
        generator = torch.Generator().manual_seed(1)
        return [torch.randn(shape, generator=generator) for shape in shapes]

    return operands


conv2d = functional.conv2d
#: Operands, and how many products and convolutions take what follows, or are calls of eager ops.
FUSED = {
    "mm": (lambda a, b: torch.relu(a @ b * 2), of((70, 40), (40, 96)), (1, 0)),
    "addmm": (
        lambda c, a, b: torch.tanh(torch.addmm(c, a, b, alpha=0.5, beta=-2)),
        of((96,), (70, 40), (40, 96)),
        (1, 0),
    ),
    "bmm": (lambda a, b: (a @ b).sigmoid(), of((3, 20, 30), (3, 30, 40)), (1, 0)),
    "residual": (
        lambda x, w, r: functional.gelu(x @ w.t()) + r,
        of((50, 8), (60, 8), (50, 60)),
        (1, 0),
    ),
    "cast": (
        lambda a, b: a @ b.to(a.dtype),
        lambda: [torch.randn(5, 60), torch.arange(60 * 30).view(60, 30).char()],
        (1, 0),
    ),
    "cast, scale": (
        lambda a, b, s: functional.linear(a, b.to(a.dtype) * s).relu(),
        lambda: [torch.randn(5, 60), torch.arange(60 * 30).view(30, 60).char(), torch.rand(30, 1)],
        (1, 0),
    ),
    "mm alone": (lambda a, b: a @ b, of((7, 8), (8, 9)), (0, 1)),
    "addmm alone": (
        lambda c, a, b: torch.addmm(c, a, b, alpha=0.5, beta=-2),
        of((9,), (7, 8), (8, 9)),
        (0, 1),
    ),
    "baddbmm alone": (torch.baddbmm, of((2, 7, 9), (2, 7, 8), (2, 8, 9)), (0, 1)),
    "convolution": (
        lambda x, w, b: conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2)).relu(),
        of((2, 6, 19, 17), (8, 6, 3, 3), (8,)),
        (1, 0),
    ),
    "groups": (
        lambda x, w: functional.hardswish(conv2d(x, w, padding=1, groups=8)),
        of((2, 8, 9, 9), (8, 1, 3, 3)),
        (1, 0),
    ),
    "axis": (lambda x, w: functional.conv1d(x, w).relu(), of((2, 6, 19), (8, 6, 3)), (1, 0)),
    "convolution alone": (
        lambda x, w, b: conv2d(x, w, b[::2], padding=1),
        of((2, 6, 9, 9), (8, 6, 3, 3), (16,)),
        (0, 1),
    ),
    "no bias": (lambda x, w: functional.conv3d(x, w), of((1, 2, 5, 5, 5), (3, 2, 3, 3, 3)), (0, 1)),
    "infinite": (
        lambda c, a, b: torch.addmm(c, a, b, beta=torch.inf),
        of((9,), (7, 8), (8, 9)),
        (0, 1),
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_what_follows_products_and_convolutions(name):
    function, operands, counts = FUSED[name]
    check(function, operands())
    _, codes = run_and_get_code(
        torch.compile(function, fullgraph=True), *map(on_device, operands())
    )
    code = "".join(codes)
    calls = re.findall(r"aoti_torch_ocl_(\w*mm_out|convolution)\(", code)
    assert (code.count("static torch_ocl::Fused "), len(calls)) == counts, code


def test_a_text_that_the_driver_refuses(monkeypatch):
    from torch_ocl.inductor.templates import epilogue

    upstream = epilogue.write

    def write(*arguments):
        text = upstream(*arguments)
        text.source += "no C\n"
        return text

    monkeypatch.setattr(epilogue, "write", write)
    a = torch.randn(30, 40, device="ocl")
    with pytest.raises(RuntimeError, match="which computes(.|\n)*aten.mm(.|\n)*no C"):
        torch.compile(lambda a: torch.relu(a @ a.t()))(a)


def test_ops_with_kernels_of_their_own():
    """By functions of C, and by the dispatcher."""

    def function(x, i, s):
        values, order = torch.sort(x, dim=1)
        summed = x.index_put((i,), s, accumulate=True)
        triangle = torch.linalg.cholesky(x @ x.t() + 20 * torch.eye(6, device=x.device))
        top = torch._foreach_mul([values, summed], 2.0)
        return values, order, x.scatter_add(0, i[:, None], s), triangle, *top

    check(function, (torch.randn(6, 9), torch.tensor([0, 3, 3]), torch.randn(3, 9)))


def test_branches_and_loops():
    def function(x):
        turned = torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,))
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        loop = torch._higher_order_ops.while_loop
        _, doubled = loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (start, turned))
        return doubled

    check(function, (torch.ones(5),), (-torch.ones(5),))


def test_sizes_from_data_and_none():
    check(lambda x: (x[x > 0] * 2, x.nonzero()), (torch.randn(30),), (-torch.ones(30),))
    check(lambda x: (x + 1, x.sum(0)), (torch.randn(0, 5),))


def test_many_programs():
    """More kernels than a program has are built side by side."""
    functions = [lambda x, k=k: torch.sort(x * k + k)[0].sin() for k in range(1, 10)]
    check(lambda x: [f(x) for f in functions], (torch.randn(3, 20),))


def test_an_index_out_of_range():
    compiled = torch.compile(lambda x, i: x[i] * 2)
    compiled(torch.randn(5, device="ocl"), torch.tensor([1, 7], device="ocl"))
    with pytest.raises(IndexError, match="index 7 is out of range"):
        torch.ocl.synchronize()


def test_an_op_that_fails_says_why():
    compiled = torch.compile(lambda x, i, s: torch.sort(x.index_copy(0, i, s))[0])
    x, s = torch.ones(4, 3, device="ocl"), torch.ones(2, 3, device="ocl")
    compiled(x, torch.tensor([0, 1], device="ocl"), s)
    product = torch.compile(lambda x, y: torch.sort(x * 2)[0] @ y)
    y = torch.ones(3, 5, device="ocl", dtype=torch.float64)
    for _ in range(2):
        with pytest.raises(RuntimeError) as raised:
            product(x, y)
    assert "same dtype" in str(raised.value)
    assert "aoti_torch_ocl_mm_out" in str(raised.value)


@torch._inductor.config.patch(force_disable_caches=True)
def test_a_kernel_that_the_driver_refuses(monkeypatch):
    from torch_ocl.inductor.call import runtime

    upstream = runtime.source_of
    broken = lambda *args, **kwargs: upstream(*args, **kwargs) + "\nno OpenCL C"  # noqa: E731
    monkeypatch.setattr(runtime, "source_of", broken)
    with pytest.raises(RuntimeError) as raised:
        torch.compile(lambda x: x.sin() * 2)(torch.ones(5, device="ocl"))
    assert "the driver refuses the generated kernel" in str(raised.value)
    assert "aten.sin" in str(raised.value)
    assert "test_cpp_wrapper.py" in str(raised.value)


def test_streams_and_threads():
    compiled = torch.compile(lambda x: (x * 2 + 1).softmax(-1))
    x = torch.randn(40, 50)
    moved, wanted = x.to("ocl"), (x * 2 + 1).softmax(-1)
    compiled(moved)
    found = []

    def run():
        with torch.ocl.stream(torch.ocl.Stream()):
            found.extend(compiled(moved).cpu() for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 60
    for result in found:
        torch.testing.assert_close(result, wanted)


def test_captures():
    """mode="reduce-overhead" takes the call of the C++ wrapper."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)).to("ocl")
    compiled = torch.compile(network, mode="reduce-overhead")
    for _ in range(4):
        x = torch.randn(4, 16, device="ocl")
        result = compiled(x)
        torch.testing.assert_close(result, network(x))
        result.sum().backward()
    assert counters["inductor"]["ocl_graph_captures"] >= 2
    assert counters["inductor"]["cudagraph_skips"] == 0


def test_another_device():
    code = """
import torch
torch._inductor.config.cpp_wrapper = True
compiled = torch.compile(lambda x: torch.sort(x * 2 + 1)[0].softmax(-1))
for index in (1, 0, 1):
    x = torch.randn(5, 9, device=f"ocl:{index}")
    result = compiled(x)
    assert result.device == x.device
    torch.testing.assert_close(result, torch.sort(x * 2 + 1)[0].softmax(-1))
assert torch.ocl.current_device() == 0
print("done")
"""
    done = run_script(code, environment={**os.environ, "TORCH_OCL_PARTITION": "2"})
    assert "done" in done.stdout, done.stderr[-3000:]


def test_a_torch_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.delattr(CppWrapperCpu, "_codegen_entry_impl_prologue")
    with pytest.raises(Exception, match=r"cpp_wrapper and AOTInductor need PyTorch 2\.13"):
        torch.compile(torch.sin)(torch.ones(3, device="ocl"))
