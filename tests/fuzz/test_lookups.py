"""Random cases for the engines that move elements by other elements: sort, index, random."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.tensors import (
    DTYPES,
    FLOAT,
    INT,
    REAL,
    broadcastable,
    cases,
    dims_of,
    pair,
    same,
    shapes,
)


@given(st.data())
def test_sort(data):
    shape = data.draw(shapes())
    x = data.draw(pair(shape, data.draw(st.sampled_from(REAL)), special=data.draw(st.booleans())))
    dim, descending = data.draw(dims_of(shape)), data.draw(st.booleans())
    same("sort", lambda t: torch.sort(t, stable=True, dim=dim, descending=descending), x)


@given(st.data())
def test_selection(data):
    """Only values: which of equal elements is found is not defined. Nothing overlaps: the median
    that CPU torch finds in an expanded tensor can be what lies behind it."""
    shape = data.draw(shapes())
    dtype = data.draw(st.sampled_from([*FLOAT, *INT]))
    x = data.draw(pair(shape, dtype, overlapping=False, special=True))
    dim = data.draw(dims_of(shape))
    size = shape[dim] if shape else 1
    k, largest = data.draw(st.integers(0, size + 1)), data.draw(st.booleans())
    function = data.draw(
        st.sampled_from(
            [
                lambda t: torch.topk(t, k, dim, largest)[0],
                lambda t: torch.kthvalue(t, k, dim)[0],
                lambda t: torch.median(t, dim)[0],
                lambda t: torch.nanmedian(t, dim)[0],
            ]
        )
    )
    same("sort", function, x)


@given(st.data())
def test_unique_and_searches(data):
    shape = data.draw(shapes())
    x = data.draw(pair(shape, data.draw(st.sampled_from([*FLOAT, *INT]))))
    same("sort", lambda t: torch.unique(t, return_inverse=True, return_counts=True), x)
    edges = data.draw(pair((data.draw(st.integers(0, 70)),), x[0].dtype))
    right = data.draw(st.booleans())
    same("sort", lambda t, e: torch.searchsorted(e.sort()[0], t, right=right), x, edges)
    same("sort", torch.isin, x, edges)


@st.composite
def positions(draw, shape, size, outside=True):
    """Indices into a dimension of `size`, negative ones too, seldom one that is outside."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    empty = torch.zeros(shape, dtype=torch.int64)
    host = torch.randint(-size, size, shape, generator=generator) if size else empty
    if outside and host.numel() and draw(st.integers(0, 9)) == 0:
        host.view(-1)[0] = draw(st.sampled_from([size, -size - 1, 2**40]))
    return host, host.to("ocl")


@given(st.data())
def test_index(data):
    """Index tensors and whole dimensions in any order, read, written and added to."""
    shape = data.draw(shapes(min_dims=1, max_dims=4))
    common = data.draw(shapes(max_dims=2))
    dtype = data.draw(st.sampled_from(DTYPES))
    x = data.draw(pair(shape, dtype, exact=True))
    indices = []
    for size in shape[: data.draw(st.integers(1, len(shape)))]:
        whole = data.draw(st.integers(0, 2)) == 0
        indices.append(
            None if whole else data.draw(positions(data.draw(broadcastable(common)), size))
        )
    if all(index is None for index in indices):
        return

    def at(side):
        return tuple(slice(None) if index is None else index[side] for index in indices)

    def side_of(t):
        return 0 if t.device.type == "cpu" else 1

    same("index", lambda t: t[at(side_of(t))], x)
    if dtype is not torch.bool:
        target = data.draw(pair(shape, dtype, overlapping=False, exact=True))

        def put(t):
            where = [None if index is None else index[side_of(t)] for index in indices]
            one = torch.ones((), dtype=dtype, device=t.device)
            return torch.ops.aten.index_put_(t, where, one, accumulate=True)

        same("index", put, target)


@given(st.data())
def test_gather_and_scatter(data):
    shape = data.draw(shapes(max_dims=4))
    dim = data.draw(dims_of(shape))
    dtype = data.draw(st.sampled_from([*FLOAT, *INT, torch.complex64]))
    x = data.draw(pair(shape, dtype, overlapping=False, exact=True))
    size = shape[dim] if shape else 1
    chosen = tuple(data.draw(st.integers(0, s)) for s in shape)
    host, device = data.draw(positions(chosen, size))
    index = (host.abs() % max(size, 1), device.abs() % max(size, 1))
    if data.draw(st.integers(0, 9)) == 0:
        index = (host, device)  # neither takes negative ones
    same("index", lambda t, i: t.gather(dim, i), x, index)
    source = data.draw(pair(chosen, dtype, exact=True))
    functions = [
        lambda t, i, s: t.scatter_add(dim, i, s),
        lambda t, i, s: t.scatter(dim, i, 3),
        lambda t, i, s: t.scatter_reduce(dim, i, s, "amax"),
        lambda t, i, s: t.scatter_reduce(dim, i, s, "sum", include_self=False),
    ]
    function = data.draw(st.sampled_from(functions))
    same("index", function, x, index, source)


@given(st.data())
def test_rows(data):
    shape = data.draw(shapes(min_dims=1, max_dims=4))
    dim = data.draw(dims_of(shape))
    dtype = data.draw(st.sampled_from([*FLOAT, *INT]))
    x = data.draw(pair(shape, dtype, overlapping=False, exact=True))
    count = data.draw(st.integers(0, 40))
    host, device = data.draw(positions((count,), shape[dim], outside=False))
    index = tuple(i % max(shape[dim], 1) for i in (host, device))
    if not shape[dim]:
        index = (host[:0], device[:0])
    rows = list(shape)
    rows[dim] = index[0].numel()
    source = data.draw(pair(tuple(rows), dtype, exact=True))
    same("index", lambda t, i: t.index_select(dim, i), x, index)
    same("index", lambda t, i, s: t.index_add(dim, i, s), x, index, source)
    same("index", lambda t, i: t.index_fill(dim, i, 2), x, index)


@given(st.data())
def test_masks(data):
    shape = data.draw(shapes())
    x = data.draw(pair(shape, data.draw(st.sampled_from(DTYPES))))
    mask = data.draw(pair(data.draw(broadcastable(shape)), torch.bool))
    same("index", torch.masked_select, x, mask)
    same("index", lambda t, m: t.masked_fill(m, 1), x, mask)
    same("index", torch.nonzero, x)
    same("index", lambda t: t.flip(list(range(t.dim()))), x)
    same("index", lambda t: t.roll(3), x)


DRAWS = {
    "rand": lambda t: t.uniform_(),
    "randn": lambda t: t.normal_(),
    "randint": lambda t: t.random_(0, 1000),
    "exponential": lambda t: t.exponential_(),
    "bernoulli": lambda t: t.bernoulli_(0.3),
}


@given(st.data())
def test_random_numbers_are_those_of_their_position(data):
    """The stream depends on the seed alone: shape, strides and what is drawn after don't matter."""
    shape = data.draw(shapes())
    fill = DRAWS[data.draw(st.sampled_from(sorted(DRAWS)))]
    dtype = data.draw(st.sampled_from(FLOAT))
    _, strided = data.draw(pair(shape, dtype, overlapping=False))
    torch.ocl.manual_seed(11)
    flat = fill(torch.empty(strided.numel(), dtype=dtype, device="ocl"))
    torch.ocl.manual_seed(11)
    fill(strided)
    cases["random"] += 1
    assert torch.equal(strided.cpu().reshape(-1), flat.cpu())
