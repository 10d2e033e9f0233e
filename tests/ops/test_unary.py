"""Unary ops with arguments of their own."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32, torch.float16])
@pytest.mark.parametrize("arguments", [{}, {"nan": 2.5}, {"nan": -1.0, "posinf": 3, "neginf": 4.0}])
def test_nan_to_num(dtype, arguments):
    parts = [0.0, -1.5, NAN, INF, -INF]
    values = [complex(*pair) for pair in itertools.product(parts, parts)]
    x = torch.tensor(values, dtype=dtype) if dtype.is_complex else torch.tensor(parts, dtype=dtype)
    expected = torch.nan_to_num(x, **arguments)
    for y in (x.to("ocl"), x.repeat_interleave(2).to("ocl")[::2]):
        assert_close(torch.nan_to_num(y, **arguments).cpu(), expected, rtol=0, atol=0)
        out = torch.empty_like(y)
        assert torch.nan_to_num(y, **arguments, out=out) is out
        assert_close(out.cpu(), expected, rtol=0, atol=0)
        assert_close(y.nan_to_num_(**arguments).cpu(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.uint8])
@pytest.mark.parametrize("exponent", [2**40, 1e39, -70000.0, 2, INF])
def test_exponents_that_the_dtype_does_not_hold(dtype, exponent):
    x = torch.tensor([1, 0, 1], dtype=dtype)
    outcomes = []
    for device in ("cpu", "ocl"):
        try:
            outcomes.append((x.to(device) ** exponent).cpu())
        except RuntimeError as error:
            outcomes.append(type(error))
    assert isinstance(outcomes[0], type) == isinstance(outcomes[1], type), outcomes
    if not isinstance(outcomes[0], type):
        assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "function", [F.relu6, F.hardtanh, F.hardshrink, F.softshrink, F.hardswish, F.relu]
)
def test_gradients_at_nan(function, dtype):
    # Few elements: the vectors of CPU torch's kernels treat a NaN otherwise than what is left over.
    x = torch.tensor([NAN, 0.25, -4.0], dtype=dtype, requires_grad=True)
    y = x.detach().to("ocl").requires_grad_()
    gradient = torch.tensor([3.0, 2.0, 5.0], dtype=dtype)
    function(x).backward(gradient)
    function(y).backward(gradient.to("ocl"))
    assert_close(y.grad.cpu(), x.grad, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        torch.relu,
        F.relu6,
        lambda x: x.clamp(min=0.0),
        lambda x: x.clamp(max=0.0),
        lambda x: x.clamp(-0.0, 1.0),
    ],
)
def test_bounds_keep_the_sign_of_zero(function, dtype):
    x = torch.tensor([-0.0, 0.0, NAN, -1.0, 2.0, 7.0] * 6, dtype=dtype)
    got, expected = function(x.to("ocl")).cpu(), function(x)
    assert_close(got, expected, equal_nan=True, rtol=0, atol=0)
    assert torch.equal(got.signbit() | got.isnan(), expected.signbit() | expected.isnan())


@pytest.mark.parametrize("function", [torch.tanh, F.gelu, torch.exp, torch.sigmoid])
def test_any_nan(function):
    """Whatever a NaN carries besides."""
    x = torch.randn(64)
    x.view(torch.int32)[3:9] = torch.tensor(
        [0x7FC00001, 0x7F800001, 0x7FC000FF, 0x7FFFFFFF, -1, -0x400000], dtype=torch.int32
    )
    assert_close(function(x.to("ocl")).cpu(), function(x), equal_nan=True)
    a, b = x.clone().requires_grad_(), x.to("ocl").requires_grad_()
    function(a).sum().backward()
    function(b).sum().backward()
    assert_close(b.grad.cpu(), a.grad, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_tanh_and_gelu_over_their_range(dtype):
    """Tails, both zeros and denormals included."""
    x = torch.cat([torch.linspace(-15, 15, 30001), torch.logspace(-44, 1, 3000), torch.zeros(1)])
    x = torch.cat([x, -x]).to(dtype)
    expected = torch.tanh(x.double()).to(dtype)
    got = torch.tanh(x.to("ocl")).cpu()
    assert_close(got, expected, rtol=2 * torch.finfo(dtype).eps, atol=0)
    assert torch.equal(got.signbit(), expected.signbit())
    # CPU torch's has no digits left in the lower tail.
    expected = F.gelu(x.double()).to(dtype)
    got = F.gelu(x.to("ocl")).cpu()
    rtol = {torch.float32: 4e-6}.get(dtype, 2 * torch.finfo(dtype).eps)
    assert_close(got, expected, rtol=rtol, atol=2e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_exponentials_over_their_range(dtype):
    """Results that are denormal, nothing or infinite included."""
    bounds = torch.tensor([88.72, 88.73, 89.0, 1e30, -87.33, -87.34, -103.9, -104.0, -104.1, -1e30])
    x = torch.cat([torch.linspace(-110, 95, 50001), torch.randn(1000) * 1e-6, bounds]).to(dtype)
    rtol = max(torch.finfo(dtype).eps, 3.6e-7)  # three ulps, as OpenCL allows
    exact = torch.exp(x.double())
    assert_close(torch.exp(x.to("ocl")).cpu(), exact.to(dtype), rtol=rtol, atol=1.5e-45)
    for function in (torch.sigmoid, F.silu):
        got, expected = function(x.to("ocl")).cpu(), function(x.double())
        if dtype == torch.float16:  # where it is denormal, what rounding takes and a sixteenth
            near = (0.5 + 1 / 16) * 2**-24
            assert_close(got.double(), expected, rtol=rtol, atol=near, equal_nan=True)
        else:
            assert_close(got, expected.to(dtype), rtol=2 * rtol, atol=5e-37, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_gelu_of_large_numbers(dtype):
    x = torch.logspace(1, 38, 100).to(dtype)
    a, b = (torch.cat([x, -x]).to(device).requires_grad_() for device in ("cpu", "ocl"))
    expected, got = F.gelu(a), F.gelu(b)
    assert_close(got.cpu(), expected, rtol=1e-6, atol=1e-20)
    expected.sum().backward()
    got.sum().backward()
    assert_close(b.grad.cpu(), a.grad, rtol=1e-6, atol=1e-20)


def test_erfcx_of_large_negative_doubles():
    x = -torch.logspace(0, 300, 3000, dtype=torch.float64)
    assert_close(torch.special.erfcx(x.to("ocl")).cpu(), torch.special.erfcx(x))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    "name", "acos acosh asin asinh atan atanh cos cosh expm1 sin sinh tan tanh".split()
)
def test_complex_functions_of_special_values(name, dtype):
    parts = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-8, 1e-30]
    parts += [30.0, -30.0] if name in ("expm1", "cosh", "cos", "sin", "sinh") else [1e10, -200.0]
    z = torch.tensor([complex(*pair) for pair in itertools.product(parts, parts)], dtype=dtype)
    function = getattr(torch, name)
    got, expected = (torch.view_as_real(t) for t in (function(z.to("ocl")).cpu(), function(z)))
    assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_frexp_of_special_values(dtype):
    x = torch.tensor([0.0, -0.0, 1.0, -3.5, INF, -INF, NAN, 6e-8, 1e-40, 65504.0, 0.1] * 7).to(
        dtype
    )
    x = torch.cat([x.to(dtype), torch.tensor([5e-324, -3e-310, 1e300], dtype=dtype)])
    got, want = torch.frexp(x.to("ocl")), torch.frexp(x)
    assert_close(got.mantissa.cpu(), want.mantissa, rtol=0, atol=0, equal_nan=True)
    assert_close(got.exponent.cpu(), want.exponent)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_and_their_parts(dtype):
    parts = [0.0, -0.0, 1.0, -1.5, INF, -INF, NAN]
    x = torch.tensor([complex(*pair) for pair in itertools.product(parts, parts)], dtype=dtype)
    # The sign of zeros counts, too.
    same = lambda got, want: assert_close(  # noqa: E731
        torch.view_as_real(got.cpu().resolve_conj()).reciprocal(),
        torch.view_as_real(want.resolve_conj()).reciprocal(),
        rtol=0, atol=0, equal_nan=True,
    )  # fmt: skip
    for y in (x, x.repeat(40), x.repeat(3)[::2], x.reshape(7, 7).t()):
        z = y.to("ocl")
        same(torch.conj_physical(z), torch.conj_physical(y))
        same(z.clone().conj_physical_(), torch.conj_physical(y))
        same(torch.complex(z.real, z.imag), torch.complex(y.real, y.imag))
        same(torch.complex(z.real, z.imag[:1]), torch.complex(y.real, y.imag[:1]))
        assert_close(torch.angle(z).cpu(), torch.angle(y), equal_nan=True)
        out = torch.ones_like(z)
        torch.angle(z, out=out)
        assert_close(out.cpu(), torch.angle(y, out=torch.ones_like(y)), equal_nan=True)
