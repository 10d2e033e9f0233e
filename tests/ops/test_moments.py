"""Variances, standard deviations and vector norms against CPU torch."""

import math

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from tests.layouts import layouts, on_device
from tests.ops.reductions import COMPLEX, FLOATING, SHAPES, call, check, make, tolerance


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("dtype", FLOATING + COMPLEX, ids=str)
def test_moments(name, dtype):
    for shape in SHAPES if dtype == torch.float32 else SHAPES[1:2]:
        for label, x in layouts(make(shape, dtype)):
            for dim in (None, 0, -1, (0, 2)):
                for correction in (0, 1):
                    check(call(name, dim=dim, correction=correction), x, **tolerance(dtype))
    check(call(name, dim=1, keepdim=True), x, **tolerance(dtype))
    check(call(name, dim=1, correction=0.5), x, **tolerance(dtype))


@pytest.mark.parametrize("mean", [0, 1000, 1e5])
def test_moments_are_accurate(mean):
    x = torch.randn(64, 30000) + mean
    exact = x.double()
    for view, reference in ((x, exact), (x.t(), exact.t())):
        for dim in (0, 1, None):
            for op in (torch.var, torch.std):
                assert_close(
                    op(on_device(view), dim=dim).cpu().double(),
                    op(reference, dim=dim),
                    rtol=1e-5,
                    atol=0,
                )
    assert torch.var(torch.full((5000,), 3.7, device="ocl")).item() == 0


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_moments_without_degrees_of_freedom():
    for x in (
        torch.empty(0),
        torch.empty(3, 0),
        torch.ones(1),
        torch.ones(3, 1),
        torch.tensor(2.0),
    ):
        for name in ("var", "std", "var_mean", "std_mean"):
            check(call(name), x)
            check(call(name, dim=-1), x)
            check(call(name, dim=-1, correction=0), x)


def test_moments_errors():
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError, match="floating point and complex"):
            torch.var(torch.ones(3, dtype=torch.int32, device=device))
        with pytest.raises(IndexError):
            torch.std(torch.ones(3, device=device), dim=4)


ORDERS = [0, 0.5, 1, 2, 3, 4.5, -1, -2, float("inf"), -float("inf")]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64], ids=str
)
def test_vector_norm(dtype, order):
    for shape in SHAPES[:2]:
        for label, x in layouts(make(shape, dtype)):
            x = x + (x == 0) if order < 0 else x
            for dim in (None, 0, -1):
                loose = (
                    {"rtol": 2e-2, "atol": 2e-2}
                    if dtype in FLOATING[2:]
                    else {"rtol": 2e-5, "atol": 1e-5}
                )
                check(lambda t, d=dim: torch.linalg.vector_norm(t, order, dim=d), x, **loose)
    check(lambda t: torch.norm(t, order, dim=1, keepdim=True), x, **loose)


def test_vector_norm_special():
    for order in ORDERS:
        if order not in (-1, -2) and abs(order) != float("inf"):
            check(lambda t, o=order: torch.linalg.vector_norm(t, o), torch.empty(0))
        x = torch.tensor([[1.0, float("nan"), 0.0], [0.0, -float("inf"), 2.0], [0.0, 0.0, 0.0]])
        check(lambda t, o=order: torch.linalg.vector_norm(t, o, dim=1), x)
    check(lambda t: torch.linalg.vector_norm(t, dtype=torch.float64), torch.randn(100))
    check(lambda t: torch.norm(t), torch.randn(10, 20))
    check(lambda t: torch.norm(t, 2, 0, dtype=torch.float64), torch.randn(10, 20))


@pytest.mark.parametrize("others", [[1, 2], [], [1] * 99])
@pytest.mark.parametrize("infinite", [torch.inf, -torch.inf])
def test_means_beside_an_infinite_one(others, infinite):
    """The mean is infinite, not NaN as the variance."""
    row = torch.tensor([*others, infinite])
    for function in (torch.var_mean, torch.std_mean):
        expected = function(row, 0, correction=0)
        actual = function(row.to("ocl"), 0, correction=0)
        assert_close([t.cpu() for t in actual], list(expected), equal_nan=True)
    several = torch.randn(3, 50000, device="ocl")
    several[1, 777], several[2, 777], several[2, 778] = torch.inf, torch.inf, -torch.inf
    assert_close(torch.var_mean(several, 1)[1], several.mean(1), equal_nan=True)
    columns = several.t().contiguous()
    assert_close(torch.var_mean(columns, 0)[1], columns.mean(0), equal_nan=True)
    wide = several.repeat(40, 1).t().contiguous()
    assert_close(torch.var_mean(wide, 0)[1], wide.mean(0), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", [100, 500, 1023, 5000, 100000])
def test_variance_beside_an_infinity(length, dtype):
    for infinities in ([torch.inf], [-torch.inf], [torch.inf, -torch.inf], [torch.nan]):
        for at in (0, 3, length // 2, length - 2):
            x = torch.randn(length).to(dtype)
            x[at : at + len(infinities)] = torch.tensor(infinities, dtype=dtype)
            for layout in (x, x.repeat(3, 1), x.repeat(70, 1).t().contiguous()):
                dim = 0 if layout.size(0) == length else 1
                assert torch.var(layout.to("ocl"), dim).isnan().all()
                assert torch.std_mean(layout.to("ocl"), dim)[0].isnan().all()


def test_variance_of_squares_that_overflow():
    wide = torch.randn(4, 1000, dtype=torch.float64) * 1e160
    large = torch.full((2, 4000), 1e308, dtype=torch.float64)
    for x in (wide, large):
        for each, dim in ((x, 1), (x.t().contiguous().repeat(1, 30), 0)):
            expected = torch.var_mean(each, dim)
            assert_close([t.cpu() for t in torch.var_mean(each.to("ocl"), dim)], list(expected))


@pytest.mark.parametrize("length", [300, 4096, 9000])
def test_variance_of_rows_whose_sums_overflow(length):
    """It is 0 of equal elements and infinite of far ones, whatever the elements' sum."""
    x = torch.full((4, length), 3e38)
    x[1] = -1e38
    x[2] = 1e38
    x[2, ::2] = -1e38
    x[3] = 1 / 3
    assert torch.var(x.to("ocl"), 1).tolist() == torch.var(x, 1).tolist() == [0, 0, math.inf, 0]


@pytest.mark.parametrize("scale", [3e18, 1e19])
def test_norms_of_squares_that_overflow(scale):
    """The deviation is infinite: everything becomes 0."""
    x = torch.randn(4, 1000) * scale
    assert_close(
        functional.layer_norm(x.to("ocl"), (1000,)).cpu(), functional.layer_norm(x, (1000,))
    )
    assert_close(functional.group_norm(x.to("ocl"), 2).cpu(), functional.group_norm(x, 2))


@pytest.mark.parametrize("columns", [1, 7, 100, 2100])
@pytest.mark.parametrize("first", [1e4, 1e6])
def test_deviations_from_unlike_first_elements(columns, first):
    """The origin that deviations are taken from is far from the mean: as in sorted data, or beside
    an outlier."""
    x = torch.randn(3000, columns) * 0.5 + 7
    x[:5] += first
    steps = torch.linspace(-first, first, 3000).view(-1, 1) + torch.randn(3000, columns)
    for each in (x, steps):
        here = each.to("ocl")
        for dim in (0, 1):
            rows, layout = (each, here) if dim == 0 else (each.t(), here.t())
            assert_close(torch.var(layout, dim).cpu(), torch.var(rows, dim))
            copied = layout.contiguous()
            assert_close(torch.var(copied, dim).cpu(), torch.var(rows, dim))
        normal = functional.layer_norm(here.t().contiguous(), (3000,)).cpu()
        exact = functional.layer_norm(each.t().double(), (3000,)).float()
        assert_close(normal, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("correction", [-5, 0, 1])
@pytest.mark.parametrize("shape", [(0,), (3, 0)])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variances_of_nothing(shape, correction):
    x = torch.empty(shape)
    for function in (torch.var, torch.std, torch.var_mean, torch.std_mean):
        expected = function(x, -1, correction=correction)
        got = function(x.to("ocl"), -1, correction=correction)
        if isinstance(got, tuple):
            assert_close([t.cpu() for t in got], list(expected), equal_nan=True)
        else:
            assert_close(got.cpu(), expected, equal_nan=True)


@pytest.mark.parametrize("length", [5, 33, 5000])
def test_spread_past_the_squares_range(length):
    """A deviation is a float though its square is none; equal elements have exactly none."""
    x = torch.randn(6, length)
    x[1, 3] = 1e30
    x[2] *= 1e-25
    x[3] = 3.3
    x[4] = 1e4 + torch.arange(length) % 2 * 2**-10
    x[5, ::2], x[5, 1::2] = 1e38, -1e38
    if takes_gpu_kernels():  # they square floats as floats, as CUDA torch does
        x = x[[0, 0, 0, 3]]
    for name in ("std", "var"):
        got = call(name, dim=1)(x.to("ocl")).cpu()
        assert_close(got, call(name, dim=1)(x), rtol=1e-6, atol=0)
        assert not call(name, dim=1)(x[3:4].to("ocl")).any()


@pytest.mark.skipif(takes_gpu_kernels(), reason="GPUs square floats as floats, as CUDA torch does")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(4, 30), (40, 700), (700, 40)], ids=str)
def test_spread_of_the_largest_halves(shape, dtype):
    x = torch.full(shape, 0.88 * torch.finfo(dtype).max).to(dtype)
    x.view(-1)[::2] *= -1
    x[0] *= 0.25
    x[1] = 1e4
    for dim in (0, 1, None):
        for name in ("std", "var"):
            assert_close(call(name, dim=dim)(x.to("ocl")).cpu(), call(name, dim=dim)(x))
    assert_close(torch.std(x.t().to("ocl"), 0).cpu(), torch.std(x, 1))


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_a_gpu():
    """Real numbers with the kernels that GPUs get."""
    run_as_gpu(__file__, "-k", "not complex")
