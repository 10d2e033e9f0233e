"""torch.compile: matrix products that take what follows them into their kernels."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from torch._inductor import scheduler
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

from tests.as_gpu import run_as_gpu, takes_gpu_kernels

TOLERANCE = {torch.float32: 5e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def compiled(function, *operands, dynamic=None):
    """Its results on the device, and how many products and convolutions are fused, are alone, and
    other kernels."""
    torch._dynamo.reset()
    moved = [x.to("ocl") for x in operands]
    results, codes = run_and_get_code(
        torch.compile(function, dynamic=dynamic, fullgraph=True), *moved
    )
    code = "".join(codes)
    made = ("ocl_runtime.fused_", "extern_kernels.", "ocl_program.add(")
    return results, moved, tuple(code.count(text) for text in made)


def check(function, *operands, tol=None, dynamic=None, expected_kernels=(1, 0, 0)):
    """Compiled it gives what CPU torch gives in double, and changes operands as that does."""
    dtype = operands[0].dtype
    tol = tol or TOLERANCE[dtype]
    results, moved, kernels = compiled(function, *operands, dynamic=dynamic)
    wide = [x.double() if x.is_floating_point() else x for x in operands]
    expected = function(*wide)
    results, expected = (r if isinstance(r, tuple) else (r,) for r in (results, expected))
    for actual, wanted in zip((*results, *moved), (*expected, *wide), strict=True):
        if actual.is_floating_point():
            actual, wanted = actual.double(), wanted.double()
        torch.testing.assert_close(actual.cpu(), wanted, rtol=tol, atol=tol)
    if expected_kernels is not None:
        assert kernels == expected_kernels
    return results


# m, k, n: of every kernel of CPUs, with tiles that are not full, and with k split.
SHAPES = [
    (70, 40, 96),
    (16, 24, 32),
    (3, 7, 5),
    (1, 300, 130),
    (130, 64, 1),
    (4, 300, 257),
    (200, 150, 48),
    (257, 64, 31),
    (24, 5000, 40),
    (40, 8192, 48),
]
EPILOGUES = {
    "relu": lambda a, b, c, d: (a @ b).relu(),
    "bias, gelu": lambda a, b, c, d: functional.gelu(torch.addmm(c, a, b)),
    "residual": lambda a, b, c, d: torch.addmm(c, a, b) * 2 + d,
    "scaled addend": lambda a, b, c, d: torch.addmm(d, a, b, beta=0.5, alpha=2).tanh(),
    "row": lambda a, b, c, d: functional.silu(a @ b * c + d[:, :1]),
    "stored too": lambda a, b, c, d: (lambda p: (p, p.sigmoid() * d, p + c))(a @ b),
    "bools": lambda a, b, c, d: torch.where((a @ b) > d, d, c).exp(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", EPILOGUES)
def test_every_epilogue(name, dtype):
    shapes = SHAPES if dtype == torch.float32 else SHAPES[::3]
    for m, k, n in shapes if name in ("residual", "stored too") else SHAPES[:1]:
        a, b = numbers(m, k, dtype=dtype), numbers(k, n, seed=1, dtype=dtype) / k**0.5
        c, d = numbers(n, seed=2, dtype=dtype), numbers(m, n, seed=3, dtype=dtype)
        check(EPILOGUES[name], a, b, c, d)


def test_other_operands():
    """Transposed factors, batches, views, and nothing to sum."""
    a, b, w = numbers(70, 40), numbers(40, 96), numbers(96, 40, seed=1)
    check(lambda a, w: (a @ w.t()).relu(), a, w)
    check(lambda a, b: (b.t() @ a.t()).relu(), a, b)
    check(lambda a, b: (a[:33, 3:20] @ b[3:20, 5:70]).relu() + 1, a, b)
    x, y = numbers(6, 33, 17), numbers(6, 17, 50, seed=1)
    check(lambda x, y: torch.bmm(x, y).tanh() * 2, x, y)
    check(lambda x, y: torch.bmm(y.mT, x.mT).sin(), x, y)
    check(lambda x, y, z: torch.baddbmm(z, x, y, alpha=3).relu(), x, y, numbers(6, 33, 50))
    check(lambda x, y, z: torch.bmm(x, y) + z, x, y, numbers(33, 50))
    check(lambda x, y, z: torch.bmm(x, y) * z, x, y, numbers(6, 1, 1))
    check(lambda x, y: torch.bmm(x[:2], y[:2]) + 1, numbers(2, 33, 0), numbers(2, 0, 50))
    check(lambda x, y, z: torch.addmm(z, x, y).relu(), numbers(9, 0), numbers(0, 5), numbers(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers(dtype):
    x, r = numbers(2, 35, 64, dtype=dtype), numbers(2, 35, 48, seed=1, dtype=dtype)
    w, v = (numbers(48, 64, seed=s, dtype=dtype) / 8 for s in (2, 3))
    c = numbers(48, seed=4, dtype=dtype)
    check(lambda x, w, c, r: functional.silu(functional.linear(x, w, c)) + r, x, w, c, r)
    # Where two products are multiplied, the later one reads the other.
    check(
        lambda x, w, v: functional.silu(functional.linear(x, w)) * functional.linear(x, v),
        *(x, w, v),
        expected_kernels=(1, 1, 0),
    )
    check(lambda x, w: functional.linear(x, w).float().sin(), x, w)


@pytest.fixture
def errors_of_scheduler(monkeypatch):
    """Lines that inductor logs as errors."""
    found = []
    monkeypatch.setattr(scheduler.log, "fatal", lambda text, *rest, **kw: found.append(text))
    return found


@torch._inductor.config.patch(force_disable_caches=True)
def test_what_stays_apart(errors_of_scheduler):
    """Other orders, other numbers of elements, checks, random numbers: one kernel more."""
    a, b = numbers(32, 32), numbers(32, 32, seed=1)
    apart = (0, 1, 1)
    check(lambda a, b: (a @ b).t() + a, a, b, expected_kernels=None)
    check(lambda a, b: (a @ b).sum(-1), a, b, expected_kernels=apart)
    check(lambda a, b: (a @ b)[:, :16] + 1, a, b, expected_kernels=apart)
    check(lambda a, b: (a @ b)[None] + torch.stack([a, b]), a, b, expected_kernels=None)
    index = torch.randint(0, 32, (32,))
    check(lambda a, b, i: (a @ b) + b[i], a, b, index, expected_kernels=apart)
    torch._dynamo.reset()
    scaled = torch.compile(lambda a, b, by: (a @ b) * by, dynamic=True)
    for by in (2.5, 3.5, torch.tensor(1.5), torch.tensor(-1.5)):
        actual = scaled(a.to("ocl"), b.to("ocl"), by)
        torch.testing.assert_close(actual.cpu(), (a @ b) * by, rtol=1e-4, atol=1e-4)
    many = [numbers(32, 32, seed=s) for s in range(20)]
    check(lambda a, b, *rest: (a @ b) + sum(rest), a, b, *many, expected_kernels=None)
    _, _, kernels = compiled(lambda a, b: functional.dropout(a @ b), a, b)
    assert kernels == apart
    assert not errors_of_scheduler


def test_operands_that_are_changed():
    a, b, c = numbers(32, 32), numbers(32, 32, seed=1), numbers(32, 32, seed=2)

    apart = (0, 1, 1)
    check(lambda a, b, c: c.mul_(a @ b), a, b, c, expected_kernels=apart)
    # Other elements of a are still to be read when one is written.
    check(lambda a, b: a.add_(a @ b), a, b, expected_kernels=None)
    check(lambda a, b: a.mul_(a @ b), a, b, expected_kernels=apart)
    check(lambda a, b: a.t().copy_((a @ b).relu()).t(), a, b, expected_kernels=None)
    check(lambda a, b: b.mul_(torch.addmm(b, a, b)), a, b, expected_kernels=apart)


def test_chains_of_products():
    x = numbers(40, 64)
    w = [numbers(64, 64, seed=s) / 8 for s in range(4)]

    def network(x, *w):
        for each in w:
            x = functional.gelu(x @ each) + x
        return x

    check(network, x, *w, expected_kernels=(4, 0, 0))


def test_sizes_that_change():
    torch._dynamo.reset()
    function = torch.compile(
        lambda a, b, c, d: functional.gelu(torch.addmm(c, a, b)) + d * a.shape[0], dynamic=True
    )
    for m, k, n in [*SHAPES, (8, 512, 400), (300, 800, 16)]:
        a, b = numbers(m, k), numbers(k, n, seed=1) / k**0.5
        c, d = numbers(n, seed=2), numbers(m, n, seed=3)
        expected = functional.gelu(torch.addmm(c, a, b)) + d * m
        actual = function(*(x.to("ocl") for x in (a, b, c, d)))
        torch.testing.assert_close(actual.cpu(), expected, rtol=5e-5, atol=5e-5)
    few = numbers(8, 512), numbers(512, 400, seed=1) / 20
    kernels = (1, 0, 0) if takes_gpu_kernels() else (0, 1, 1)
    check(lambda a, b: (a @ b).relu(), *few, expected_kernels=kernels)
    x, y = numbers(5, 20, 30), numbers(5, 30, 16)
    check(lambda x, y: torch.bmm(x, y).relu() + 1, x, y, dynamic=True)


def test_convolutions_of_single_elements():
    """On GPUs they are products with channels last. They take batch norm, residuals and ReLU."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(64, 64, 1), torch.nn.BatchNorm2d(64), torch.nn.ReLU()]
    stride = torch.nn.Conv2d(64, 128, 1, stride=2)
    net = torch.nn.Sequential(*layers, *layers, stride).eval()
    layers[1].running_mean.uniform_(-1, 1)
    layers[1].running_var.uniform_(0.5, 2)
    x = numbers(2, 64, 14, 14)
    with torch.no_grad():
        expected = net(x).relu() + 1, (layers[0](x) + x).relu()
        net.to("ocl")

        def function(x):
            return net(x).relu() + 1, (layers[0](x) + x).relu()

        results, _, (fused, _, _) = compiled(function, x)
    for actual, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(actual.cpu(), wanted, rtol=1e-4, atol=1e-4)
    # The first one is called once on GPUs, and both that follow it are in its kernel. On CPUs a
    # residual in planes stays apart, and that with a stride is a convolution, too.
    assert fused == (2 if takes_gpu_kernels() else 3)


def test_training():
    """Gradients go through fused products as through others."""
    x, w, v = numbers(33, 20), numbers(20, 48, seed=1), numbers(48, 7, seed=2)

    def loss(x, w, v):
        return (functional.gelu(x @ w) @ v).square().mean()

    grads = []
    for device in ("cpu", "ocl"):
        torch._dynamo.reset()
        leaves = [t.to(device).detach().clone().requires_grad_() for t in (x, w, v)]
        function = torch.compile(loss) if device == "ocl" else loss
        function(*leaves).backward()
        grads.append([t.grad.cpu() for t in leaves])
    for actual, expected in zip(*reversed(grads), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_tuned_products():
    """mode="max-autotune": nothing that the epilogue changes is changed by trials."""
    code = """
import torch
a, b, c = (torch.randn(100, 100).to("ocl") for _ in range(3))
expected = c.cpu() + a.cpu() @ b.cpu()
torch.compile(lambda a, b, c: c.add_(a @ b), mode="max-autotune-no-cudagraphs")(a, b, c)
torch.testing.assert_close(c.cpu(), expected, rtol=1e-4, atol=1e-4)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]


KERNELS = ["tiled"] if takes_gpu_kernels() else ["packed", "direct"]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel(kernel):
    """Asked for, in a process of its own; packed also with parts that fit little memory."""
    if "TORCH_OCL_GEMM" in os.environ:
        return
    environment = {**os.environ, "TORCH_OCL_GEMM": kernel, "TORCH_OCL_GEMM_WORKSPACE": "150000"}
    command = [sys.executable, "-m", "pytest", "-q", __file__, "-k", "every_epilogue or operands"]
    root = pathlib.Path(__file__).parents[2]
    run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:]


@pytest.mark.slow
def test_kernels_for_gpus():
    run_as_gpu(__file__)
