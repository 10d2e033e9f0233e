"""Sorting and order statistics against CPU torch: values and indices, ties, NaNs, layouts."""

import pytest
import torch

from tests.layouts import layouts, on_device
from tests.refusals import raise_the_same
from torch_ocl import testing

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGER = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
ALL = [*FLOATING, *INTEGER, torch.bool]
#: Lengths around what the implementations switch at.
LENGTHS = [1, 2, 17, 32, 33, 100, 1000, 5000]
#: More than one work-item or work-group sorts a row this long.
LONG = 100003


def make(shape, dtype, seed=0):
    """Many ties; NaNs, infinities and both zeros where the dtype has them."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        low = -60 if dtype.is_signed else 0
        return torch.randint(low, 100, shape, generator=generator).to(dtype)
    x = (torch.randint(-400, 400, shape, generator=generator) / 8).to(dtype)
    for value in (float("nan"), -0.0, 0.0, float("inf"), -float("inf")):
        x[torch.rand(shape, generator=generator) < 0.05] = value
    return x


def assert_same(actual, expected):
    assert actual.device.type == "ocl"
    actual = actual.cpu()
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if expected.is_floating_point():
        signs = [t[~t.isnan()].signbit() for t in (actual, expected)]
        assert torch.equal(*signs), "signs of zeros"
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    else:
        assert torch.equal(actual, expected)


def check_sort(x, dim=-1, descending=False):
    expected = torch.sort(x, dim=dim, descending=descending, stable=True)
    actual = torch.sort(on_device(x), dim=dim, descending=descending, stable=True)
    assert_same(actual.indices, expected.indices)
    assert_same(actual.values, expected.values)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_sort(dtype, descending):
    for n in LENGTHS:
        check_sort(make((3, n), dtype), -1, descending)
    check_sort(make((LONG,), dtype), 0, descending)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8], ids=str)
def test_sort_layouts(dtype):
    for label, x in layouts(make((4, 7, 40), dtype)):
        for dim in (0, 1, 2, -1):
            for descending in (False, True):
                check_sort(x, dim, descending)


def test_sort_of_many_dimensions():
    x = make((2,) * 15, torch.float32).permute(*range(0, 15, 2), *range(1, 15, 2))
    check_sort(x, 3)
    expected = torch.sort(x, dim=5, stable=True)
    out = (
        torch.empty(2**16, device="ocl")[::2].view((2,) * 15),
        torch.empty(0, device="ocl").long(),
    )
    torch.sort(on_device(x), dim=5, stable=True, out=out)
    assert_same(out[0], expected.values)
    assert_same(out[1], expected.indices)


def test_sort_small_shapes():
    for x in (
        torch.tensor(1.5),
        torch.empty(0),
        torch.empty(0, 3),
        torch.empty(3, 0, 2),
        torch.ones(1, 1),
    ):
        for dim in range(max(x.dim(), 1)):
            check_sort(x, dim)
            assert_same(torch.argsort(x.to("ocl"), dim), torch.argsort(x, dim))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.int32], ids=str)
def test_sort_whole_range(dtype):
    if dtype.is_floating_point:
        x = torch.randn(70000, dtype=dtype) * 10.0 ** torch.randint(-300, 300, (70000,)).double()
    else:
        info = torch.iinfo(dtype)
        x = torch.randint(info.min, info.max, (70000,), dtype=dtype)
        x[:2] = torch.tensor([info.max, info.min], dtype=dtype)
    check_sort(x)
    check_sort(x.view(70, 1000), descending=True)
    check_sort(x[:60].view(4, 15))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_sort_unsigned(dtype):
    """CPU torch sorts these only in part."""
    x = torch.randint(0, 60000, (3, 500))
    actual = torch.sort(x.to(dtype).to("ocl"), stable=True)
    expected = torch.sort(x, stable=True)
    assert_same(actual.values.cpu().long().to("ocl"), expected.values)
    assert_same(actual.indices, expected.indices)


def test_subnormals():
    tiny = torch.tensor([1e-45, -1e-45, 0.0, -0.0, 3e-45, -3e-45, 1e-39])
    check_sort(tiny)
    check_sort(tiny, descending=True)


@pytest.mark.parametrize("shape", [(1000000,), (20000, 16), (300, 1000), (1000, 300)], ids=str)
def test_sort_large(shape):
    x = torch.randn(shape)
    check_sort(x)
    check_sort(x, 0, descending=True)
    check_sort(x.to(torch.float16))
    check_sort((x * 1000).long())


def test_sort_out():
    x = make((5, 40), torch.float32)
    expected = torch.sort(x, dim=0, stable=True)
    values = torch.empty(40, 5, device="ocl").t()
    indices = torch.empty(0, dtype=torch.int64, device="ocl")
    torch.sort(x.to("ocl"), dim=0, stable=True, out=(values, indices))
    assert_same(values, expected.values)
    assert_same(indices, expected.indices)
    inplace = x.to("ocl")
    torch.sort(inplace, dim=0, stable=True, out=(inplace, indices))
    assert_same(inplace, expected.values)
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError):
            out = torch.empty(5, 40, device=device), torch.empty(5, 40, device=device).int()
            torch.sort(x.to(device), out=out)


def test_argsort_and_msort():
    x = make((30, 40), torch.float32)
    y = x.to("ocl")
    assert_same(torch.msort(y).abs(), torch.msort(x).abs())  # not stable: zeros' signs
    for dim in (0, 1):
        for descending in (False, True):
            expected = torch.argsort(x, dim=dim, descending=descending, stable=True)
            actual = torch.argsort(y, dim=dim, descending=descending, stable=True)
            assert_same(actual, expected)
            assert_same(torch.argsort(y, dim, descending), expected)


def test_sort_backward():
    x = torch.randn(4, 50)
    grads = []
    for device in ("cpu", "ocl"):
        leaf = x.clone().to(device).requires_grad_()
        values = torch.sort(leaf, dim=0).values
        (values * torch.arange(200.0, device=device).view(4, 50)).sum().backward()
        grads.append(leaf.grad.cpu())
    torch.testing.assert_close(*grads)


def test_errors():
    for device in ("cpu", "ocl"):
        x = torch.randn(3, 4, device=device)
        with pytest.raises(IndexError):
            torch.sort(x, dim=2)
        with pytest.raises((RuntimeError, NotImplementedError)):
            torch.sort(x + 1j)
        with pytest.raises(RuntimeError, match="out of range"):
            torch.topk(x, 5)
        with pytest.raises(RuntimeError, match="out of range"):
            torch.kthvalue(x, 0)
        with pytest.raises(IndexError):
            torch.median(x[:0], dim=0)
        with pytest.raises(IndexError):
            torch.mode(x[:, :0])


# ---- A part of the order ----------------------------------------------------------------------


def check_found(x, dim, keepdim, actual, expected):
    """The values of CPU torch, and indices that point at them: which of equal elements is found is
    not defined."""
    values, indices = actual
    assert_same(values.abs() if values.is_floating_point() else values,
                expected.abs() if expected.is_floating_point() else expected)  # fmt: skip
    assert indices.dtype == torch.int64 and indices.shape == expected.shape
    at = indices.cpu() if keepdim or x.dim() == 0 else indices.cpu().unsqueeze(dim)
    found = x if x.dim() == 0 else x.gather(dim, at)
    found = found if keepdim or x.dim() == 0 else found.squeeze(dim)
    torch.testing.assert_close(values.cpu(), found, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [d for d in ALL if d != torch.bool], ids=str)
def test_topk(dtype):
    for shape, k in [((3, 17), 5), ((3, 17), 17), ((4, 100), 1), ((2, 5000), 60), ((LONG,), 10)]:
        x = make(shape, dtype)
        for dim in range(len(shape)):
            for largest in (True, False):
                size = min(k, shape[dim])
                expected = torch.topk(x, size, dim, largest)
                actual = torch.topk(x.to("ocl"), size, dim, largest)
                check_found(x, dim, True, actual, expected.values)


def test_topk_of_sorted_rows():
    """Every element replaces one that was kept, or none does."""
    x = torch.arange(3000).view(3, 1000)
    for k in (1, 31, 32, 33, 250, 251):
        for largest in (True, False):
            expected = torch.topk(x, k, 1, largest)
            actual = torch.topk(x.to("ocl"), k, 1, largest)
            assert_same(actual.values, expected.values)
            assert_same(actual.indices, expected.indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8])
def test_topk_selects(dtype):
    """Rows that are cut into parts, and whole ones; the first of equal elements win."""
    for rows, n in ((1, 70001), (3, 20000), (40, 9000), (70, 300)):
        x = (torch.randn(rows, n, generator=torch.Generator().manual_seed(n)) * 500).abs().to(dtype)
        if dtype.is_floating_point:
            x[:, 7::1001] = torch.nan
            x[:, 5::801] = -torch.inf
        for k in (1, 32, 33, 50, 512, 513):
            if k > n:
                continue
            for largest in (True, False):
                expected = torch.sort(x, dim=1, descending=largest, stable=True)
                actual = torch.topk(on_device(x), k, 1, largest)
                assert_same(actual.values, expected.values[:, :k])
                assert_same(actual.indices, expected.indices[:, :k])


def test_topk_small_and_out():
    for x, k in [(torch.tensor(2.0), 1), (torch.randn(3, 4), 0), (torch.empty(0, 4), 2)]:
        expected = torch.topk(x, k)
        actual = torch.topk(x.to("ocl"), k)
        assert_same(actual.values, expected.values)
        assert_same(actual.indices, expected.indices)
    x = torch.randn(6, 50)
    expected = torch.topk(x, 7, 0 - 1)
    values, indices = torch.empty(7, 6, device="ocl").t(), torch.empty(0, device="ocl").long()
    torch.topk(on_device(x.t().contiguous().t()), 7, out=(values, indices))
    assert_same(values, expected.values)
    assert_same(indices, expected.indices)
    unsorted = torch.topk(x.to("ocl"), 7, sorted=False)
    assert_same(unsorted.values.sort(descending=True).values, expected.values)


@pytest.mark.parametrize("dtype", [d for d in ALL if d != torch.bool], ids=str)
def test_order_statistics(dtype):
    for shape in [(7,), (5, 40), (3, 33, 4), (2, 3000)]:
        x = make(shape, dtype)
        y = x.to("ocl")
        for dim in range(len(shape)):
            for keepdim in (False, True):
                for k in (1, (shape[dim] + 1) // 2, shape[dim]):
                    expected = torch.kthvalue(x, k, dim, keepdim).values
                    check_found(x, dim, keepdim, torch.kthvalue(y, k, dim, keepdim), expected)
                for function in (torch.median, torch.nanmedian):
                    expected = function(x, dim, keepdim).values
                    check_found(x, dim, keepdim, function(y, dim, keepdim), expected)
        for function in (torch.median, torch.nanmedian):
            assert_same(function(y).abs(), function(x).abs())


@pytest.mark.parametrize("k", [0, 1])
def test_topk_of_a_number(k):
    """It is found even among the first 0."""
    values, indices = torch.tensor(3.5, device="ocl").topk(k)
    assert values.item() == 3.5 and indices.item() == 0


def test_median_of_nans():
    nan = float("nan")
    x = torch.tensor([[1.0, nan, 0.5, nan], [nan, nan, nan, nan], [4.0, 3.0, 2.0, 1.0]])
    for function in (torch.median, torch.nanmedian):
        for view in (x, x.t()):
            for dim in (0, 1):
                actual, expected = function(on_device(view), dim), function(view, dim)
                assert_same(actual.values, expected.values)
                if function is torch.median:  # the first NaN
                    assert_same(actual.indices, expected.indices)
        assert_same(function(x.to("ocl")), function(x))
        empty = torch.empty(0)  # of integers it is a NaN converted, which can be anything
        assert_same(function(empty.to("ocl")), function(empty))
        none = torch.empty(2, 0, dtype=torch.bool)
        assert_same(function(none.to("ocl")), function(none))
        for dtype in (torch.float32, torch.int32):
            empty = torch.empty(0, 3, dtype=dtype, device="ocl")
            assert function(empty, 1).values.shape == (0,)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_mode(dtype):
    for shape in [(9,), (5, 40), (3, 33, 4), (2, 3000), (LONG,)]:
        x = make(shape, dtype)
        if dtype.is_floating_point:
            x = x.nan_to_num(nan=3)  # CPU torch's order is undefined with NaNs
        for dim in range(len(shape)):
            for keepdim in (False, True):
                expected = torch.mode(x, dim, keepdim).values
                check_found(x, dim, keepdim, torch.mode(x.to("ocl"), dim, keepdim), expected)


def test_mode_of_ties_and_runs():
    x = torch.tensor([[2, 2, 1, 1, 3], [5, 4, 3, 2, 1], [7, 7, 7, 7, 7]])
    actual = torch.mode(x.to("ocl"))
    assert actual.values.tolist() == [1, 1, 7] and actual.indices.tolist() == [3, 4, 4]
    long = torch.arange(50000) // 700  # runs longer than a work-item's share
    assert torch.mode(long.to("ocl")).values.item() == 0
    nans = torch.tensor([float("nan"), 2.0, float("nan"), 1.0])
    assert torch.mode(nans.to("ocl")).values.item() == 1


@pytest.mark.parametrize("function", ["median", "nanmedian", "mode", "kthvalue"])
def test_order_statistics_out(function):
    x = make((4, 30, 5), torch.float32).nan_to_num()
    arguments = (3, 1) if function == "kthvalue" else (1,)
    call = getattr(torch, function)
    expected = call(x, *arguments)
    values = torch.empty(5, 4, device="ocl").t()
    indices = torch.empty(4, 5, dtype=torch.int64, device="ocl")
    call(x.to("ocl"), *arguments, out=(values, indices))
    check_found(x, 1, False, (values, indices), expected.values)
    scalar = torch.tensor(3.0)
    arguments = (1, 0) if function == "kthvalue" else (0,)
    actual = call(scalar.to("ocl"), *arguments)
    assert actual.values.item() == 3 and actual.indices.item() == 0


# ---- Implementations --------------------------------------------------------------------------

IMPLEMENTATIONS = ["insertion", "radix_rows", "radix_parts", "bitonic", "radix_wide", "radix_tiles"]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_implementations(implementation):
    """Each one, where it takes the rows: a device's own choice leaves some of them out."""
    with testing.force(sort=implementation):
        for dtype in (torch.float32, torch.int64, torch.float16, torch.uint8, torch.bool):
            for shape in [(3, 1), (70, 5), (5, 32), (6, 300), (3, 2050), (2, 40000)]:
                check_sort(make(shape, dtype))
                check_sort(make(shape, dtype), -1, True)


def test_bools_have_no_order_statistics():
    for call in (
        lambda x: x.median(),
        lambda x: x.median(0),
        lambda x: x.nanmedian(),
        lambda x: x.nanmedian(0),
        lambda x: x.kthvalue(1),
        lambda x: x.topk(1),
    ):
        refused = []
        for device in ("cpu", "ocl"):
            with pytest.raises(RuntimeError) as raised:
                call(torch.tensor([True, False, True]).to(device))
            refused.append(raised.type)
        assert refused[0] is refused[1]


def test_order_of_numbers_without_order():
    for value in (torch.tensor(True), torch.tensor(2 - 1j)):
        for y, e in zip(value.to("ocl").kthvalue(1), value.kthvalue(1), strict=True):
            assert torch.equal(y.cpu(), e)
    truths = torch.tensor([True, False])
    raise_the_same(
        [
            lambda d: truths.to(d).kthvalue(3),
            lambda d: truths[:0].to(d).kthvalue(1),
            lambda d: truths[0].to(d).kthvalue(2),
            lambda d: torch.zeros(0, 3, dtype=torch.complex64, device=d).kthvalue(1, 1),
            lambda d: truths[:0].to(d).median(0),
            lambda d: truths[:0].to(d).nanmedian(0),
        ]
    )


@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
def test_quantiles(function):
    x = make((6, 9), torch.float32)
    for q in (0.3, torch.tensor(0.5), torch.tensor([0.0, 0.25, 1.0]), torch.tensor([])):
        on_ocl = q.to("ocl") if isinstance(q, torch.Tensor) else q
        for dim in (None, 0, -1):
            got = function(x.to("ocl"), on_ocl, dim)
            torch.testing.assert_close(got.cpu(), function(x, q, dim), equal_nan=True)
    y = torch.randn(5, device="ocl").requires_grad_()
    function(y, torch.tensor([0.5], device="ocl")).backward()
    assert y.grad.sum().item() == 1


@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
@pytest.mark.parametrize("q", [-0.1, 1.1, -1.0, float("nan"), -float("inf")])
@pytest.mark.parametrize("size", [1, 5])
def test_quantiles_of_no_share(function, q, size):
    for device in ("cpu", "ocl"):
        x, shares = torch.arange(float(size), device=device), torch.tensor([0.5, q], device=device)
        for out in (None, torch.empty(0, device=device)):
            with pytest.raises(RuntimeError, match="q values must be in the range"):
                function(x, shares, 0, out=out)
                torch.ocl.synchronize()
