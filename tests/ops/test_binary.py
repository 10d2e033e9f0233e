"""Arithmetic of two operands where their dtypes or sizes matter, against CPU torch."""

import pytest
import torch
from torch.testing import assert_close

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("number", [complex(0, INF), complex(1, NAN), complex(INF, 0), 2 - 3j])
def test_real_times_complex(device, dtype, number):
    real = torch.ones(5, dtype=dtype)
    other = torch.full((5,), number, dtype=torch.complex64)
    calls = [
        lambda a, b: a * number,
        lambda a, b: a * b,
        lambda a, b: b * a,
        lambda a, b: b / a,
        lambda a, b: a + b,
    ]
    for call in calls:
        got, expected = call(real.to(device), other.to(device)).cpu(), call(real, other)
        assert got.dtype == expected.dtype
        assert_close(
            torch.view_as_real(got), torch.view_as_real(expected), equal_nan=True, rtol=0, atol=0
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("divisor", [0.4140625, 0.1])
@pytest.mark.parametrize("form", ["number", "host", "scalar", "element", "full"])
def test_truncated_quotients(device, dtype, divisor, form):
    a = torch.tensor([12.0, 57, -57, 100, 3.3, 1000] * 6).to(dtype)
    b = {
        "number": divisor,
        "host": torch.tensor(divisor),
        "scalar": torch.tensor(divisor, dtype=dtype),
        "element": torch.tensor([divisor], dtype=dtype),
        "full": torch.full_like(a, divisor),
    }[form]
    on_device = b if form in ("number", "host") else b.to(device)
    got = torch.div(a.to(device), on_device, rounding_mode="trunc")
    assert_close(got.cpu(), torch.div(a, b, rounding_mode="trunc"), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_powers_of_special_values(device, dtype):
    parts = [0.0, -0.0, 1.0, -1.0, 2.0, -0.5, INF, -INF, NAN]
    z = torch.tensor([complex(a, b) for a in parts for b in parts], dtype=dtype)

    def check(function):
        expected, actual = function(z), function(z.to(device)).cpu()
        assert_close(torch.view_as_real(actual), torch.view_as_real(expected), equal_nan=True)

    check(lambda x: torch.pow(x.unsqueeze(1), x))
    check(lambda x: torch.float_power(x.unsqueeze(1), x))
    for number in (0, 1, 2, 3, -2, 0.5, -0.5, 2.5, 2 + 1j, INF, -INF, NAN):
        check(lambda x, number=number: torch.pow(x, number))
        check(lambda x, number=number: number**x)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_logaddexp_of_special_values(device, dtype):
    parts = [0.0, 1.0, -2.5, INF, -INF, NAN]
    z = torch.tensor([complex(a, b) for a in parts for b in parts], dtype=dtype)
    got = torch.logaddexp(z[:, None].to(device), z.to(device)).cpu()
    expected = torch.logaddexp(z[:, None], z)
    assert_close(torch.view_as_real(got), torch.view_as_real(expected), equal_nan=True)


@pytest.mark.parametrize("number", [1e39, -1e39, complex(1e39, 1), complex(0, 1e39)])
def test_complex_powers_past_the_range_of_floats(device, number):
    z = torch.tensor([0.0, 2, 0.5, -3, 1 + 2j], dtype=torch.complex64)
    got, expected = (z.to(device) ** number).cpu(), z**number
    assert_close(torch.view_as_real(got), torch.view_as_real(expected), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["zeta", "gammainc", "gammaincc"])
def test_special_functions_of_special_values(device, name, dtype):
    values = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 10.0, -10.0]
    x = torch.tensor(values, dtype=dtype)
    function = getattr(torch.special, name)
    got, expected = function(x[:, None].to(device), x.to(device)).cpu(), function(x[:, None], x)
    assert_close(got, expected, equal_nan=True)


def test_incomplete_gamma_functions_of_large_arguments(device):
    # From where on an expansion serves, and far past what series would take to converge.
    a = torch.tensor([0.99e8, 1.01e8, 1e10, 1e12], dtype=torch.float64)[:, None]
    x = a + torch.linspace(-3, 3, 13, dtype=torch.float64) * a.sqrt()
    for function in (torch.special.gammainc, torch.special.gammaincc):
        for far in (x, a * 1e-30, a / 2, a * 2, a * 1e30):
            got = function(*torch.broadcast_tensors(a.to(device), far.to(device)))
            expected = function(*torch.broadcast_tensors(a, far))
            assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-9)


def test_ldexp_of_cpu_scalars(device):
    x, two = torch.tensor([1.0, -3.0, INF]), torch.tensor(2)
    on_device = x.to(device)
    expected = torch.ldexp(x, two)
    assert_close(torch.ldexp(on_device, two).cpu(), expected)
    assert_close(torch.ldexp(on_device, two.double()).cpu(), expected)
    assert_close(torch.ldexp(on_device, two, out=torch.empty_like(on_device)).cpu(), expected)
    assert_close(on_device.clone().ldexp_(two).cpu(), expected)
    exponents = torch.tensor([1, 0, -3])
    got = torch.ldexp(torch.tensor(1.5), exponents.to(device))
    assert_close(got.cpu(), torch.ldexp(torch.full((3,), 1.5), exponents))
    for call in (
        lambda: torch.ldexp(on_device, exponents),
        lambda: torch.ldexp(x, exponents.to(device)),
        lambda: torch.ldexp(on_device, two, out=torch.empty(3)),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            call()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool], ids=str)
def test_ldexp_of_integers(dtype, device):
    """They are multiplied: 0 times a power past the range is NaN."""
    x = torch.tensor([0, 1, 3, 64]).to(dtype)
    for exponents in (torch.tensor([2**62, 130, -140, -151]), torch.tensor(-150), torch.tensor(7)):
        expected = torch.ldexp(x, exponents)
        arguments = (x.to(device), exponents.to(device))
        assert_close(torch.ldexp(*arguments).cpu(), expected, equal_nan=True)
        expected = torch.ldexp(x, exponents, out=torch.empty(4).double())
        out = torch.ldexp(*arguments, out=torch.empty(4, dtype=torch.float64, device=device))
        assert_close(out.cpu(), expected, equal_nan=True)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_powers_of_numbers_at_the_ends(dtype):
    """CPU torch takes roots by sqrt, but for half: they differ for -infinity and -0."""
    bases = [-float("inf"), -1.0, -0.0, 0.0, 2.0, float("inf"), float("nan")]
    exponents = [0.5, -0.5, 0.25, 1.5, 2.0, 3.0, -1.0, -2.0, float("inf"), -float("inf")]
    x = torch.tensor(bases * 5, dtype=dtype)
    on_device = x.to("ocl")
    for exponent in exponents:
        for call in (
            lambda x, e=exponent: x.pow(e),
            lambda x, e=exponent: x.clone().pow_(e),
            lambda x, e=exponent: x.pow(torch.tensor(e, dtype=dtype)),
            lambda x, e=exponent: x.pow(torch.full_like(x, e)),
            lambda x, e=exponent: torch._foreach_pow([x], e)[0],
        ):
            expected, got = call(x), call(on_device).cpu()
            torch.testing.assert_close(got, expected, equal_nan=True)
            known = ~expected.isnan()
            assert torch.equal(got.signbit()[known], expected.signbit()[known]), exponent
