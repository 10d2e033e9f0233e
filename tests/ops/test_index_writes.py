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


# ---- More index tensors than a layout with all its dimensions has room for -----------------------


def _many(count, *shape):
    """Index tensors of one shape for dimensions of sizes 2 and 3 by turns, some negative."""
    torch.manual_seed(count)
    return [torch.randint(-2 - k % 2, 2 + k % 2, shape) for k in range(count)]


def _tensor_of(count, *rest, dtype=torch.float32):
    return sample(*(2 + k % 2 for k in range(count)), *rest, dtype=dtype)


@pytest.mark.parametrize("count", [7, 8, 16])
def test_masks_and_tuples_of_many_dimensions(device, count):
    check(device, lambda x: x[x > 0], torch.ones([1] * count))
    x, indices = _tensor_of(min(count, 12)), _many(min(count, 12), 5)
    check(device, lambda x: x[x > 0], x)
    check(device, lambda x: x.masked_select(x > 0), x)
    check(device, lambda x, *i: x[i], x, *indices)
    x = sample(*[1] * count, 4)
    zeros = [torch.zeros(3, dtype=torch.long)] * count
    check(device, lambda x, *i: x[i], x, *zeros)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64])
def test_writes_to_many_dimensions(device, dtype):
    # One place for each position: which of several values stays is not defined.
    places = torch.stack([n.flatten() for n in torch.meshgrid(
        *(torch.arange(2 + k % 2) for k in range(7)), indexing="ij"
    )])  # fmt: skip
    indices = places[:, torch.randperm(places.shape[1])[:20]]
    x = _tensor_of(7, 5, dtype=dtype)
    values = sample(20, 5, dtype=dtype)
    check(device, lambda x, v, *i: x.clone().index_put_(i, v), x, values, *indices)
    check(device, lambda x, v, *i: x.clone().index_put(i, v[0, 0]), x, values, *indices)
    # A target with gaps between its elements.
    wide = _tensor_of(7, 10, dtype=dtype)

    def strided(x, v, *i):
        x = x.clone()
        x[..., ::2].transpose(0, 1).index_put_((i[1], i[0], *i[2:]), v)
        return x

    check(device, strided, wide, values, *indices)
    mask = sample(*x.shape[:7], dtype=torch.bool)

    def masked(x, m):
        x = x.clone()
        x[m] = x[m].flip(0)
        return x

    check(device, masked, x, mask)


@pytest.mark.parametrize("shape", [(50,), (3, 4), (2, 3, 2, 2)])
def test_sums_in_many_dimensions(device, shape):
    x, indices = _tensor_of(7, 3, 2), _many(7, *shape)
    values = sample(*shape, 3, 2)

    def add(x, v, *i):
        return x.clone().index_put_(i, v, accumulate=True)

    check(device, add, x, values, *indices)
    # Strided indices and values: the dimensions don't merge.
    turned = [i.transpose(0, -1).contiguous().transpose(0, -1) for i in indices[:3]] + indices[3:]
    check(device, add, x, values.flip(-1), *turned)
    check(device, lambda x, *i: x[i], x, *turned)

    def gradient(x, v, *i):
        x, v = x.clone().requires_grad_(), v.clone().requires_grad_()
        (x[i] * v).sum().backward()
        return torch.cat([x.grad.flatten(), v.grad.flatten()])

    check(device, gradient, x, values, *turned)


@pytest.mark.parametrize("dimension", [0, 3, 6])
def test_many_indices_out_of_range(device, dimension):
    x = _tensor_of(7).to(device)
    good = _many(7, 5)
    indices = tuple(i.to(device) for i in good)
    indices[dimension][2] = 1000
    before = x.clone()
    for call in (
        lambda: x[indices],
        lambda: x.index_put_(indices, x.new_zeros(())),
        lambda: x.index_put_(indices, x.new_zeros(()), accumulate=True),
    ):
        with pytest.raises(IndexError, match="1000"):
            call().cpu()
    kept = torch.ones(x.shape, dtype=torch.bool)
    kept[tuple(good)] = False
    assert torch.equal(x.cpu()[kept], before.cpu()[kept])


def test_deterministic_mode_keeps_the_last(device):
    i = torch.randint(0, 10, (1000,))
    v = torch.arange(1000.0)
    torch.use_deterministic_algorithms(True)
    try:
        check(device, lambda i, v: torch.zeros(10, device=v.device).index_put_((i,), v), i, v)
        check(device, lambda i, v: torch.zeros(10, device=v.device).scatter_(0, i, v), i, v)
    finally:
        torch.use_deterministic_algorithms(False)
