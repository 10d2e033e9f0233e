"""Numbers of a program that 32 bits don't hold, in kernels whose indices have 32 bits."""

import pytest
import torch

MOST = 2**31
NUMBERS = (1, MOST + 8, 2**33, -(2**40), 5)
FUNCTIONS = {
    "sum": lambda x, n: x.long() + n,
    "product": lambda x, n: x.long() * n,
    "bits": lambda x, n: (x.long() & n) ^ n,
    "comparison": lambda x, n: x.double() > n,
    "where": lambda x, n: torch.where(x > 2, x.long(), n),
    "clamp": lambda x, n: x.long().clamp(max=n),
    "full_like": lambda x, n: torch.full_like(x.long(), n),
    "fill": lambda x, n: x.long().fill_(n),
    "arange": lambda x, n: torch.arange(n, n + 6, device=x.device) + x.long(),
    "double": lambda x, n: x.double() + n,
    "quotient": lambda x, n: x * 0 + n / 1000,
    "places": lambda x, n: x[(torch.arange(3, device=x.device) + n) % 6],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers(device, name, dynamic):
    torch._dynamo.reset()
    function = FUNCTIONS[name]
    compiled = torch.compile(function, dynamic=dynamic)
    x = torch.arange(6.0)
    for n in NUMBERS:
        torch.testing.assert_close(compiled(x.to(device), n).cpu(), function(x, n))


@pytest.mark.parametrize("constant", [MOST, 2**40])
def test_constants(device, constant):
    """A kernel with such a constant had operands of two sizes, which drivers refuse."""

    def function(x):
        numbers = torch.arange(constant, constant + 6, device=x.device)
        return x[(torch.arange(3, device=x.device) + constant) % 6], numbers + x.long()

    torch._dynamo.reset()
    x = torch.arange(6.0)
    for actual, expected in zip(torch.compile(function)(x.to(device)), function(x), strict=True):
        assert torch.equal(actual.cpu(), expected)


def test_gradients(device):
    torch._dynamo.reset()
    compiled = torch.compile(lambda w, n: (w * n).sum())
    for n in (1, MOST + 8, 2**33):
        w = torch.ones(3, device=device, requires_grad=True)
        compiled(w, n).backward()
        assert w.grad.tolist() == [float(torch.tensor(float(n)))] * 3


@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_computed_from_several_sizes(device, dynamic):
    """Inductor has a symbol for such an expression, which it knows no value of by itself."""
    torch._dynamo.reset()
    pad = torch.constant_pad_nd
    compiled = torch.compile(pad, dynamic=dynamic)
    for value, pads in ((1.0, (1, 2)), (0.5, (1, 2)), (0.75, (2, 3)), (1.25, (1, 4))):
        x = torch.ones(1, 3, device=device, requires_grad=True)
        found, expected = compiled(x, pads, value), pad(x.cpu(), pads, value)
        assert torch.equal(found.cpu(), expected)
        assert torch.autograd.grad((found * found).sum(), x)[0].tolist() == [[2.0] * 3]
