"""searchsorted, bucketize, bincount, histograms and checks on the device, against CPU torch."""

import pytest
import torch
from torch.testing import assert_close

from tests.refusals import raise_the_same

ORDERED = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
]
INTEGER = ORDERED[4:]


def to_device(value):
    if isinstance(value, list):
        return [to_device(v) for v in value]
    return value.to("ocl") if isinstance(value, torch.Tensor) else value


def to_cpu(result):
    return result.cpu() if isinstance(result, torch.Tensor) else [to_cpu(r) for r in result]


def check(op, *args, tolerances=None, **kwargs):
    """`op` gives on the device what it gives on the CPU."""
    expected = op(*args, **kwargs)
    expected = expected if isinstance(expected, torch.Tensor) else to_cpu(expected)
    actual = op(*map(to_device, args), **{k: to_device(v) for k, v in kwargs.items()})
    assert_close(to_cpu(actual), expected, **(tolerances or {}))


def check_error(op, *args, **kwargs):
    """The device refuses what the CPU refuses, with the same kind of error."""
    with pytest.raises(Exception) as expected:
        op(*args, **kwargs)
    with pytest.raises(expected.type):
        op(*map(to_device, args), **{k: to_device(v) for k, v in kwargs.items()})
        torch.ocl.synchronize()


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ORDERED, ids=str)
def test_searchsorted(dtype, right):
    sequence = torch.randint(0, 50, (40,)).sort().values.to(dtype)
    values = torch.randint(0, 60, (7, 9)).to(dtype)
    check(torch.searchsorted, sequence, values, right=right)
    check(torch.searchsorted, sequence, values, right=right, out_int32=True)
    check(torch.bucketize, values, sequence, right=right)
    rows = torch.randint(0, 50, (7, 40)).sort(-1).values.to(dtype)
    check(torch.searchsorted, rows, values, side="right" if right else "left")


@pytest.mark.filterwarnings("ignore:.*non-contiguous")
def test_searchsorted_with_sorter():
    sequence = torch.randn(3, 5, 30)
    sorter = sequence.argsort(-1)
    values = torch.randn(3, 5, 11)
    check(torch.searchsorted, sequence, values, sorter=sorter)
    check(torch.searchsorted, sequence, values, sorter=sorter, side="right")
    transposed = sequence.transpose(0, 1)
    check(torch.searchsorted, transposed, values.transpose(0, 1), sorter=sorter.transpose(0, 1))
    check_error(torch.searchsorted, sequence, values, sorter=sorter + 1)
    check_error(torch.searchsorted, sequence, values, sorter=sorter.int())


def test_searchsorted_special():
    nan, inf = float("nan"), float("inf")
    sequence = torch.tensor([-inf, -1.0, 0.0, 0.0, 2.0, inf, nan])
    values = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.5, 3.0])
    for right in (False, True):
        check(torch.searchsorted, sequence, values, right=right)
        check(torch.searchsorted, sequence, 0.0, right=right)
        check(torch.searchsorted, sequence, torch.tensor(0.5), right=right)
        check(torch.bucketize, 1.5, sequence, right=right)
        check(torch.searchsorted, torch.empty(0), values, right=right)
    check(torch.searchsorted, sequence, torch.empty(0, 3))
    check(torch.searchsorted, torch.arange(5), torch.tensor([0.5, 3.0, 9.0]))
    check(torch.searchsorted, torch.arange(5.0, dtype=torch.float64), torch.arange(0, 4, 2))
    large = torch.tensor([2**53, 2**53 + 1, 2**53 + 2])
    check(torch.searchsorted, large, large)


def test_searchsorted_out():
    sequence, values = torch.arange(10.0), torch.rand(4, 6) * 10
    expected = torch.searchsorted(sequence, values)
    out = torch.empty(0, dtype=torch.int64, device="ocl")
    torch.searchsorted(sequence.to("ocl"), values.to("ocl"), out=out)
    assert_close(out.cpu(), expected)
    strided = torch.empty(6, 4, dtype=torch.int64, device="ocl").t()
    torch.bucketize(values.to("ocl"), sequence.to("ocl"), out=strided)
    assert_close(strided.cpu(), expected)
    scalar = torch.empty((), dtype=torch.int32, device="ocl")
    torch.searchsorted(sequence.to("ocl"), 4.5, out_int32=True, out=scalar)
    assert scalar.item() == 5


def test_searchsorted_errors():
    sequence, values = torch.arange(5.0), torch.rand(3, 4)
    check_error(torch.searchsorted, sequence, values, side="middle")
    check_error(torch.searchsorted, sequence, values, side="left", right=True)
    check_error(torch.searchsorted, torch.rand(2, 5), values)
    check_error(torch.bucketize, values, torch.rand(2, 5))
    with pytest.raises(RuntimeError, match="same device"):
        torch.searchsorted(sequence.to("ocl"), values)


@pytest.mark.parametrize("dtype", INTEGER, ids=str)
def test_bincount(dtype):
    x = torch.randint(0, 100, (5000,)).to(dtype)
    check(torch.bincount, x)
    check(torch.bincount, x, minlength=200)
    check(torch.bincount, x[::3], minlength=2)
    for weight in (torch.float32, torch.float64, torch.int32, torch.float16):
        check(torch.bincount, x, torch.randn(5000).to(weight))


def test_bincount_sizes():
    check(torch.bincount, torch.empty(0, dtype=torch.int64))
    check(torch.bincount, torch.empty(0, dtype=torch.int64), minlength=4)
    check(torch.bincount, torch.tensor([3]))
    check(torch.bincount, torch.randint(0, 100_000, (200_003,)))
    check(torch.bincount, torch.randint(0, 5, (1_000_003,)))


@pytest.mark.parametrize("n", [4095, 8192, 20003, 200_003])
def test_bincount_of_many_weights(n):
    for bins in (1, 7, 1000, 30000):
        x = torch.randint(0, bins, (n,))
        check(torch.bincount, x, torch.randint(0, 4, (n,)).float())
        check(torch.bincount, x[::2].int(), torch.randn(n)[::2].double())
    weights = torch.ones(n)
    weights[5], weights[n // 2], weights[-1] = float("nan"), float("inf"), -float("inf")
    check(torch.bincount, torch.arange(n) % 5, weights, tolerances={"equal_nan": True})


def test_bincount_errors():
    check_error(torch.bincount, torch.tensor([1, -1]))
    check_error(torch.bincount, torch.ones(2, 2, dtype=torch.int64))
    check_error(torch.bincount, torch.tensor([1, 2]), minlength=-1)
    check_error(torch.bincount, torch.tensor([1, 2]), torch.ones(3))
    check_error(torch.bincount, torch.tensor([1, 2**63 - 1]))
    check_error(torch.bincount, torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histc(dtype):
    # Sixteenths: which bin they are in does not depend on rounding.
    x = torch.randint(-64, 64, (3000,)).to(dtype) / 16
    for limits in ({}, {"min": -2, "max": 2}, {"min": 1, "max": 1}):
        for bins in (1, 16, 128):
            check(torch.histc, x, bins, **limits)
    x[3], x[7] = float("nan"), float("inf")
    check(torch.histc, x.view(30, 100).t(), 16, -4, 4)
    check(torch.histc, torch.empty(0, dtype=dtype), 4)
    check(torch.histc, torch.full((5,), 3.0, dtype=dtype), 4)
    check_error(torch.histc, x, 4)
    check_error(torch.histc, x, 0, -1, 1)
    check_error(torch.histc, x, 4, 2, 1)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_histc_of_integers(dtype):
    """The counts of the same numbers as floats; CPU torch has none."""
    x = torch.randint(0, 120, (30, 70), dtype=dtype)
    for bins, low, high in ((120, 0, 119), (8, 0, 119), (7, 3, 50), (5, 0, 0)):
        counts = torch.histc(x.to("ocl"), bins, low, high)
        assert counts.dtype == dtype
        expected = torch.histc(x.double(), bins, low, high)
        torch.testing.assert_close(counts.cpu(), expected.to(dtype))
        out = torch.empty(bins, dtype=dtype, device="ocl")
        torch.testing.assert_close(torch.histc(x.to("ocl"), bins, low, high, out=out), counts)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(density, weighted):
    x = torch.randint(-64, 64, (50, 40)) / 16
    weight = {"weight": torch.rand(50, 40)} if weighted else {}
    close = {"tolerances": {"rtol": 1e-5, "atol": 1e-5}}
    edges = torch.tensor([-3.0, -1.0, 0.0, 0.25, 2.0, 3.5])
    check(torch.histogram, x, edges, density=density, **weight, **close)
    check(torch.histogram, x, 16, density=density, **weight, **close)
    check(torch.histogram, x, 16, range=(-2.0, 2.0), density=density, **weight, **close)
    points = torch.randint(-64, 64, (500, 2)) / 16
    weight = {"weight": torch.rand(500)} if weighted else {}
    check(torch.histogramdd, points, [8, 4], density=density, **weight, **close)
    check(torch.histogramdd, points, [edges, edges[1:]], density=density, **weight, **close)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_histograms_of_halves_need_a_range(dtype):
    x = torch.randn(50).to(dtype)
    raise_the_same([lambda device: torch.histogram(x.to(device), 4)])
    got = torch.histogram(x.to("ocl"), 4, range=(-1, 1))
    expected = torch.histogram(x, 4, range=(-1, 1))
    assert torch.equal(got.hist.cpu(), expected.hist)
    assert torch.equal(got.bin_edges.cpu(), expected.bin_edges)


def test_histogram_out():
    x = torch.randint(-64, 64, (500,)) / 16
    expected = torch.histogram(x, 8)
    hist, edges = torch.empty(0, device="ocl"), torch.empty(0, device="ocl")
    torch.histogram(x.to("ocl"), 8, out=(hist, edges))
    assert_close((hist.cpu(), edges.cpu()), tuple(expected))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64, torch.complex64])
def test_assert_async(dtype):
    torch._assert_async(torch.ones((), dtype=dtype, device="ocl"))
    torch._assert_async(torch.ones(1, 1, dtype=dtype, device="ocl"), "fine")
    torch.ocl.synchronize()
    torch._assert_async(torch.zeros((), dtype=dtype, device="ocl"))
    with pytest.raises(RuntimeError, match="nonzero value"):
        torch.ocl.synchronize()
    torch._assert_async(torch.zeros((), dtype=dtype, device="ocl"), "the loss became zero")
    torch._assert_async(torch.zeros((), dtype=dtype, device="ocl"), "a later failure")
    with pytest.raises(RuntimeError, match="the loss became zero"):
        torch.ones(3, device="ocl").cpu()
    torch.ocl.synchronize()  # reported once


def test_assert_async_sizes():
    check_error(torch._assert_async, torch.ones(2))
    check_error(torch._assert_async, torch.ones(0))


def test_functional_assert_async():
    token = torch.ones(2, device="ocl")
    passed = torch.ones((), device="ocl")
    result = torch.ops.aten._functional_assert_async.msg(passed, "no", token)
    assert_close(result.cpu(), token.cpu())
    torch.ops.aten._functional_assert_async.msg(passed - 1, "it is zero", token)
    with pytest.raises(RuntimeError, match="it is zero"):
        torch.ocl.synchronize()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_repeat_interleave(dtype):
    repeats = torch.tensor([2, 0, 3, 1], dtype=dtype)
    x = torch.randn(4, 3)
    check(torch.repeat_interleave, repeats)
    check(torch.repeat_interleave, x, repeats, dim=0)
    check(torch.repeat_interleave, x, repeats, dim=0, output_size=6)
    check(torch.repeat_interleave, x, 3, dim=1)
    check(torch.repeat_interleave, x, 2)
    check(torch.repeat_interleave, torch.zeros(5, dtype=dtype))
    check_error(torch.repeat_interleave, torch.tensor([1, -1], dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.uint8, torch.bool], ids=str)
def test_repeats_of_other_dtypes(dtype):
    repeats = torch.tensor([1, 0, 1]).to(dtype)
    check_error(torch.repeat_interleave, repeats)
    check_error(torch.repeat_interleave, repeats[0])
    check_error(torch.repeat_interleave, torch.randn(3, 2), repeats, dim=0)


@pytest.mark.parametrize("size", [0, 5, 7, -1])
def test_repeat_interleave_of_another_size_is_refused(size):
    repeats = torch.tensor([1, 2, 3])
    check_error(torch.repeat_interleave, torch.arange(3), repeats, output_size=size)
    check_error(torch.repeat_interleave, repeats, output_size=size)
    check(torch.repeat_interleave, repeats, output_size=6)


def test_multinomial():
    weights = torch.tensor([[0.0, 1.0, 3.0, 0.0], [2.0, 0.0, 0.0, 2.0]], device="ocl")
    torch.manual_seed(3)
    samples = torch.multinomial(weights, 20000, replacement=True)
    counts = torch.stack([row.bincount(minlength=4) for row in samples]).cpu() / 20000
    assert_close(counts, (weights / weights.sum(1, keepdim=True)).cpu(), rtol=0, atol=0.02)
    torch.manual_seed(3)
    assert torch.equal(torch.multinomial(weights, 20000, replacement=True), samples)


@pytest.mark.parametrize("shape", [(6,), (3, 5), (2, 1000), (70, 1000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_multinomial_without_replacement(shape, dtype):
    torch.manual_seed(4)
    weights = torch.rand(shape).add(0.1).to(dtype)
    weights[..., ::2] = 0
    rows = weights.to("ocl")
    for x in (rows, rows.flip(-1).t().contiguous().t() if rows.dim() == 2 else rows.flip(-1)):
        one = torch.multinomial(x, 1)
        assert one.shape == (*shape[:-1], 1) and one.dtype == torch.int64
        assert bool((x.gather(-1, one) > 0).all())
        count = (shape[-1]) // 2
        several = torch.multinomial(x, count)
        assert several.shape == (*shape[:-1], count)
        assert bool((x.gather(-1, several) > 0).all())
        assert bool((several.sort(-1)[0].diff(dim=-1) > 0).all())
    out = torch.empty(*shape[:-1], 2, dtype=torch.int64, device="ocl")[..., ::2]
    torch.multinomial(rows, 1, out=out)
    assert bool((rows.gather(-1, out) > 0).all())


def test_multinomial_is_two_launches_and_follows_the_seed():
    weights = torch.rand(4, 9, device="ocl")
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        torch.ocl.reset_launch_count()
        draws.append(torch.multinomial(weights, 1))
        assert torch.ocl.launch_count() == 2
    assert torch.equal(*draws)
    torch.manual_seed(5)
    times = torch.empty_like(weights).exponential_()
    assert torch.equal(draws[0], (weights / times).argmax(1, keepdim=True))


def test_multinomial_in_a_graph():
    weights = torch.tensor([0.0, 0.0, 1.0, 0.0], device="ocl")
    torch.multinomial(weights, 1)
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        drawn = torch.multinomial(weights, 1)
    weights.copy_(torch.tensor([0.0, 2.0, 0.0, 0.0]))
    graph.replay()
    assert drawn.item() == 1
    weights.zero_()
    graph.replay()
    with pytest.raises(RuntimeError, match="sum of probabilities"):
        torch.ocl.synchronize()


@pytest.mark.parametrize(
    "dtype, end",
    [
        (torch.float16, 6e4), (torch.bfloat16, 3e38), (torch.float32, 3e38),
        (torch.float64, 1.5e308), (torch.float16, 1e5), (torch.float32, 1e300),
    ],
)  # fmt: skip
def test_ranges_that_overflow(dtype, end):
    """The edges are no numbers then, as on the CPU, or the bounds are refused."""
    x = torch.tensor([-2.0, 0.0, 1.0, 5e4]).to(dtype)

    def same(call):
        try:
            expected = call("cpu")
        except RuntimeError as error:
            with pytest.raises(type(error)):
                call("ocl")
            return
        for one, other in zip(call("ocl"), expected, strict=True):
            assert_close(one.cpu(), other, equal_nan=True)

    for bins in (1, 4, 7):
        same(lambda d, n=bins: [torch.histc(x.to(d), n, -end, end)])
        same(lambda d, n=bins: torch.histogram(x.to(d), n, range=(-end, end)))
        same(lambda d, n=bins: [torch.linspace(-end, end, n + 1, dtype=dtype, device=d)])


def test_points_whose_bin_overflows():
    """Large numbers are multiplied by the number of bins: CPU torch counts in the wrong bin."""
    x = torch.tensor([0.0, 1.0, 2e38, 3e38], device="ocl")
    counts, _ = torch.histogram(x, 4, range=(0.0, 3e38))
    assert counts.tolist() == [2, 0, 1, 1]
