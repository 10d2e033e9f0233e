"""Ops that CPU torch has for float8 tensors, beside conversions: to the same bits."""

import pytest
import torch

from tests.refusals import raise_the_same

E8M0 = torch.float8_e8m0fnu
SIGNED = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]
ALL = [*SIGNED, E8M0]


def same(actual, expected):
    """Equal dtypes, strides and values; NaN equals NaN."""
    assert actual.dtype == expected.dtype
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(
        actual.cpu().double(), expected.double(), rtol=0, atol=0, equal_nan=True
    )


def made(shape, dtype, seed=0, scale=1.0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
    return values.to(dtype)


def compare(call, *tensors):
    expected = call(*tensors)
    actual = call(*[tensor.to("ocl") for tensor in tensors])
    if isinstance(expected, torch.Tensor):
        expected, actual = [expected], [actual]
    for one, other in zip(actual, expected, strict=True):
        same(one, other)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_any_all_count(dtype):
    values = made((7, 300), dtype).view(torch.uint8)
    values[2:4] = 0
    values[3, 5] = 0x80 if dtype in SIGNED else 3
    for x in (values.view(dtype), values.view(dtype).t(), values[:, ::3].view(dtype)):
        compare(lambda x: x.any(), x)
        compare(lambda x: x.all(), x)
        compare(lambda x: torch.any(x, out=torch.zeros((), dtype=torch.uint8, device=x.device)), x)
        for dim in (0, 1, -1):
            compare(lambda x, dim=dim: x.any(dim), x)
            compare(lambda x, dim=dim: x.all(dim, keepdim=True), x)
            compare(lambda x, dim=dim: torch.count_nonzero(x, dim=dim), x)
        compare(lambda x: x.all((0, 1)), x)
        compare(lambda x: x[:0].any(), x)
        compare(lambda x: x[:0].all(0), x)
        compare(lambda x: x[0, 0].any(), x)
    compare(lambda x: x.any(), torch.full((3,), float("nan")).to(dtype))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_folds_in_a_wider_dtype(dtype):
    x = torch.arange(-3, 9).view(3, 4).to(dtype)
    for wide in (torch.float32, torch.float64, torch.int64):
        compare(lambda x, wide=wide: x.sum(0, dtype=wide), x)
        compare(lambda x, wide=wide: x.sum(dtype=wide), x)
        compare(lambda x, wide=wide: x[:2].prod(1, dtype=wide), x)
        compare(lambda x, wide=wide: x.cumsum(1, dtype=wide), x)
        compare(lambda x, wide=wide: x.cumprod(0, dtype=wide), x)
    compare(lambda x: x.nansum(dtype=torch.float32), x)
    compare(lambda x: x.mean(1, dtype=torch.float32), x)
    compare(lambda x: torch.sum(x, 0, out=torch.zeros(4, device=x.device)), x)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_folds_of_nothing(dtype):
    x = torch.empty(3, 0).to(dtype)
    for call in (
        lambda x: x.sum(),
        lambda x: x.sum(1),
        lambda x: x.sum(0),
        lambda x: x.prod(),
        lambda x: x.prod(1, keepdim=True),
        lambda x: x.nansum(1),
        lambda x: x.var(1),
        lambda x: torch.std_mean(x, 1),
        lambda x: torch.linalg.vector_norm(x),
        lambda x: x.cumsum(1),
    ):
        compare(call, x)
    if dtype in SIGNED:
        compare(lambda x: torch.linalg.vector_norm(x, 3, dim=1), x)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_numbers_without_dimensions(dtype):
    x = torch.tensor(-1.5).to(dtype)
    for call in (
        lambda x: x.max(0),
        lambda x: x.min(-1, keepdim=True),
        lambda x: torch.aminmax(x, dim=0),
        lambda x: x.topk(1),
        lambda x: x.topk(0),
        lambda x: x.mode(),
        lambda x: x.mode(-1, keepdim=True),
        lambda x: x.sort(),
        lambda x: x.kthvalue(1),
        lambda x: x.cummax(0),
        lambda x: x.cumsum(0),
        lambda x: x.cumprod(0),
    ):
        compare(call, x)


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_products(dtype):
    a, b, c = made((33, 70), dtype), made((70, 40), dtype, 1), made((33, 40), dtype, 2)
    for call in (
        lambda a, b, c: a @ b,
        lambda a, b, c: b.t() @ a.t(),
        lambda a, b, c: a[:, ::2] @ b[::2],
        lambda a, b, c: torch.nn.functional.linear(a, b.t(), c[0]),
        lambda a, b, c: torch.addmm(c, a, b),
        lambda a, b, c: torch.addmm(c[0], a, b, alpha=0.6, beta=0.2),
        lambda a, b, c: torch.addmm(c.new_full(c.shape, float("nan")), a, b, beta=0),
        lambda a, b, c: torch.addmm(c, a, b, alpha=0),
        lambda a, b, c: torch.addbmm(c, a[None], b[None]),
        lambda a, b, c: torch.mm(a, b, out=torch.zeros_like(c)),
        lambda a, b, c: c.clone().addmm_(a, b),
        lambda a, b, c: a[:0] @ b,
        lambda a, b, c: torch.linalg.multi_dot([a, b, c.t()]),
        lambda a, b, c: torch.linalg.matrix_power(c[:, :33], 3),
        lambda a, b, c: (a * a.new_full((33, 70), 8.0)) @ (b * b.new_full((70, 40), 8.0)),
    ):
        compare(call, a, b, c)
    missing = a.clone().view(torch.uint8)
    missing[3, 4] = 0x80 if "uz" in str(dtype) else 0x7F
    compare(torch.mm, missing.view(dtype), b)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_products_over_nothing(dtype):
    a, b, c = made((3, 0), dtype), made((0, 4), dtype), made((3, 4), dtype)
    compare(torch.mm, a, b)
    compare(lambda a, b: torch.bmm(a[None], b[None]), a, b)
    compare(torch.addmm, c, a, b)
    compare(lambda c, a, b: torch.addmm(c, a, b, beta=0.3), c, a, b)


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
@pytest.mark.parametrize("columns", [1, 5, 40])
def test_accumulating_index_put(dtype, columns):
    """Every sum is rounded, in the order of the indices."""
    index = torch.tensor([1, 1, 1, 0, 2, 1, 2, 1, 1])
    start, values = made((4, columns), dtype), made((9, columns), dtype, 1, scale=4)

    def put(start, index, values):
        return start.clone().index_put_((index,), values, accumulate=True)

    compare(put, start, index, values)
    compare(put, start[:, 0].contiguous(), index, values[:, 0].contiguous())
    columns_of = start.t().contiguous().t()
    compare(put, columns_of, index, values)
    compare(put, start, index[:0], values[:0])
    large = torch.full((4, columns), 240.0).to(dtype)
    compare(put, large, index, large[:1].expand(9, columns))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_index_reduce_of_slices(dtype):
    index = torch.tensor([1, 1, 1, 0, 2, 1])
    start, source = made((3, 5), dtype), made((6, 5), dtype, 1)
    compare(lambda x, i, s: x.clone().index_reduce_(0, i, s, "prod"), start, index, source)
    compare(lambda x, i, s: x.t().clone().index_reduce_(1, i, s.t(), "prod"), start, index, source)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_deterministic_index_put(dtype):
    """Moves bits, also those of NaN."""
    index, values = torch.tensor([3, 1, 3]), torch.tensor([255, 128, 127], dtype=torch.uint8)
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.zeros(5, dtype=torch.uint8, device="ocl").view(dtype)
        x[index.to("ocl")] = values.to("ocl").view(dtype)
    finally:
        torch.use_deterministic_algorithms(False)
    assert x.cpu().view(torch.uint8).tolist() == [0, 128, 0, 127, 0]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_sequences_of_one(dtype):
    same(
        torch.logspace(2, 5, 1, 2.0, dtype=dtype, device="ocl"),
        torch.logspace(2, 5, 1, 2.0, dtype=dtype),
    )
    same(torch.linspace(2, 5, 1, dtype=dtype, device="ocl"), torch.linspace(2, 5, 1, dtype=dtype))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_refusals(dtype):
    def x(device, *shape):
        return torch.ones(*shape, device=device).to(dtype)

    def index(device):
        return torch.tensor([1, 0], device=device)

    raise_the_same(
        [
            lambda d: torch.bmm(x(d, 2, 3, 3), x(d, 2, 3, 3)),
            lambda d: torch.mv(x(d, 3, 3), x(d, 3)),
            lambda d: torch.dot(x(d, 3), x(d, 3)),
            lambda d: x(d, 3).sum(0),
            lambda d: x(d, 3).mean(),
            lambda d: x(d, 3).prod(),
            lambda d: x(d, 3).std(),
            lambda d: x(d, 2, 3).var(0),
            lambda d: x(d, 3).amax(0),
            lambda d: x(d, 3).argmax(),
            lambda d: x(d, 3).cumsum(0),
            lambda d: x(d, 3).topk(1),
            lambda d: x(d, 3).mode(),
            lambda d: torch.tensor(1.0, device=d).to(dtype).logcumsumexp(0),
            lambda d: torch.count_nonzero(x(d, 3)),
            lambda d: x(d, 3).nonzero(),
            lambda d: x(d, 3).index_add_(0, index(d), x(d, 2)),
            lambda d: x(d, 3).scatter_add_(0, index(d), x(d, 2)),
            lambda d: x(d, 3).put_(index(d), x(d, 2), accumulate=True),
            lambda d: x(d, 3).index_reduce_(0, index(d), x(d, 2), "prod"),
            lambda d: x(d, 3, 3).index_reduce_(0, index(d), x(d, 2, 3), "amax"),
            lambda d: x(d, 3)[:0].exp(),
            lambda d: x(d, 3) * 2,
            lambda d: torch.linalg.vector_norm(x(d, 3)),
        ]
    )
