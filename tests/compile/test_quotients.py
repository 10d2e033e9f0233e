"""Quotients that are rounded down, and remainders, compiled: those of eager ops."""

import pytest
import torch

INFINITY = float("inf")
#: Each by each: signs of zeros, infinities, NaN, and quotients that round up to a whole number.
NUMBERS = (0.0, 0.1, 0.3, 1.0, 2.5, 3.0, 7.0, 1e30, INFINITY)


def quotients(a, b):
    return a // b, torch.div(a, b, rounding_mode="floor"), torch.remainder(a, b), torch.fmod(a, b)


def operands(dtype=torch.float32):
    x = torch.tensor([*NUMBERS, *(-n for n in NUMBERS), float("nan")]).to(dtype)
    return x[:, None].expand(-1, len(x)).contiguous(), x.repeat(len(x), 1)


def same(actual, expected):
    """Also in the signs of zeros."""
    actual = actual.cpu()
    numbers = torch.equal(actual.nan_to_num(1.5), expected.nan_to_num(1.5))
    signs = (actual.signbit() == expected.signbit()) | expected.isnan()
    return numbers and bool((actual.isnan() == expected.isnan()).all()) and bool(signs.all())


def differ():
    """Whether a quotient that rounds up is 1 too large."""
    torch._dynamo.reset()
    x = torch.arange(100) / 10
    return not torch.equal(torch.compile(lambda x: x // 0.1)(x.to("ocl")).cpu(), x // 0.1)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_quotients(dtype):
    torch._dynamo.reset()
    a, b = operands(dtype)
    for actual, expected in zip(
        torch.compile(quotients)(a.to("ocl"), b.to("ocl")), quotients(a, b), strict=True
    ):
        assert actual.dtype == dtype
        assert same(actual, expected)


@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers(dynamic):
    """By numbers that change, and of integers."""
    torch._dynamo.reset()

    def function(x, v):
        return x // v, v // (x + 0.25), x % v

    compiled = torch.compile(function, dynamic=dynamic)
    for x in (operands()[0][:, 0], torch.arange(-50, 50), torch.arange(-5, 5).double() / 10):
        for v in (0.1, 0.3, -0.7, INFINITY, 2.5, -INFINITY, 3, True):
            for actual, expected in zip(compiled(x.to("ocl"), v), function(x, v), strict=True):
                assert same(actual, expected), v


@pytest.mark.parametrize("function", [torch.floor, torch.ceil, torch.trunc, torch.round])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_rounding_what_the_compiler_knows(function, dtype):
    """PoCL's compiler makes any number of a NaN that it knows."""
    for number in (float("nan"), INFINITY, -INFINITY, 2.5, -0.5):
        torch._dynamo.reset()

        def rounded(x, number=number):
            return function(x * 0 + number), function(torch.full_like(x, number)), x // number

        x = torch.arange(1, 11).to(dtype)  # vectors and a rest
        for actual, expected in zip(torch.compile(rounded)(x.to("ocl")), rounded(x), strict=True):
            assert same(actual, expected), number


def test_of_rounded_quotients():
    assert not differ()
