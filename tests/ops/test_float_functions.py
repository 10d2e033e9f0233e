"""Functions of float32: their largest error over all exponents, and what is not finite or tiny."""

import numpy as np
import pytest
import torch

from benchmarks.studies.numerics import FUNCTIONS, float_errors, floats
from tests.as_gpu import run_as_gpu

#: Those that are the same on all devices.
OWN = "sin cos tan asin acos atan sinh cosh tanh erf erfc".split()
#: Where results get infinite, nothing, or constant.
BOUNDS = [88.72283, 88.72284, 89.41598, 89.41599, 3.9, 4.0, 9.01, 9.02, 10.0, 10.05, 10.06, 1.0]
TINY = [0.0, 1e-45, 1.1754942e-38, 1.1754944e-38, 1e-30, 0.99999994, 1.0000001]
HUGE = [65535.996, 65536.0, 1e6, 1e22, 3.4028235e38, float("inf"), float("nan")]


@pytest.fixture(scope="module")
def numbers():
    return floats(4099)


@pytest.mark.parametrize("name", OWN + ["exp", "expm1", "log", "log1p", "sqrt"])
def test_largest_error(name, numbers):
    """At most one ulp more than CPU torch's. Its sinh and cosh are infinite too early."""
    function, exact = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        expected = exact(numbers.double().numpy())
    errors = float_errors(function(numbers.to("ocl")).cpu(), expected)
    host_errors = float_errors(function(numbers), expected)
    bound = 1 + host_errors[np.isfinite(host_errors)].max()
    worst = errors.argmax()
    assert errors[worst] <= bound, f"{errors[worst]} ulps at {numbers[worst].item()}, not {bound}"


@pytest.mark.parametrize("name", OWN)
def test_specials(name):
    x = torch.tensor(BOUNDS + TINY + HUGE)
    x = torch.cat([x, -x])
    function, _ = FUNCTIONS[name]
    actual, expected = function(x.to("ocl")).cpu(), function(x.double()).float()
    special = (expected == 0) | expected.isinf() | (expected.abs() == 1)
    special |= (x.abs() < 1e-37) & (expected == x)
    bits, expected_bits = (t[special].view(torch.int32) for t in (actual, expected))
    assert torch.equal(bits, expected_bits), x[special][bits != expected_bits]
    assert torch.equal(actual.isnan(), expected.isnan())


@pytest.mark.parametrize("name", OWN)
def test_wherever_they_lie(name, numbers):
    """Vectors and single numbers give the same bits, whatever is beside them."""
    function, _ = FUNCTIONS[name]
    x = numbers[:100_003].to("ocl")
    whole = function(x)
    for first, last in ((1, None), (0, -1), (64, -77)):
        part = function(x[first:last])
        assert torch.equal(part.view(torch.int32), whole[first:last].view(torch.int32))
    order = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(0)).to("ocl")
    mixed = function(x[order])
    assert torch.equal(mixed.view(torch.int32), whole[order].view(torch.int32))


def pairs():
    """Numbers of all magnitudes, and beside the diagonals, where another axis is nearer."""
    generator = torch.Generator().manual_seed(0)
    y, x, apart = torch.randn(3, 2**18, generator=generator)
    exponents = torch.randint(-140, 127, (2, 2**18), generator=generator)
    far_y, far_x = torch.ldexp(torch.stack([y, x]), exponents)
    near = y * (1 + apart * 0.3)
    return torch.cat([y, far_y, y, y]), torch.cat([x, far_x, near, -near])


def test_largest_error_of_atan2():
    y, x = pairs()
    expected = torch.atan2(y.double(), x.double()).numpy()
    errors = float_errors(torch.atan2(y.to("ocl"), x.to("ocl")).cpu(), expected)
    bound = 1 + float_errors(torch.atan2(y, x), expected).max()
    worst = errors.argmax()
    assert errors[worst] <= bound, f"{errors[worst]} ulps at {y[worst]}, {x[worst]}, not {bound}"


def test_atan2_of_specials():
    numbers = torch.tensor([0.0, 1.0, 2.0, 1e-45, 1e-38, 1e38, 3.4e38, float("inf"), float("nan")])
    numbers = torch.cat([numbers, -numbers])
    y, x = (t.contiguous() for t in torch.meshgrid(numbers, numbers, indexing="ij"))
    actual, expected = torch.atan2(y.to("ocl"), x.to("ocl")).cpu(), torch.atan2(y, x)
    torch.testing.assert_close(actual, expected, rtol=3e-7, atol=0, equal_nan=True)
    signed = ~expected.isnan()
    assert torch.equal(actual.signbit()[signed], expected.signbit()[signed])


def test_atan2_compiled():
    y, x = (t.to("ocl") for t in pairs())
    compiled = torch.compile(torch.atan2)(y, x)
    assert torch.equal(compiled, torch.atan2(y, x))


def test_compiled(numbers):
    """Generated kernels give the same bits as eager ones."""
    functions = [FUNCTIONS[name][0] for name in OWN]

    def apply_all(x):
        return [function(x) for function in functions]

    x = numbers[: 2**17].to("ocl")
    for name, eager, compiled in zip(OWN, apply_all(x), torch.compile(apply_all)(x), strict=True):
        assert torch.equal(eager.view(torch.int32), compiled.view(torch.int32)), name


@pytest.mark.as_gpu
def test_as_gpu():
    """The forms for GPUs, in a process of their own."""
    run_as_gpu(__file__)


def test_the_gradient_of_tanh_where_it_is_small():
    """1 - b^2 keeps its digits near 1."""
    b = 1 - torch.logspace(-7, -1, 2001, dtype=torch.float64).float()
    found = torch.ops.aten.tanh_backward(torch.ones_like(b).to("ocl"), b.to("ocl")).cpu().double()
    expected = 1 - b.double().square()
    assert ((found - expected).abs() <= 2**-24 * expected).all()


def test_the_gradient_of_tanh_compiled():
    """It is a formula there, of the same bits."""
    x = torch.linspace(-12, 12, 2**16 + 3)

    def gradient(function):
        leaf = x.to("ocl").requires_grad_()
        return torch.autograd.grad(function(leaf).sum(), leaf)[0]

    assert torch.equal(gradient(torch.compile(torch.tanh)), gradient(torch.tanh))
