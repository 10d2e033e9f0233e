"""Many elements along a line whose indices differ, and whole rows, against CPU torch: sizes around
a vector's and a work-item's, operands that lie apart, indices out of range amid others."""

import pytest
import torch

from tests.ops.indexing import ADDABLE, DTYPES, check, sample

COLUMNS = [15, 16, 17, 33, 300, 1100]


def indices(high, *shape, dtype=torch.int64):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(3)).to(dtype)


def orders(rows, columns):
    """Each row a permutation, so that no place is written twice."""
    g = torch.Generator().manual_seed(4)
    return torch.rand(rows, columns, generator=g).argsort(1)


READS = {
    "gather along lines": lambda x, i: x.gather(1, i),
    "gather across lines": lambda x, i: x.gather(0, i % len(x)),
    "turned": lambda x, i: x.mT.gather(0, i.mT),
    "turned index": lambda x, i: x.gather(1, i.mT.contiguous().mT),
    "every other": lambda x, i: x[:, ::2].gather(1, (i // 2)[:, ::2]),
    "columns": lambda x, i: x.index_select(1, i[0]),
    "columns by index": lambda x, i: x[:, i[1]],
    "from the end": lambda x, i: x[:, i[1] - x.size(1)],
    "two indices": lambda x, i: x[torch.arange(len(x), device=x.device)[:, None], i],
    "two long ones": lambda x, i: x[i % len(x), i],
    "taken": lambda x, i: x.take(i),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", READS)
def test_reads(device, name, dtype):
    for columns in COLUMNS:
        x, i = sample(5, columns, dtype=dtype), indices(columns, 5, columns)
        check(device, READS[name], x, i, rtol=0, atol=0)


WRITES = {
    "scatter": lambda x, i, v: x.scatter(1, i, v),
    "scatter turned": lambda x, i, v: x.mT.scatter(0, i.mT, v.mT),
    "scatter a number": lambda x, i, v: x.scatter(1, i[:, :7], 3),
    "scatter some": lambda x, i, v: x.scatter(1, i[:, :-1], v[:, 1:]),
    "scatter with zeros": lambda x, i, v: x.scatter(1, i, v[:, :1].expand_as(v)),
    "copy columns": lambda x, i, v: x.index_copy(1, i[0], v),
    "copy rows": lambda x, i, v: x.index_copy(0, i[0, i[0] < len(x)], v),
    "fill columns": lambda x, i, v: x.index_fill(1, i[0][::3], 2),
    "fill rows": lambda x, i, v: x.index_fill(0, i[0][:1] % len(x), 2),
    "fill rows from the end": lambda x, i, v: x[:, 1:].index_fill(0, i[0][:1] % len(x) - len(x), 2),
    "put rows": lambda x, i, v: x.clone().index_put_((i[0, i[0] < len(x)],), v[1:2]),
    "put all": lambda x, i, v: x.clone().index_put_(
        (torch.arange(len(x), device=x.device)[:, None], i), v
    ),
    "put": lambda x, i, v: x.clone().put_(i[0], v[0]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WRITES)
def test_writes(device, name, dtype):
    for columns in COLUMNS:
        x, v = sample(5, columns, dtype=dtype), sample(5, columns, dtype=dtype)
        check(device, WRITES[name], x, orders(5, columns), v, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex128, torch.bool])
@pytest.mark.parametrize("last", [1, 2, 3, 5, 7, 15])
def test_short_lines(device, last, dtype):
    for rows in (1, 4, 7, 150, 700):
        x, i = sample(rows, last + 2, dtype=dtype), orders(rows, last)
        v = sample(rows, last, dtype=dtype)
        check(device, lambda x, i: x.gather(1, i), x, i)
        check(device, lambda x, i: x[:, :-1].gather(1, i), x, i)
        check(device, lambda x, i: x.mT.gather(0, i.mT), x, i)
        check(device, lambda x, i, v: x.scatter(1, i, v), x, i, v)
        check(device, lambda x, i: x.scatter(1, i, 1), x, i)
    x, i = sample(3, 50, last, dtype=dtype), indices(50, 3, 20, last)
    check(device, lambda x, i: x.gather(1, i), x, i)
    i[2, 19, 0] = 50
    with pytest.raises((IndexError, RuntimeError), match="50"):
        x.to(device).gather(1, i.to(device)).cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float16])
def test_short_indices(device, dtype):
    x, i = sample(5, 70, dtype=dtype), orders(5, 70).int()
    check(device, lambda x, i: x.index_select(1, i[0]), x, i)
    check(device, lambda x, i: x.index_select(1, i[0, ::2]), x, i)
    check(device, lambda x, i: x.index_add(1, i[0], x), x, i)
    check(device, lambda x, i: x.index_copy(1, i[0].long(), x + 1), x, i)


SUMS = {
    "along lines": lambda x, i, v: x.scatter_add(1, i, v),
    "across lines": lambda x, i, v: x.scatter_add(0, i % len(x), v),
    "a turned result": lambda x, i, v: x.mT.contiguous().scatter_add(0, i.mT, v.mT),
    "every other": lambda x, i, v: (
        x.scatter_add(1, i[:, ::2], v[:, 1::2])
        if i.size(1) % 2 == 0
        else x.scatter_add(1, i[:, :-1:2], v[:, 1::2])
    ),
    "columns": lambda x, i, v: x.index_add(1, i[0], v),
    "one value": lambda x, i, v: x.index_put((i % len(x), i), v[0, 0], accumulate=True),
    "two indices": lambda x, i, v: x.index_put((i % len(x), i), v, accumulate=True),
    "two from the end": lambda x, i, v: x.index_put(
        (i % len(x) - len(x), i - x.size(1)), v, accumulate=True
    ),
    "few places": lambda x, i, v: x.reshape(-1)[:3].index_add(0, i.reshape(-1) % 3, v.reshape(-1)),
    "a vector": lambda x, i, v: x.reshape(-1).index_add(
        0, i.reshape(-1) * 7 % x.numel(), v.reshape(-1)
    ),
    "taken": lambda x, i, v: x.clone().put_(i, v, accumulate=True),
}


@pytest.mark.parametrize("dtype", ADDABLE)
@pytest.mark.parametrize("name", SUMS)
def test_sums(device, name, dtype):
    for columns in COLUMNS:
        x, v = sample(5, columns, dtype=dtype), sample(5, columns, dtype=dtype)
        if dtype in (torch.float16, torch.bfloat16):
            x, v = x.sign(), v.sign()  # sums that halves hold
        i = orders(5, columns) if columns > 300 else indices(columns, 5, columns)
        check(device, SUMS[name], x, i, v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize("reduce", ["amax", "amin", "prod"])
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions(device, dim, reduce, dtype):
    x, v = sample(20, 300, dtype=dtype), sample(20, 300, dtype=dtype)
    if dtype.is_floating_point:
        v[3, 4], v[7, 200], x[1, 1] = torch.nan, torch.inf, -torch.inf
    i = indices(20, 20, 300)
    check(device, lambda x, i, v: x.scatter_reduce(dim, i, v, reduce), x, i, v)
    check(device, lambda x, i, v: x.scatter_reduce(dim, i, v, reduce, include_self=False), x, i, v)


def test_sums_are_in_order(device):
    """The last bit tells: large numbers that cancel swallow what was added before."""
    v = torch.randn(3000) * 10.0 ** torch.randint(-6, 6, (3000,))
    i = indices(40, 3000)
    expected = torch.zeros(40)
    for place, value in zip(i.tolist(), v, strict=True):
        expected[place] += value
    for call in (
        lambda i, v: torch.zeros(40, device=i.device).index_add(0, i, v),
        lambda i, v: torch.zeros(2, 40, device=i.device).scatter_add(
            1, i.expand(2, -1), v.expand(2, -1)
        )[1],
        lambda i, v: torch.zeros(40, 20, device=i.device).scatter_add(
            0, i[:, None].expand(-1, 20), v[:, None].expand(-1, 20)
        )[:, 19],
        lambda i, v: (
            torch.zeros(4, 10, device=i.device)
            .index_put((i // 10, i % 10), v, accumulate=True)
            .view(-1)
        ),
    ):
        assert torch.equal(call(i.to(device), v.to(device)).cpu(), expected)


BAD = [
    lambda x, i: x.gather(1, i),
    lambda x, i: x.take(i),
    lambda x, i: x[:, i[0]],
    lambda x, i: x.index_select(1, i[0]),
    lambda x, i: x.scatter(1, i, x + 1),
    lambda x, i: x.scatter(1, i, 5.0),
    lambda x, i: x.index_copy(1, i[0], x),
    lambda x, i: x.index_fill(1, i[0], 1),
    lambda x, i: x.scatter_add(1, i, x + 1),
    lambda x, i: x.scatter_add(0, i, x + 1),
    lambda x, i: x.index_put((i, i), x, accumulate=True),
    lambda x, i: x.view(-1).index_add(0, i.view(-1), x.view(-1)),
]


@pytest.mark.parametrize("call", BAD)
@pytest.mark.parametrize("bad", [1000, -1000, 2**40, -(2**63), 2**32 + 1])
def test_out_of_range_amid_others(device, call, bad):
    x, i = torch.ones(2, 40), torch.zeros(2, 40, dtype=torch.int64)
    i[0, 19] = bad
    with pytest.raises((IndexError, RuntimeError), match=str(bad)):
        call(x.to(device), i.to(device)).cpu()


def test_other_elements_are_read_beside_a_bad_one(device):
    x, i = torch.arange(40.0), torch.arange(40)
    i[20] = 77
    out = torch.full((40,), -1.0, device=device)
    with pytest.raises((IndexError, RuntimeError), match="77"):
        torch.gather(x.to(device), 0, i.to(device), out=out).cpu()
    expected = x.clone()
    expected[20] = -1
    assert torch.equal(out.cpu(), expected)
