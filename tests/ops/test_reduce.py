"""Reductions against CPU torch: dtypes, dimensions, layouts, empty and special inputs, errors."""

import functools
import warnings

import pytest
import torch
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu
from tests.layouts import layouts
from tests.ops.reductions import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATING,
    INTEGER,
    REAL,
    SHAPES,
    call,
    check,
    make,
    tolerance,
)
from tests.refusals import raise_the_same

DIMS = [None, 0, 1, -1, (0, 2), (1,), (-1, 0), (0, 1, 2), ()]


FOLDS = {
    "sum": ALL,
    "nansum": FLOATING + INTEGER + BOOL,
    "mean": FLOATING + COMPLEX,
    "amax": REAL,
    "amin": REAL,
    "all": ALL,
    "any": ALL,
    "count_nonzero": ALL,
}


@pytest.mark.parametrize("columns", [63, 64, 100, 1023, 1024, 1030, 2100])
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 130, 300])
def test_columns(rows, columns):
    """Tiles of columns whose last one overlaps, and rows taken several at a time."""
    x = torch.randn(rows, columns)
    for name in ("sum", "amax", "argmin", "logsumexp", "var", "std_mean"):
        arguments = {"correction": 0} if name in ("var", "std_mean") else {}
        check(call(name, dim=0, **arguments), x, **tolerance(torch.float32))
    check(call("prod", dim=0), x.long() + 1)
    check(call("sum", dim=1), torch.randn(3, rows, columns), **tolerance(torch.float32))


@pytest.mark.parametrize("name, dtype", [(n, d) for n in FOLDS for d in FOLDS[n]], ids=str)
def test_folds(name, dtype):
    x = make(SHAPES[1], dtype)
    low_precision = dtype in (torch.float16, torch.bfloat16)
    wide = torch.float32 if low_precision and name in ("sum", "nansum", "mean") else None
    # The programs to build are the slow part: all dimensions for one dtype only.
    for dim in DIMS if dtype == torch.float32 else (None, 1, (-1, 0)):
        arguments = {"dim": dim} if dim is not None else {}
        check(call(name, **arguments), x, wide, **tolerance(dtype))
        if name != "count_nonzero" and arguments:
            check(call(name, keepdim=True, **arguments), x, wide, **tolerance(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("name", ["sum", "amax", "any", "count_nonzero"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fold_layouts(name, dtype, shape):
    # CPU torch adds up a dimension of stride 0 one by one, in float32 too: it may be the worse.
    wide = torch.float64 if name == "sum" and dtype.is_floating_point else None
    for label, x in layouts(make(shape, dtype)):
        for dim in DIMS[1:-1]:
            check(
                call(name, dim=dim),
                x,
                wide,
                **tolerance(dtype),
                msg=lambda m, a=(label, dim): f"{a}: {m}",
            )


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_prod(dtype):
    x = make((4, 5, 6), dtype, low=1, high=3)
    loose = {"rtol": 5e-2, "atol": 1e-2} if dtype in (torch.float16, torch.bfloat16) else {}
    for label, view in layouts(x):
        for dim in (0, 1, -1):
            check(call("prod", dim=dim), view, **loose)
    small = make((3, 4), dtype, low=1, high=3)
    check(call("prod"), small, **loose)
    check(call("prod", dim=0, keepdim=True), small, **loose)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.float64),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.int32, torch.float32),
        (torch.int32, torch.int32),
        (torch.int64, torch.int8),
        (torch.bool, torch.float32),
        (torch.bool, torch.bool),
        (torch.float32, torch.complex64),
    ],
    ids=str,
)
def test_dtype_argument(source, target):
    x = make((5, 70), source)
    for name in ("sum", "prod") if target != torch.bool else ("sum",):
        check(call(name, dim=1, dtype=target), x, **tolerance(target))
        check(call(name, dtype=target), x[:, :3], **tolerance(target))
    if target.is_floating_point or target.is_complex:
        check(call("mean", dim=0, dtype=target), x, **tolerance(target))


def test_sum_of_many_bools_as_bool():
    check(call("sum", dtype=torch.bool), torch.ones(512, dtype=torch.bool))


def test_int64_is_exact():
    x = torch.tensor([[2**60 + 1, 3], [-(2**59), 5], [2**53 + 1, -1]])
    for name in ("sum", "amax", "amin", "prod"):
        for dim in (0, 1):
            check(call(name, dim=dim), x)
    check(torch.max, x)
    check(torch.argmax, x)
    check(call("sum"), torch.full((100000,), 2**50 + 1))


EMPTY_FOLDS = ["sum", "prod", "nansum", "all", "any", "count_nonzero"]
EMPTY_DTYPES = [torch.float32, torch.int64, torch.bool]


@pytest.mark.parametrize(
    "name, dtype",
    [("mean", torch.float32), *((n, d) for n in EMPTY_FOLDS for d in EMPTY_DTYPES)],
    ids=str,
)
def test_empty(name, dtype):
    for shape in [(0,), (0, 3), (3, 0), (2, 0, 4)]:
        x = torch.empty(shape, dtype=dtype)
        check(call(name), x)
        for dim in range(x.dim()):
            check(call(name, dim=dim), x)
            if name != "count_nonzero":
                check(call(name, dim=dim, keepdim=True), x)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "max", "min", "aminmax"])
def test_empty_without_identity(name):
    x = torch.empty(0, 3)
    check(lambda t: getattr(torch, name)(t, dim=1), x)
    for device in ("cpu", "ocl"):
        with pytest.raises((IndexError, RuntimeError)):
            getattr(torch, name)(x.to(device), dim=0)
        with pytest.raises((IndexError, RuntimeError)):
            getattr(torch, name)(x.to(device))


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "amax", "amin", "all", "any", "nansum"])
def test_scalar_tensor(name):
    check(call(name), torch.tensor(1.5))
    check(call(name, dim=0), torch.tensor(1.5))
    check(call(name, dim=-1, keepdim=True), torch.tensor(1.5))


def test_nan_and_infinity():
    nan, inf = float("nan"), float("inf")
    x = torch.randn(6, 40)
    x[0, 3] = nan
    x[1, 5] = inf
    x[2, 7] = -inf
    x[3, 8], x[3, 9] = inf, -inf
    x[4, 0], x[4, 39] = nan, inf
    for name in ("sum", "nansum", "prod", "mean", "amax", "amin", "all", "any", "count_nonzero"):
        for dim in (0, 1):
            check(call(name, dim=dim), x, **tolerance(torch.float32))
        check(call(name), x[1:3] if name == "prod" else x, **tolerance(torch.float32))
    for name in ("max", "min", "argmax", "argmin", "aminmax"):
        for dim in (0, 1):
            check(call(name, dim=dim), x)
        check(call(name), x)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("length", [33, 300, 5000])
def test_extremes_of_what_has_no_sum(length, dtype):
    """Neither infinities of both signs nor large numbers are NaNs, though their sum is one."""
    nan, inf = float("nan"), float("inf")
    x = torch.randn(6, length, dtype=dtype)
    middle = length // 2
    x[0, 3], x[0, middle] = inf, -inf
    x[1, ::2], x[1, 1::2] = torch.finfo(dtype).max, torch.finfo(dtype).min
    x[2, 3], x[2, middle], x[2, -1] = inf, nan, -inf
    x[3] = nan
    x[4] = -inf
    x[5, middle] = nan
    for name in ("amax", "amin", "max", "min", "argmax", "argmin"):
        check(call(name, dim=1), x)
        for row in x:
            check(call(name), row)


POSITIONS = [(n, d) for n in ("max", "min", "aminmax") for d in REAL]
POSITIONS += [(n, d) for n in ("argmax", "argmin") for d in REAL if d != torch.bool]


@pytest.mark.parametrize("name, dtype", POSITIONS, ids=str)
def test_positions(name, dtype):
    """Few distinct values: the first of equal elements must be found."""
    for shape in SHAPES if dtype == torch.float32 else SHAPES[1:2]:
        for label, x in layouts(make(shape, dtype, high=3)):
            check(call(name), x)
            for dim in (0, 1, -1):
                check(call(name, dim=dim), x, msg=lambda m, a=(shape, label, dim): f"{a}: {m}")
                check(call(name, dim=dim, keepdim=True), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.int64], ids=str)
def test_positions_in_long_rows(dtype):
    x = make((2, 100003), dtype, low=-100, high=100)
    for name in ("argmax", "argmin"):
        check(call(name), x)
        for dim in (0, 1):
            check(call(name, dim=dim), x)
            check(call(name, dim=1 - dim), x.t())
    constant = torch.full((70000,), -float("inf"))
    check(torch.argmax, constant)
    check(torch.argmin, -constant)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str
)
def test_positions_block_by_block(dtype):
    """Every block has a new extreme value; equal ones lie in several blocks; NaN in a later one."""
    rising = torch.arange(70001).to(dtype)
    levels = torch.arange(70001).div(20000, rounding_mode="floor").to(dtype)
    rows = [rising, rising.flip(0), levels, levels.flip(0), torch.zeros(70001, dtype=dtype)]
    if dtype.is_floating_point:
        rows.append(rising.clone())
        rows[-1][[33333, 50000]] = float("nan")
        rows.append(torch.full((70001,), -float("inf"), dtype=dtype))
    for row in rows:
        for name in ("argmax", "argmin"):
            check(getattr(torch, name), row)
            check(getattr(torch, name), row[3:])
    check(call("argmax", dim=1), torch.stack(rows))
    check(call("min", dim=1), torch.stack(rows))


@pytest.mark.parametrize("length", [40, 64, 1000, 5000])
def test_the_value_is_that_of_the_position(length):
    """Both zeros are equal, and the first wins."""
    for first in (0.0, -0.0):
        x = torch.full((3, length), -first)
        x[:, 0] = first
        x[1, 1:] = first
        for name in ("max", "min"):
            values, positions = (t.cpu() for t in call(name, dim=1)(x.to("ocl")))
            assert torch.equal(positions, torch.zeros(3, dtype=torch.int64))
            assert torch.equal(values.signbit(), x[:, 0].signbit())


def alias(name, device):
    x = torch.ones(4, 4, device=device)
    out = (x[0], torch.empty(0, dtype=torch.int64, device=device))
    return getattr(torch, name)(x, 0, out=out)


def test_results_over_the_input():
    raise_the_same([functools.partial(alias, name) for name in ("max", "min", "mode")])


def test_logsumexp():
    for label, x in layouts(torch.randn(4, 5, 6)):
        for dim in (0, 1, -1, (0, 2)):
            check(call("logsumexp", dim=dim), x)
    check(call("logsumexp", dim=0), torch.full((3, 4), -float("inf")))


@pytest.mark.parametrize("name", ["sum", "mean", "nansum", "amax", "amin", "any", "all"])
def test_out(name):
    x = torch.randn(4, 5, 6)
    dtype = torch.bool if name in ("any", "all") else torch.float32
    function = getattr(torch, name)
    for keepdim in (False, True):
        expected = function(x, dim=1, keepdim=keepdim)
        out = torch.empty(0, dtype=dtype, device="ocl")
        assert function(x.to("ocl"), dim=1, keepdim=keepdim, out=out) is out
        assert_close(out.cpu(), expected)
        strided = torch.zeros(6, 4, dtype=dtype, device="ocl").t()
        strided = strided.unsqueeze(1) if keepdim else strided
        function(x.to("ocl"), dim=1, keepdim=keepdim, out=strided)
        assert_close(strided.cpu(), expected)


def test_out_of_pairs():
    x = torch.randint(0, 3, (4, 5, 6))
    for name in ("max", "min"):
        expected = getattr(torch, name)(x, dim=1)
        values = torch.empty(6, 4, dtype=torch.int64, device="ocl").t()
        indices = torch.empty(4, 6, dtype=torch.int64, device="ocl")
        getattr(torch, name)(x.to("ocl"), dim=1, out=(values, indices))
        assert_close(values.cpu(), expected.values)
        assert_close(indices.cpu(), expected.indices)
    low, high = (
        torch.empty(0, dtype=torch.int64, device="ocl"),
        torch.empty(0, dtype=torch.int64, device="ocl"),
    )
    torch.aminmax(x.to("ocl"), dim=0, out=(low, high))
    assert_close((low.cpu(), high.cpu()), tuple(torch.aminmax(x, dim=0)))
    out = torch.empty(3, dtype=torch.float32, device="ocl")
    torch.argmax(x.to("ocl"), dim=0, out=(index := torch.empty(0, dtype=torch.int64, device="ocl")))
    assert_close(index.cpu(), torch.argmax(x, dim=0))
    torch.var(torch.arange(12.0, device="ocl").view(3, 4), dim=1, out=out)
    assert_close(out.cpu(), torch.var(torch.arange(12.0).view(3, 4), dim=1))


@pytest.mark.parametrize(
    "shape",
    [
        (1 << 20,),
        (1024, 1024),
        (3, 400000),
        (400000, 3),
        (17, 1000, 33),
        (5, 257, 300),
        (2000, 1, 300),
    ],
    ids=str,
)
def test_large(shape):
    """Splits over work-items, whole and partial tiles of columns, a second stage."""
    x = torch.randint(-4, 5, shape).float()  # sums are exact, so the order does not matter
    y = torch.rand(shape)
    for dim in [None, *range(len(shape))]:
        arguments = {} if dim is None else {"dim": dim}
        for name in ("sum", "amax", "count_nonzero", "argmax", "any"):
            check(call(name, **arguments), x, rtol=0, atol=0)
        for name in ("mean", "var_mean"):
            check(call(name, **arguments), y, rtol=1e-5, atol=1e-6)


def test_many_dimensions():
    x = make((2,) * 16, torch.float32)
    check(call("sum", dim=tuple(range(0, 16, 2))), x, **tolerance(torch.float32))
    check(call("amax", dim=tuple(range(1, 16, 3))), x.permute(*range(15, -1, -1)))


def test_gradients():
    for op in (
        lambda t: t.sum(1),
        lambda t: t.mean(0),
        lambda t: t.amax(1),
        lambda t: t.max(1).values,
        lambda t: t.var(0),
        lambda t: torch.linalg.vector_norm(t, 3, dim=1),
        lambda t: t.prod(1),
        lambda t: t.logsumexp(1),
    ):
        x = torch.rand(4, 5) + 0.5
        a = x.clone().requires_grad_()
        b = x.to("ocl").requires_grad_()
        op(a).square().sum().backward()
        op(b).square().sum().backward()
        assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=1e-5)


def test_errors():
    for device in ("cpu", "ocl"):
        x = torch.ones(3, 4, device=device)
        with pytest.raises(IndexError):
            x.sum(2)
        with pytest.raises(RuntimeError, match="appears multiple times"):
            x.sum((0, 0))
        with pytest.raises(RuntimeError):
            torch.mean(x.int())
        with pytest.raises(RuntimeError):
            x.to(torch.complex64).max(0)
        with pytest.raises((RuntimeError, NotImplementedError)):
            x.to(torch.complex64).amax(0)
        with pytest.raises(RuntimeError):
            torch.nansum(x.to(torch.complex64))
        with pytest.raises(RuntimeError):
            torch.max(torch.ones(0, device=device))


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("shape", [(5,), (40,), (3, 40), (40, 3), (7, 300)], ids=str)
def test_complex_to_other_dtypes(dtype, shape):
    """Every place of a vector counts, with zeros in any of them."""
    n = torch.Size(shape).numel()
    whole = torch.arange(n).reshape(shape) + 1j * torch.arange(n).flip(0).reshape(shape)
    whole = whole.to(dtype)
    for place in {0, n // 3, n // 2, n - 1}:
        one = torch.zeros(n, dtype=dtype)
        one[place] = 1j
        for x in (one.view(shape), 1 - one.view(shape).abs().to(dtype)):
            for dim in (None, 0, -1):
                for function in (torch.any, torch.all, torch.count_nonzero):
                    arguments = () if dim is None else (dim,)
                    got = function(x.to("ocl"), *arguments)
                    assert torch.equal(got.cpu(), function(x, *arguments)), (function, dim, place)
    for target in (torch.float32, torch.float64, torch.int64, torch.float16, torch.uint8):
        for dim in (None, 0, -1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the imaginary part is dropped
                want = whole.sum(dim, dtype=target)
                got = whole.to("ocl").sum(dim, dtype=target)
                torch.testing.assert_close(got.cpu(), want)
                if target.is_floating_point:
                    want = whole.mean(dim, dtype=target)
                    got = whole.to("ocl").mean(dim, dtype=target)
                    torch.testing.assert_close(got.cpu(), want)


def test_dtypes_of_out():
    x = torch.tensor([1.0, 2.0, 4.0])
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError, match="can't be cast"):
            torch.mean(x.to(device), 0, out=torch.zeros((), dtype=torch.int64, device=device))
    wide = torch.zeros((), dtype=torch.complex64, device="ocl")
    torch.std(x.to("ocl"), 0, out=wide)
    assert_close(wide.cpu(), torch.std(x, 0).to(torch.complex64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [torch.sum, torch.mean, torch.nansum, torch.prod])
def test_a_dtype_asked_for_is_cast_to_first(function, dtype):
    """As documented: what a half type can't hold is infinite, or rounded, before it is added up."""
    rows = [torch.tensor([1e5, -1e5]), torch.tensor([1e39, 1.0])]
    if function in (torch.sum, torch.prod):
        rows.append(torch.tensor([100001, -100000]))
    for x in rows:
        expected = function(x, 0, dtype=dtype)
        assert_close(function(x.to("ocl"), dtype=dtype).cpu(), expected, equal_nan=True)
        assert_close(function(x.to("ocl"), 0, dtype=dtype).cpu(), expected, equal_nan=True)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_spread_of_steps(step):
    """Elements that are apart are as exact as others. Multiples of a quarter all round one way."""
    for seed in range(5):
        torch.manual_seed(seed)
        x = torch.randint(-8, 9, (5003 * step,)).float() / 4
        found, expected = x.to("ocl")[::step].std().cpu().double(), x[::step].double().std()
        assert abs(found - expected) <= 1e-6 * expected


@pytest.mark.as_gpu
def test_as_a_gpu():
    """Extremes, sums and columns with the kernels that GPUs get."""
    run_as_gpu(__file__, "-k", "positions or extremes or columns or folds or spread")
