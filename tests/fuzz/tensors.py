"""Strategies for tensors in odd layouts, on both devices alike, and how results compare."""

import collections
import math

import torch
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

HALF = (torch.float16, torch.bfloat16)
FLOAT = (torch.float32, torch.float64, *HALF)
INT = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
REAL = (*FLOAT, *INT, torch.bool)
DTYPES = (*REAL, torch.complex64)

#: Comparisons made, by engine.
cases = collections.Counter()

#: Sizes around what kernels are cut by: vectors, rows, work-groups, chunks.
SIZES = st.one_of(
    st.integers(0, 9),
    st.sampled_from([1, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 257, 1025, 5003]),
)
MAX_ELEMENTS = 20_000


@st.composite
def shapes(draw, min_dims=0, max_dims=5, sizes=SIZES):
    shape = draw(st.lists(sizes, min_size=min_dims, max_size=max_dims))
    # Results over a dimension of no elements can have as many as the others.
    while math.prod(max(size, 1) for size in shape) > MAX_ELEMENTS:
        largest = max(range(len(shape)), key=shape.__getitem__)
        shape[largest] = max(1, shape[largest] // 3)
    return tuple(shape)


@st.composite
def broadcastable(draw, shape):
    """A shape that broadcasts to `shape`."""
    first = draw(st.integers(0, len(shape)))
    return tuple(1 if draw(st.integers(0, 3)) == 0 else size for size in shape[first:])


def dims_of(shape):
    """A dimension of `shape`, from either end."""
    return st.integers(-len(shape), len(shape) - 1) if shape else st.sampled_from([0, -1])


@st.composite
def layouts(draw, shape, overlapping=True):
    """(strides, offset): any order of dimensions, gaps, and with `overlapping` elements that share
    memory."""
    order = (
        draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else range(len(shape))[::-1]
    )
    strides = [0] * len(shape)
    step = draw(st.sampled_from([1, 1, 1, 2, 3]))
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
        step += draw(st.sampled_from([0, 0, 0, 1, 5]))
    if overlapping and shape and draw(st.integers(0, 3)) == 0:
        strides[draw(st.integers(0, len(shape) - 1))] = draw(st.sampled_from([0, 0, 1]))
    return tuple(strides), draw(st.sampled_from([0, 0, 0, 1, 3, 8]))


SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)


def values(count, dtype, seed, special=False, exact=False):
    """`count` numbers; `special` brings NaN and infinities, `exact` small quarters, whose sums and
    products don't round."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(count, generator=generator) > 0.5
    if not (dtype.is_floating_point or dtype.is_complex):
        low = 0 if dtype is torch.uint8 else -9
        return torch.randint(low, 10, (count,), generator=generator).to(dtype)
    width = 2 * count if dtype.is_complex else count
    if exact:
        numbers = torch.randint(-8, 9, (width,), generator=generator) / 4
    else:
        numbers = torch.randn(width, generator=generator, dtype=torch.float64) * 2
    if special and width:
        positions = torch.randint(0, width, (max(1, width // 8),), generator=generator)
        choice = torch.randint(0, len(SPECIAL), positions.shape, generator=generator)
        numbers[positions] = torch.tensor(SPECIAL, dtype=numbers.dtype)[choice]
    if dtype.is_complex:
        return torch.view_as_complex(numbers.to(torch.float32).view(count, 2)).to(dtype)
    return numbers.to(dtype)


@st.composite
def pair(draw, shape, dtype, overlapping=True, special=False, exact=False):
    """(tensor on the CPU, the same on the device): same strides, offset and memory around."""
    strides, offset = draw(layouts(shape, overlapping))
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    count = offset + 1 + max(last, 0) + draw(st.integers(0, 3))
    memory = values(count, dtype, draw(st.integers(0, 2**16)), special, exact)
    return tuple(m.as_strided(shape, strides, offset) for m in (memory, memory.to("ocl")))


def same(engine, function, *operands, close=None):
    """Calls `function` on the CPU's tensors and on the device's: results are equal, or both raise
    alike. `operands` are pairs, or anything else for both; `close` compares two results.

    Everything in the memory of the operands is compared too: what an op must not write stays.
    """
    cases[engine] += 1
    host, device = (
        [o[side] if isinstance(o, tuple) and torch.is_tensor(o[0]) else o for o in operands]
        for side in (0, 1)
    )
    try:
        expected = function(*host)
    except Exception as error:  # noqa: BLE001 - whatever CPU torch raises is what is wanted
        raises_alike(lambda: function(*device), error)
        return
    actual = function(*device)
    torch.ocl.synchronize()
    expected_leaves, actual_leaves = tree_leaves(expected), tree_leaves(actual)
    assert len(actual_leaves) == len(expected_leaves)
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e, f"{a} instead of {e}"
            continue
        assert a.device.type == "ocl"
        (close or compare)(a.cpu(), e)
    for a, e in zip(device, host, strict=True):
        if isinstance(e, torch.Tensor) and e.numel():
            (close or compare)(memory_of(a).cpu(), memory_of(e))


def memory_of(tensor):
    plain = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return plain.set_(tensor.untyped_storage())


def compare(actual, expected):
    assert_close(actual, expected, equal_nan=True)


def raises_alike(function, expected):
    try:
        function()
        torch.ocl.synchronize()
    except Exception as error:  # noqa: BLE001
        alike = isinstance(error, type(expected))
        assert alike, f"{type(error).__name__} instead of {type(expected).__name__}: {error}"
        return
    raise AssertionError(f"nothing raised instead of {type(expected).__name__}: {expected}")
