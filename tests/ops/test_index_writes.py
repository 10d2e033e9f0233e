"""Writing at indices: index_put, scatter, index_add and the like, against CPU torch."""

import pytest
import torch

from tests.ops.indexing import ADDABLE, DTYPES, check, sample


def put(change):
    def call(x, i, j, v):
        x = x.clone()
        change(x, i, j, v)
        return x

    return call


def _set_one(x, i, j, v):
    x[i] = v[:3]


def _set_apart(x, i, j, v):
    x[i, :, j] = v[:3, :, 0]


def _set_scalar(x, i, j, v):
    x[i, j] = 1


def _set_strided(x, i, j, v):
    x.permute(2, 1, 0)[1:][i, ::2] = v[0, 0, 0]


def _set_mask(x, i, j, v):
    x[x == v[0, 0, 0]] = v[1, 1, 1]


def _set_mask_values(x, i, j, v):
    m = torch.zeros(5, 6, dtype=torch.bool, device=x.device)
    m[i, j] = True
    x[m] = v[:3, 0]


@pytest.mark.parametrize(
    "change", [_set_one, _set_apart, _set_scalar, _set_strided, _set_mask, _set_mask_values]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_index_put(device, change, dtype):
    i, j = torch.tensor([0, 3, -1]), torch.tensor([4, 0, 1])
    check(
        device,
        put(change),
        sample(5, 6, 7, dtype=dtype),
        i,
        j,
        sample(5, 6, 7, dtype=dtype).flip(0),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_put_accumulate(device, dtype):
    x, v = torch.zeros(5, 6, 40, dtype=dtype), sample(4, 6, 40, dtype=dtype)
    i, j = torch.tensor([0, 3, 3, -1]), torch.tensor([4, 0, 0, 1])

    check(device, lambda x, i, v: x.index_put_((i,), v, accumulate=True), x, i, v)
    check(device, lambda x, i, j, v: x.index_put_((i, j), v[:, 0], accumulate=True), x, i, j, v)
    check(
        device, lambda x, i, j, v: x.index_put((i, j, j), v[:, 0, 0], accumulate=True), x, i, j, v
    )
    check(
        device, lambda x, i, v: x[:, :, ::2].index_put((i,), v[:, :, ::2], accumulate=True), x, i, v
    )
    check(device, lambda x, i, v: x.index_put((i,), v[0, 0, 0], accumulate=True), x, i, v)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_writes_along_a_dimension(device, dtype, dim):
    x = sample(6, 6, 20, dtype=dtype)
    i = torch.tensor([5, 0, 2])
    shape = [6, 6, 20]
    shape[dim] = 3
    src = sample(*shape, dtype=dtype)
    one = torch.ones((), dtype=dtype)
    check(device, lambda x, i, s: x.index_copy(dim, i, s), x, i, src)
    check(device, lambda x, i: x.index_fill(dim, i - 1, 1), x, i)
    check(device, lambda x, i, v: x.index_fill(dim, i, v), x, i, one)
    check(device, lambda x, i, s: x.transpose(0, 1).index_copy(dim, i, s.clone()), x, i, src)
    index = torch.stack([torch.randperm(6)[:3] for _ in range(60)]).view(3, 20, 3)
    index = {0: index.permute(2, 0, 1), 1: index.permute(0, 2, 1), 2: index.transpose(1, 1)}[dim]
    index = index[:3, :3, :3].contiguous()
    check(device, lambda x, i, s: x.scatter(dim, i, s), x, index, sample(3, 3, 3, dtype=dtype))
    check(device, lambda x, i: x.scatter(dim, i, 1), x, index)
    check(
        device,
        lambda x, i, s: x.clone().transpose(0, 1).scatter_(dim, i.int(), s.transpose(0, 2)),
        x,
        index,
        sample(3, 3, 3, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", ADDABLE)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_sums_along_a_dimension(device, dtype, dim):
    x = sample(6, 6, 20, dtype=dtype)
    i = torch.tensor([5, 0, 2, 0, 0])
    shape = [6, 6, 20]
    shape[dim] = 5
    src = sample(*shape, dtype=dtype)
    check(device, lambda x, i, s: x.index_add(dim, i, s), x, i, src)
    check(device, lambda x, i, s: x.index_add(dim, i.int(), s, alpha=2), x, i, src)
    check(
        device, lambda x, i, s: x.clone().transpose(0, 1).index_add_(dim, i, s.clone()), x, i, src
    )
    index = torch.randint(0, 6, (4, 5, 6))
    values = sample(4, 5, 6, dtype=dtype)
    check(device, lambda x, i, s: x.scatter_add(dim, i, s), x, index, values)
    check(device, lambda x, i, s: x.scatter(dim, i, s, reduce="add"), x, index, values)
    check(device, lambda x, i: x.scatter(dim, i, 1, reduce="add"), x, index)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8]
)
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_reductions(device, dtype, include_self, reduce):
    x, index, src = (
        sample(6, 20, dtype=dtype),
        torch.randint(0, 6, (9, 18)),
        sample(9, 18, dtype=dtype),
    )
    check(
        device,
        lambda x, i, s: x.scatter_reduce(0, i, s, reduce, include_self=include_self),
        x,
        index,
        src,
    )
    if reduce != "sum":
        i = torch.tensor([5, 0, 2, 0, 0])
        rows = sample(5, 20, dtype=dtype)
        check(
            device,
            lambda x, i, s: x.index_reduce(0, i, s, reduce, include_self=include_self),
            x,
            i,
            rows,
        )


def test_reductions_keep_nan(device):
    nan = float("nan")
    x, src = torch.tensor([1.0, nan, 3.0]), torch.tensor([nan, 1.0, 5.0, 2.0])
    i = torch.tensor([0, 1, 2, 2])
    for reduce in ("amax", "amin"):
        check(device, lambda x, i, s, r=reduce: x.scatter_reduce(0, i, s, r), x, i, src)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_put(device, dtype, accumulate):
    x, i, v = sample(4, 5, dtype=dtype), torch.tensor([0, 19, -2]), sample(3, dtype=dtype)
    check(device, lambda x, i, v: x.clone().put_(i, v, accumulate), x, i, v)
    check(device, lambda x, i, v: x.clone().t().put_(i, v, accumulate), x, i, v)


def test_small_writes(device):
    i = torch.tensor([0])
    check(device, lambda x, i: x.index_add(0, i, x), torch.tensor(2.0), i)
    check(device, lambda x, i: x.scatter(0, i[0], 5.0), torch.tensor(2.0), i)
    check(device, lambda x, i: x.scatter_add(0, i, x.unsqueeze(0)), torch.tensor(2.0), i)
    check(device, lambda x, i: x.index_fill(0, i[:0], 5.0), sample(3), i)
    check(device, lambda x, i: x.index_add(0, i[:0], x[:0]), sample(3, 4), i)
    check(device, lambda x, i: x.index_copy(0, i, x[1:2]), sample(3, 4), i)


def test_many_indices(device):
    torch.manual_seed(0)
    i = torch.randint(0, 1000, (50000,))

    def count(i):
        counts = torch.zeros(1000, dtype=torch.int64, device=i.device)
        return counts.scatter_add_(0, i, torch.ones_like(i))

    check(device, count, i)
    v = torch.randint(-8, 8, (50000, 33)) / 8
    check(device, lambda i, v: torch.zeros(1000, 33, device=v.device).index_add_(0, i, v), i, v)


def test_deterministic_mode_keeps_the_last(device):
    i = torch.randint(0, 10, (1000,))
    v = torch.arange(1000.0)
    torch.use_deterministic_algorithms(True)
    try:
        check(device, lambda i, v: torch.zeros(10, device=v.device).index_put_((i,), v), i, v)
        check(device, lambda i, v: torch.zeros(10, device=v.device).scatter_(0, i, v), i, v)
    finally:
        torch.use_deterministic_algorithms(False)
