"""Reductions whose columns lie side by side; on GPUs lines of work-items share the rows."""

import pytest
import torch

from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from tests.compile.test_kernels import check, numbers

SHAPES = [(300, 5), (1000, 33), (64, 768), (257, 1), (3, 40), (1, 7), (2, 130, 12), (5, 77, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.sum(-2), x.mean(-2), x.amax(-2), (x * 2).amin(-2, keepdim=True)),
        lambda x: (x.argmax(-2), x.argmin(-2)),
        lambda x: torch.var_mean(x, -2),
        lambda x: ((x > 0).any(-2), (x > -3).all(-2), (x > 0).sum(-2)),
        lambda x: (x / 2).softmax(-2),
        lambda x: (x - x.mean(-2, keepdim=True)) / (x.std(-2, keepdim=True, correction=0) + 1),
        lambda x: x.double().prod(-2),
        lambda x: (x * 100).long().sum(-2),
    ],
    ids=["sums", "places", "moments", "bools", "softmax", "normalised", "double", "integers"],
)
def test_columns(function, shape):
    check(function, numbers(*shape), tol=5e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves(dtype):
    check(lambda x: (x.float().sum(0), x.amax(0)), numbers(300, 70).to(dtype), tol=1e-4)


def test_special_values():
    x = numbers(130, 9)
    x[3, 1], x[4, 2], x[:, 3], x[50, 4] = torch.nan, torch.inf, -torch.inf, torch.nan
    check(lambda x: (x.amax(0), x.argmax(0), x.sum(0), x.softmax(0)), x)


def test_what_is_reduced_is_overwritten():
    """Line by line, when all have read it."""

    def function(x, bias):
        x, bias = x + 0, bias + 0
        total = x.sum(0)
        x -= total
        bias += total * x.amax(0)
        return x.softmax(0), bias

    check(function, numbers(200, 31), numbers(31, seed=1), tol=1e-3)


def test_dynamic_sizes():
    def function(x):
        return x.sum(0), x.softmax(0)

    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for shape in ((40, 9), (300, 64), (17, 130), (1000, 3)):
        x = numbers(*shape)
        for actual, wanted in zip(compiled(x.to("ocl")), function(x), strict=True):
            torch.testing.assert_close(actual.cpu(), wanted, rtol=5e-5, atol=5e-5)


def test_form():
    """Few columns of many rows have lines that share them; many columns have none."""
    from torch._inductor.utils import run_and_get_code

    for shape, shared in (((4096, 64), True), ((64, 1 << 20), False)):
        compiled = torch.compile(lambda x: x.cos().sum(0))
        _, (code, *_) = run_and_get_code(compiled, torch.ones(shape, device="ocl"))
        assert ("group_columns" in code) == (shared and takes_gpu_kernels())


@pytest.mark.slow
def test_kernels_for_gpus():
    run_as_gpu(__file__)
