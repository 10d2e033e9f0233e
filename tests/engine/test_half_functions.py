"""Functions of the half types, of every number there is and however their vectors are taken."""

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from benchmarks.studies.numerics import (
    ALL,
    FUNCTIONS,
    TYPES,
    every_number,
    exact_values,
    ulp_of,
    ulps_off,
)
from tests.as_gpu import run_as_gpu

#: The digits that floats leave of a sum near zero, and of what is next to nothing.
LEFT = {
    "gelu": 1e-13,
    "gelu, gradient": 6e-8,
    "silu, gradient": 6e-8,
    "gelu by tanh, gradient": 6e-8,
    "mish, gradient": 6e-8,
}
#: Upstream composes these of functions that each round to the type.
COMPOSED = {"erf, gradient", "rsqrt, gradient"}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("name", "function", "exact"), ALL, ids=[name for name, *_ in ALL])
def test_every_number(name, function, exact, dtype):
    """As exact as CPU torch at least. Rounding to the type is nearly all of the error."""
    x = every_number(dtype)
    expected = exact_values(exact, dtype)
    actual = function(x.to("ocl")).cpu()
    off, host_off = ulps_off(actual, expected), ulps_off(function(x), expected)
    assert off.max() <= host_off.max(), f"{off.max()} ulps, CPU torch's {host_off.max()}"
    special = ~x.isfinite() | ~torch.from_numpy(expected).isfinite()
    # CPU torch's bfloat16 makes a NaN of gelu(inf).
    assert_close(actual[special], function(x.double())[special].to(dtype), equal_nan=True)
    if name in COMPOSED:
        return
    finite = (np.abs(expected) <= torch.finfo(dtype).max) & ~special.numpy()
    error = np.abs(actual.double().numpy()[finite] - expected[finite])
    allowed = (0.5 + 1 / 16) * ulp_of(expected[finite], dtype) + LEFT.get(name, 1e-30)
    assert (error <= allowed).all(), x[torch.from_numpy(finite)][~(error <= allowed)]


def bits_of(x):
    """One NaN is as good as another, and instructions hand on different ones."""
    return x.view(torch.int16).masked_fill(x.isnan(), 0)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_wherever_they_lie(dtype):
    """Whole cache lines, and what begins or ends in the middle of one, give the same bits."""
    functions = [function for function, _ in FUNCTIONS.values()] + [functional.elu]
    functions += [lambda x: x + x, lambda x: x * 1.7, lambda x: torch.addcmul(x, x, x, value=0.3)]
    x = every_number(dtype).repeat(3).to("ocl")
    for function in functions:
        whole = function(x)
        for first, last in ((1, None), (32, None), (0, -1), (64, -77)):
            assert torch.equal(bits_of(function(x[first:last])), bits_of(whole[first:last]))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_softplus_gradient_of_large_numbers(dtype):
    x = torch.linspace(80, 88.6, 64).to(dtype)

    def gradient(x):
        x = x.requires_grad_()
        return torch.autograd.grad(functional.softplus(x, 1, 100).sum(), x)[0]

    assert torch.equal(gradient(x.to("ocl")).cpu(), gradient(x))


@pytest.mark.as_gpu
def test_as_gpu():
    """The forms for GPUs, in a process of their own."""
    # Intel's rsqrt() has other bits for vectors than for numbers, without its vectorizer.
    run_as_gpu(__file__, unvectorised=False)
