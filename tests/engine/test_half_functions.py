"""Functions of the half types, of every number there is and however their vectors are taken."""

import numpy
import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

HALVES = {torch.bfloat16: (8, -133), torch.float16: (11, -24)}  # bits of precision; the least power
FUNCTIONS = {
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "elu": functional.elu,
    "mish": functional.mish,
}


def every_number(dtype):
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_number(name, dtype):
    """To a sixteenth of an ulp more than rounding takes, but where next to nothing is left."""
    x = every_number(dtype)
    expected = FUNCTIONS[name](x.double())
    actual = FUNCTIONS[name](x.to("ocl")).cpu()
    finite = expected.abs() <= torch.finfo(dtype).max
    assert_close(actual[~finite], expected[~finite].to(dtype), equal_nan=True)
    bits, least = HALVES[dtype]
    _, exponent = numpy.frexp(expected[finite].numpy())
    ulp = numpy.exp2(numpy.maximum(exponent - bits, least))
    off = (actual[finite].double() - expected[finite]).abs().numpy()
    assert (off <= (0.5 + 1 / 16) * ulp + 1e-15).all(), x[finite][off > ulp]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_wherever_they_lie(dtype):
    """Whole cache lines, and what begins or ends in the middle of one, give the same bits."""
    functions = list(FUNCTIONS.values())
    functions += [lambda x: x + x, lambda x: x * 1.7, lambda x: torch.addcmul(x, x, x, value=0.3)]
    x = every_number(dtype).repeat(3).to("ocl")
    for function in functions:
        whole = function(x)
        for first, last in ((1, None), (32, None), (0, -1), (64, -77)):
            part = function(x[first:last])
            assert torch.equal(part.view(torch.int16), whole[first:last].view(torch.int16))


#: What floats leave of a sum near zero.
GRADIENTS = {"silu": 6e-8, "gelu": 2e-7, "gelu by tanh": 2e-7, "mish": 6e-8}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_where_they_cancel(name, dtype):
    """They are sums that are near zero somewhere, where an error of the terms would show."""
    x = every_number(dtype)
    x = x[x.abs() < 5]

    def gradient(x):
        x = x.detach().clone().requires_grad_()
        return torch.autograd.grad(FUNCTIONS[name](x).sum(), x)[0]

    actual, expected = gradient(x.to("ocl")).cpu(), gradient(x.double())
    bits, least = HALVES[dtype]
    _, exponent = numpy.frexp(expected.numpy())
    ulp = numpy.exp2(numpy.maximum(exponent - bits, least))
    off = (actual.double() - expected).abs().numpy()
    assert (off <= (0.5 + 1 / 16) * ulp + GRADIENTS[name]).all(), x[off > ulp]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_softplus_gradient_of_large_numbers(dtype):
    x = torch.linspace(80, 88.6, 64).to(dtype)

    def gradient(x):
        x = x.requires_grad_()
        return torch.autograd.grad(functional.softplus(x, 1, 100).sum(), x)[0]

    assert torch.equal(gradient(x.to("ocl")).cpu(), gradient(x))
