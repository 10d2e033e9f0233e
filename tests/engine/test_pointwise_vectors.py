"""Functors with a second form on CPUs, which takes vectors: tails, strides and special values."""

import math

import pytest
import torch

from tests.as_gpu import run_as_gpu, takes_gpu_kernels

SPECIAL = torch.special
INF, NAN = math.inf, math.nan
EDGES = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1,
    -1,
    1.25,
    2,
    2.5,
    4,
    5,
    8,
    -1.5,
    -3,
    -100,
    88,
    1e-45,
    -1e-45,
    1e-38,
    3e38,
    INF,
    -INF,
    NAN,
]

FUNCTIONS = {
    "lgamma": (torch.lgamma, -20.0, 60.0),
    "erfinv": (torch.erfinv, -1.1, 1.1),
    "i0": (torch.i0, -12.0, 12.0),
    "i0e": (SPECIAL.i0e, -12.0, 12.0),
    "i1": (SPECIAL.i1, -12.0, 12.0),
    "i1e": (SPECIAL.i1e, -12.0, 12.0),
    "bessel_j0": (SPECIAL.bessel_j0, -40.0, 40.0),
    "bessel_j1": (SPECIAL.bessel_j1, -40.0, 40.0),
    "bessel_y0": (SPECIAL.bessel_y0, -1.0, 40.0),
    "bessel_y1": (SPECIAL.bessel_y1, -1.0, 40.0),
}


@pytest.mark.parametrize("size", [1, 15, 16, 17, 5000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_floats(name, size):
    function, low, high = FUNCTIONS[name]
    x = torch.linspace(low, high, size)
    if size > 1000:
        x = torch.cat([x, torch.tensor(EDGES)])
        x = torch.where(x.abs() < 1e30, x, x.sign() * 1e3) if "bessel" in name else x
    expected = function(x.double()).float()
    if name in ("i0", "i1"):  # the exponential is infinite first, as in CPU torch
        expected = torch.where(x.abs() > 88.7, function(x), expected)
    if name == "lgamma":  # 1e-45 has no double of its own
        torch.testing.assert_close(function(x.to("ocl")).cpu(), function(x), equal_nan=True)
        return
    result = function(x.to("ocl")).cpu()
    torch.testing.assert_close(result, expected, rtol=2e-6, atol=1e-6, equal_nan=True)
    spread = x.repeat_interleave(2).to("ocl")[::2]
    torch.testing.assert_close(function(spread).cpu(), result, rtol=0, atol=0, equal_nan=True)


def units_in_the_last_place(result, exact):
    """The largest error, in the distance of floats there."""
    rounded = exact.float()
    unit = torch.nextafter(rounded.abs(), torch.tensor(INF)) - rounded.abs()
    return float(((result.double() - exact).abs() / unit.double()).max())


def neighbours(value, count=200):
    """The floats around a value."""
    bits = torch.tensor(value, dtype=torch.float).view(torch.int32)
    return (bits + torch.arange(-count, count + 1, dtype=torch.int32)).view(torch.float)


#: Where gamma is 1 or -1: two beside each negative integer from -3 on, and two more.
LGAMMA_ZEROS = [
    -2.457024738, -2.747682647, -3.143580888, -3.955294285, -4.039361839, -4.991544640,
    -5.008218168, -5.998607480, -6.001385, -6.9998016, -7.0001984, -7.9999752, -8.0000248,
    -8.9999972, -9.0000028, -9.9999997,
]  # fmt: skip


def test_lgamma_at_its_zeros():
    x = torch.cat([neighbours(zero) for zero in LGAMMA_ZEROS] + [torch.linspace(-11, -2, 90001)])
    x = x[x != x.floor()]
    assert units_in_the_last_place(torch.lgamma(x.to("ocl")).cpu(), torch.lgamma(x.double())) < 32


@pytest.mark.skipif(takes_gpu_kernels(), reason="GPUs take the driver's function")
def test_lgamma_of_positive_numbers():
    x = torch.cat([torch.linspace(1e-3, 70, 70001), torch.logspace(-37, 36.61, 9999)])
    x = x[(x != 1) & (x != 2)]
    assert units_in_the_last_place(torch.lgamma(x.to("ocl")).cpu(), torch.lgamma(x.double())) < 5
    last = torch.tensor([4.0850032e36, 4.0850035e36])  # of a finite result, and the next
    result = torch.lgamma(last.to("ocl")).cpu()
    torch.testing.assert_close(result, torch.lgamma(last.double()).float())


def test_erfinv_is_exact_to_a_unit():
    x = torch.cat([torch.linspace(-1, 1, 200002)[1:-1], 1 - torch.logspace(-7, -1, 9999)])
    x = torch.cat([x, torch.logspace(-37, -3, 9999), neighbours(0.98486, 5000)])
    assert units_in_the_last_place(torch.erfinv(x.to("ocl")).cpu(), torch.erfinv(x.double())) < 1.3


def test_erfinv_of_doubles():
    x = torch.linspace(-1, 1, 20002, dtype=torch.double)[1:-1]
    x = torch.cat([x, 1 - torch.logspace(-15, -1, 9999, dtype=torch.double)])
    assert_close = torch.testing.assert_close
    assert_close(torch.erfinv(x.to("ocl")).cpu(), torch.erfinv(x), rtol=4e-15, atol=0)


@pytest.mark.parametrize("dtype", [torch.float, torch.half, torch.bfloat16])
@pytest.mark.parametrize("function", [torch.igamma, torch.igammac])
def test_incomplete_gamma(function, dtype):
    edges = torch.tensor([0, 1e-6, 1e-3, 0.3, 1, 1.1, 2, 50, 199, 201, 1000, 1e9, -1, INF, NAN])
    a, x = torch.cartesian_prod(edges, edges).to(dtype).unbind(1)
    usual = torch.rand(1001, 2) * torch.tensor([5.0, 8.0])
    for shape, argument in [(a, x), usual.to(dtype).unbind(1)]:
        expected = function(shape, argument)
        result = function(shape.to("ocl"), argument.to("ocl")).cpu()
        torch.testing.assert_close(
            result,
            expected,
            rtol=2e-5 if dtype == torch.float else None,
            atol=1e-5 if dtype == torch.float else None,
            equal_nan=True,
        )


@pytest.mark.parametrize("dtype", [torch.float, torch.double, torch.half, torch.bfloat16])
def test_nextafter_and_fmod(dtype):
    values = torch.tensor([0.0, -0.0, 1, -1, 2.5, -7, 1e-3, 3e4, 5e-8, INF, -INF, NAN]).to(dtype)
    a, b = torch.cartesian_prod(values, values).unbind(1)
    a, b = (
        torch.cat([a, torch.randn(999).to(dtype) * 100]),
        torch.cat([b, torch.randn(999).to(dtype)]),
    )
    for function in (torch.nextafter, torch.fmod, torch.remainder):
        result = function(a.to("ocl"), b.to("ocl")).cpu()
        torch.testing.assert_close(result, function(a, b), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("size", [1, 3, 8, 9, 50003])
def test_complex_vectors(dtype, size):
    a, b = torch.randn(2, size, dtype=dtype)
    if size > 100:
        parts = torch.tensor([0.0, -0.0, 1, INF, -INF, NAN], dtype=a.real.dtype)
        pairs = torch.complex(*torch.cartesian_prod(parts, parts).unbind(1))
        a[: len(pairs)], b[: len(pairs)] = pairs, pairs.flip(0)
    functions = [
        torch.add, torch.sub, torch.mul, lambda x, y: -x, lambda x, y: torch.conj_physical(y),
        lambda x, y: torch.add(x, y, alpha=2 - 1j), lambda x, y: x * (1 + 2j),
        lambda x, y: torch.addcmul(x, y, x, value=0.5), lambda x, y: x[1:] * y[:-1],
        lambda x, y: x * y.real,
    ]  # fmt: skip
    for function in functions:
        expected, result = function(a, b), function(a.to("ocl"), b.to("ocl")).cpu()
        torch.testing.assert_close(
            torch.view_as_real(result), torch.view_as_real(expected), equal_nan=True
        )


@pytest.mark.parametrize("size", [1, 15, 16, 31, 32, 63, 64, 65, 79, 80, 127, 128, 129, 5003])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.bool, torch.int16, torch.half])
def test_several_vectors_of_narrow_dtypes(dtype, size):
    """A CPU's work-item takes a cache line of them: what is left over are vectors and elements."""
    a, b = torch.randint(0, 200, (2, size + 1)).to(dtype)
    b[::3] = 0
    if dtype == torch.half and size > 60:
        a[:3] = b[8:11] = torch.tensor([INF, NAN, -0.0])
    functions = [
        torch.add, torch.mul, torch.maximum, torch.logical_and, torch.logical_xor, torch.eq,
        lambda x, y: x[1:] * y[:-1], lambda x, y: x.clone().mul_(y), lambda x, y: x * 2,
    ]  # fmt: skip
    for function in functions:
        expected, result = function(a, b), function(a.to("ocl"), b.to("ocl")).cpu()
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def test_products_of_bools_of_other_bytes():
    """A bool that is a view of other data may be any byte."""
    a, b = torch.randint(0, 256, (2, 333), dtype=torch.uint8)
    a[::5], b[::7] = 0, 0
    result = (a.to("ocl").view(torch.bool) * b.to("ocl").view(torch.bool)).cpu()
    assert torch.equal(result, (a != 0) & (b != 0))


@pytest.mark.as_gpu
def test_exactness_as_gpu():
    run_as_gpu(__file__, "-k", "lgamma or erfinv")
