"""The pointwise engine: access modes, mixed dtypes, host scalars, broadcasting, odd shapes."""

import itertools

import pytest
import torch
from torch.testing import assert_close

REAL = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]
DTYPES = [*REAL, torch.complex64]


def make(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, generator=generator)
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator) * 4).to(dtype)
    low = 0 if dtype == torch.uint8 else -100
    return torch.randint(low, 100, shape, generator=generator).to(dtype)


def check(function, *inputs):
    expected = function(*inputs)
    actual = function(*(i.to("ocl") if isinstance(i, torch.Tensor) else i for i in inputs))
    assert actual.device.type == "ocl"
    assert_close(actual.cpu(), expected, equal_nan=True)
    return actual


@pytest.mark.parametrize("a, b", list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_mixed_dtypes(a, b):
    check(torch.add, make((5, 33), a, 1), make((5, 33), b, 2))
    check(torch.mul, make((5, 33), a, 3), make((33,), b, 4))


@pytest.mark.parametrize("source, target", list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_conversion(source, target):
    x = make((7, 19), source)
    if target == torch.uint8 and source != torch.bool:
        x = x.abs()
    if source.is_complex:
        x = x.abs().to(source)
    check(lambda t: t.to(target), x)
    check(lambda t: t.t().to(target), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_conversion_of_special_values(dtype):
    tiny = torch.finfo(dtype).tiny
    values = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        tiny,
        tiny / 2,
        -tiny / 4,
        65504.0,
        65519.9,
        65520.0,
        1e-8,
        3.0e38,
    ]
    x = torch.tensor([*values, float("inf"), -float("inf"), float("nan")], dtype=torch.float64)
    x = x.to(dtype)
    for target in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool):
        got = x.to("ocl").to(target).cpu()
        assert_close(got, x.to(target), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_16_bit_value(dtype):
    x = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    device = x.to("ocl")
    assert_close(device.float().cpu(), x.float(), rtol=0, atol=0, equal_nan=True)
    again = device.float().to(dtype).cpu()
    kept = ~x.isnan()
    assert torch.equal(again.view(torch.int16)[kept], x.view(torch.int16)[kept])


def test_int64_beyond_float53():
    x = torch.tensor([2**53 + 1, -(2**62) - 1, 2**63 - 1, -(2**63)])
    check(lambda t: t + 1, x)
    check(lambda t: t * 3, x)
    check(lambda t: t > 2**53, x)
    check(lambda t: t - 2**53, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_host_scalars(dtype):
    x = make((4, 21), dtype)
    check(lambda t: t + torch.tensor(2), x)
    check(lambda t: torch.tensor(3, dtype=torch.int64) * t, x)
    check(lambda t: torch.where(t == t, t, torch.tensor(1).to(dtype)), x)
    check(lambda t: t[0, 0] + t, x)
    if dtype != torch.bool:
        check(lambda t: 5 - t, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("op", [torch.add, torch.sub, torch.mul, torch.eq, torch.lt, torch.fmod])
def test_operands_are_rounded_to_the_common_dtype(op, dtype):
    x = torch.tensor([3000.0, 3001, 3002, 257, 258, 0.1, -0.3]).to(dtype)
    whole = torch.tensor([3001, 3001, 3001, 257, 257, 1, -3])
    for other in (whole, whole.int(), whole.short(), whole[:, None]):
        check(op, x, other)
        check(op, other, x)
    check(op, x.expand(300, 7), whole)
    for scalar in (torch.tensor(3001), torch.tensor(0.1), torch.tensor(0.3, dtype=torch.float64)):
        check(op, x, scalar)
        check(op, scalar, x)
        check(lambda t, scalar=scalar: op(t, scalar), x)
    for number in (3001, 257, 0.1):
        check(lambda t, number=number: op(t, number), x)
        check(lambda t, number=number: op(torch.tensor(number).to(t.device), t), x)


@pytest.mark.parametrize("wide", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_results_are_rounded_to_the_common_dtype(dtype, wide):
    """Whatever is to hold them: 300 * 300 is infinite as a half."""
    x = torch.tensor([300, 0.1, 12, -7.3, 1e-4, 257, 3]).to(dtype)
    bytes_ = torch.arange(7, dtype=torch.uint8) * 30
    calls = [
        lambda t, out: torch.mul(t, t, out=out),
        lambda t, out: torch.exp(t, out=out),
        lambda t, out: torch.add(bytes_.to(t.device), t, out=out),
        lambda t, out: torch.addcmul(t, t, t, out=out),
        lambda t, out: torch.mul(t[:, None], t, out=out),
    ]
    for call in calls[: 3 if wide.is_complex else 5]:
        expected = call(x, torch.empty(0, dtype=wide))
        actual = call(x.to("ocl"), torch.empty(0, dtype=wide, device="ocl"))
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)


LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "sliced": lambda t: t[:, 1::2, ::3],
    "offset": lambda t: t[1:, 2:, 5:],
    "expanded": lambda t: t[:, :1, :].expand(-1, 9, -1),
    "narrow": lambda t: t[..., :3],
    "column": lambda t: t[..., 0],
    "row broadcast": lambda t: t[:1],
    "channels_last": lambda t: t.unsqueeze(0).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16, torch.bool], ids=str)
def test_layouts(layout, dtype):
    x, y = make((6, 9, 70), dtype, 1), make((6, 9, 70), dtype, 2)
    view = LAYOUTS[layout]
    check(lambda a, b: view(a) + view(b), x, y)
    check(lambda a, b: view(a) == view(b).contiguous(), x, y)
    check(lambda a: view(a).clone(), x)

    def into(a, b):
        out = torch.zeros_like(a)
        if layout != "expanded":
            view(out).copy_(view(b))
        return out

    check(into, x, y)


def test_many_dimensions():
    x = torch.randn([2] * 16)
    y = x.permute(*reversed(range(16)))
    check(lambda a, b: a + b, x, y)
    z = torch.randn([2] * 18).permute(*reversed(range(18)))
    check(lambda a: a * 2 + a.permute(*reversed(range(18))), z)


def test_broadcast_everything():
    shapes = [(), (1,), (5,), (3, 1), (4, 1, 5), (2, 1, 3, 1), (2, 4, 3, 5)]
    for a, b in itertools.product(shapes, shapes):
        check(torch.sub, make(a, torch.float32, 1), make(b, torch.float32, 2))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 63, 64, 127, 128, 1023, 1025, 100_003])
def test_sizes(n):
    check(lambda a: a * 2 + 1, make((n,), torch.float32))
    check(lambda a: a.half() + 1, make((n,), torch.float32))


def test_overlap_is_refused():
    x = torch.zeros(10, device="ocl")
    with pytest.raises(RuntimeError, match="unsupported operation"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        x[:1].expand(10).add_(1)


def test_past_32_bit_indexing():
    n = 2**31 + 5
    x = torch.zeros(n, dtype=torch.int8, device="ocl")
    x[-1] = 7
    y = x + 1
    assert y[-1].item() == 8
    assert y[2**31 - 1].item() == 1
    assert y[0].item() == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transposed_operands(dtype):
    """Tiles: inputs contiguous along another dimension than the outputs."""
    for shape in ((64, 64), (50, 77), (16, 300), (130, 17)):
        a, b = make(shape, dtype, 1), make(shape[::-1], dtype, 2)
        check(lambda x: x.t().contiguous(), a)
        check(lambda x, y: x.t() * y, a, b)
        check(lambda x, y: y + x.t(), a, b)
        check(lambda x: x.t().to(torch.bfloat16), a)
        check(lambda x, y: torch.where(x.t() == y, x.t(), y), a, b)
    stack = make((3, 40, 5, 34), dtype, 3)
    for order in itertools.permutations(range(4)):
        check(lambda x, o=order: x.permute(o).contiguous(), stack)
        check(lambda x, o=order: x[1:, 1:, :, 1:].permute(o) * 2, stack)
    out = make((90, 90), dtype, 4)
    a, row = make((90, 90), dtype, 5), make((90,), dtype, 6)
    check(lambda o, x, r: o.clone().add_(x.t() * r).mul_(x[::2].repeat(2, 1).t()), out, a, row)


def test_transposed_special_functions():
    a = make((70, 45), torch.float32)
    check(lambda x: torch.special.erfcx(x.t() / 8) + torch.lgamma(x.t()), a)
    check(lambda x: torch.frexp(x.t()).mantissa, a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("offset", [0, 1, 3, 16])
def test_larger_than_the_caches(dtype, offset):
    """Results that are stored past the caches; offsets for which they can't be."""
    n = (14 << 20) + 5
    a = torch.arange(n + 16).to(dtype)
    check(lambda x: x[offset : offset + n] + 1, a)
    check(lambda x: x[:-16].mul(2)[offset:], a)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_ldexp_of_unrepresentable_powers(dtype):
    x = torch.tensor([0.0, 1e-5, 0.5, 3.0, -2.0, float("inf"), float("nan"), 1.0]).to(dtype)
    for exponents in ([200, 20, 16, -150, 0, -5, 7, -2000], [-3, 4, 5, -6, 7, 8, -9, 10]):
        for integer in (torch.int64, torch.int32, torch.int16):
            e = torch.tensor(exponents).to(integer)
            check(torch.ldexp, x, e)
            check(lambda a, b: a.clone().ldexp_(b), x, e)
            check(lambda a, b: torch.ldexp(a, b, out=torch.empty_like(a)), x, e)
    check(torch.ldexp, x, torch.tensor(3))
    check(torch.ldexp, x, torch.rand(8))
    check(torch.ldexp, torch.arange(8), torch.arange(8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(512,), (300, 1), (300, 512)], ids=str)
def test_int64_used_many_times(dtype, shape):
    """Integers that are broadcast over a large result, in every place and layout."""
    x = make((300, 512), dtype)
    y = torch.randint(-(2**40), 2**40, shape, generator=torch.Generator().manual_seed(0))
    small = y % 100
    check(torch.add, x, small)
    check(lambda a, b: b - a, x, small)
    check(lambda a, b: torch.where(a > 0, a, b), x, small)
    check(lambda a, b: a.expand(4, 300, 512).contiguous().mul_(b), x, small)
    check(lambda a, b: a.repeat(3, 1)[150:450] * b, x, small)
    check(lambda a, b: torch.eq(a, b), x, small)
    if dtype != torch.float16:
        check(torch.add, x, y)
        check(lambda a, b: a + b[..., 3:4], x, y.expand(300, 512).contiguous())
        check(lambda a, b: a.t() + b, x, y.flatten()[:300])


# Innermost dimensions too short for vectors: a long one behind takes their place, or lanes are few.
@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128])
@pytest.mark.parametrize("short", [2, 3, 4, 7, 8, 15])
def test_short_rows(dtype, short):
    x = make((1300, short), dtype, 1)
    wide = make((1300, short + 1), dtype, 2)
    y = make((short, 1300), dtype, 3)
    check(lambda a: a[:, 1:].clone(), wide)
    check(torch.add, wide[:, 1:], x)
    check(lambda a, b: a.clone()[:, 1:].mul_(b), wide, x)
    check(lambda a, b: a + b.t(), x, y)
    check(lambda a: a.t().contiguous(), y)
    check(lambda a: a.repeat_interleave(3, 1), x)
    check(lambda a, b: a + b[:, :1], x, wide)
    check(lambda a: a.eq(a[:1]), x)
    check(lambda a: a.to(torch.complex64), x)
    cube = make((23, 25, 3, short), dtype, 4)
    check(lambda a: a.permute(3, 1, 2, 0).contiguous(), cube)
    check(lambda a: a.permute(1, 2, 0, 3).contiguous(), cube)
    check(lambda a: a.permute(1, 3, 0, 2).flip(1) + a.permute(1, 3, 0, 2), cube)


@pytest.mark.parametrize("function", ["digamma", "erfinv", "frexp"])
def test_short_rows_of_long_functors(function):
    x = make((1300, 9), torch.float32)[:, 1:].sigmoid()
    expected = getattr(torch, function)(x)
    actual = getattr(torch, function)(x.to("ocl")[:, :])
    if function == "frexp":
        assert_close(actual[1].cpu(), expected[1])
        expected, actual = expected[0], actual[0]
    assert_close(actual.cpu(), expected)
