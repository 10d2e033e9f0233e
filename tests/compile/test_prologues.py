"""torch.compile: matrix products that take over the casts and scales before them."""

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

from tests.as_gpu import run_as_gpu, takes_gpu_kernels

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
#: Half of a unit in the last place, of the sums' largest element, and of float's long sums.
TOLERANCE = {
    torch.float32: 1e-5,
    torch.bfloat16: 2**-8,
    torch.float16: 2**-11,
    torch.float64: 1e-13,
}


def floats(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ints(*shape, dtype=torch.int8, seed=1):
    low = 0 if dtype == torch.uint8 else -100
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, 120, shape, generator=generator, dtype=dtype)


def check(function, *operands, reference, casts=0, fused=1, dynamic=None, tolerance=None):
    """Compiled it gives what `reference` gives in double; products with a text, and how many other
    kernels there are, of which one would be the cast."""
    torch._dynamo.reset()
    moved = [x.to("ocl") for x in operands]
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    result, codes = run_and_get_code(compiled, *moved)
    code = "".join(codes)
    counts = code.count("ocl_runtime.fused_product("), code.count("ocl_program.add(")
    assert counts == (fused, casts), code
    expected = reference(*(x.double() for x in operands))
    tolerance = 2 * (tolerance or TOLERANCE[result.dtype])
    error = (result.cpu().double() - expected).abs().max()
    assert error <= tolerance * expected.abs().max()
    return compiled


# Rows, k and columns, for axpy and dot products, panels and k-blocking; the last three are
# for CPUs alone.
SHAPES = [(1, 300, 130), (4, 64, 31), (7, 513, 48), (40, 96, 70), (130, 65, 300), (24, 4096, 64)]


def shapes(dtype):
    """Those in which the product takes a cast to that dtype."""
    few = 3 if takes_gpu_kernels() or dtype == torch.bfloat16 else len(SHAPES)
    return SHAPES[:few]


def test_a_scale_for_matrices_that_the_source_has_not():
    """A weight for all of a batch, and a scale for each: their product is no cast."""

    def right(x, w, s):
        return torch.bmm(x, w.float() * s)

    def left(x, w, s):
        return torch.bmm(w.float() * s, x)

    for function, x, w, s in (
        (right, floats(4, 3, 40), ints(1, 40, 24), floats(4, 1, 1, seed=2)),
        (left, floats(4, 40, 3), ints(1, 24, 40), floats(4, 24, 1, seed=2)),
    ):
        torch._dynamo.reset()
        actual = torch.compile(function)(*(t.to("ocl") for t in (x, w, s)))
        torch.testing.assert_close(actual.cpu(), function(x, w, s), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("source", [torch.int8, torch.uint8], ids=str)
def test_bytes(dtype, source):
    for m, k, n in shapes(dtype):
        x, c = floats(m, k, dtype=dtype), floats(n, dtype=dtype, seed=2)
        w, t = ints(k, n, dtype=source), ints(n, k, dtype=source)
        check(lambda x, w: x @ w.to(dtype), x, w, reference=torch.matmul)
        check(
            lambda x, t: functional.linear(x, t.to(dtype)),
            *(x, t),
            reference=lambda x, t: x @ t.t(),
        )
        check(lambda x, t: t.to(dtype) @ x.t(), x, t, reference=lambda x, t: t @ x.t())
        check(
            lambda x, w, c: torch.addmm(c, x, w.t().to(dtype).t(), beta=2, alpha=0.5),
            *(x, w, c),
            reference=lambda x, w, c: 0.5 * (x @ w) + 2 * c,
        )
    x, w = floats(3, 4, 40, dtype=dtype), ints(3, 50, 40, dtype=source)
    check(lambda x, w: torch.bmm(x, w.to(dtype).mT), x, w, reference=lambda x, w: x @ w.mT)


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.int16, torch.float32),
        (torch.float32, torch.float64),
        (torch.int32, torch.float64),
    ],
    ids=str,
)
def test_wider_types(source, dtype):
    if dtype == torch.float64 and not torch.ocl.get_device_properties(0).has_fp64:
        return
    for m, k, n in shapes(dtype):
        x = floats(m, k, dtype=dtype)
        w = floats(n, k, seed=3).mul(1 if source.is_floating_point else 1000).to(source)
        check(lambda x, w: x @ w.to(dtype).t(), x, w, reference=lambda x, w: x @ w.t())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scales(dtype):
    """Scales of columns, of all, of rows of the first factor; with a bias and what follows."""
    few_results = 2048
    for m, k, n in shapes(dtype):
        # Many results of dot products stay apart from what follows.
        few = min(m, n)
        apart = few <= 128 and few * 8 <= k and m * n > few_results and not takes_gpu_kernels()
        kernels = {"casts": int(apart)}
        x, w, v = floats(m, k, dtype=dtype), ints(n, k), ints(k, n)
        s = (floats(n, 1, seed=4).abs() / 50 + 0.01).to(dtype)
        c = floats(n, dtype=dtype, seed=5)
        check(
            lambda x, w, s: functional.linear(x, w.to(dtype) * s),
            *(x, w, s),
            reference=lambda x, w, s: x @ (w * s).t(),
            **kernels,
        )
        check(
            lambda x, v, s: x @ (s.view(-1) * v.to(dtype)),
            *(x, v, s),
            reference=lambda x, v, s: x @ (v * s.view(-1)),
            **kernels,
        )
        check(
            lambda x, w, s, c: functional.linear(x, w.to(dtype) * s, c).relu(),
            *(x, w, s, c),
            reference=lambda x, w, s, c: (x @ (w * s).t() + c).relu(),
            **kernels,
        )
        check(
            lambda x, w, c: torch.addmm(c, x, (w.to(dtype) * 0.25).t(), beta=-2, alpha=3),
            *(x, w, c),
            reference=lambda x, w, c: 0.75 * (x @ w.t()) - 2 * c,
            **kernels,
        )
        check(
            lambda x, w, s: (w.to(dtype) * s) @ x.t(),
            *(x, w, s),
            reference=lambda x, w, s: (w * s) @ x.t(),
            **kernels,
        )
    x, w, s = floats(3, 4, 40, dtype=dtype), ints(3, 40, 50), floats(3, 1, 50, dtype=dtype)
    check(
        lambda x, w, s: torch.bmm(x, w.to(dtype) * s),
        *(x, w, s),
        reference=lambda x, w, s: x @ (w * s),
    )


def test_sums_outside_of_a_half_types_range():
    x, w = torch.full((2, 4096), 60.0, dtype=torch.float16), torch.full((32, 4096), 127).char()
    s = torch.full((32, 1), 1e-3, dtype=torch.float16)
    check(
        lambda x, w, s: functional.linear(x, w.half() * s),
        *(x, w, s),
        reference=lambda x, w, s: x @ (w * s).t(),
    )


def test_what_stays_apart():
    """Scales along k, casts that round or that others read, and what is written in between."""
    x, w, s = floats(4, 64), ints(64, 48), floats(64, 1).abs()
    apart = {"casts": 1, "fused": 0}
    check(
        lambda x, w, s: x @ (w.float() * s),
        *(x, w, s),
        reference=lambda x, w, s: x @ (w * s),
        **apart,
    )
    check(lambda x, w: x @ w.float(), x, w.int(), reference=torch.matmul, **apart)
    half = x.half()
    check(lambda x, w: x @ w.half(), half, w.short(), reference=torch.matmul, **apart)
    check(
        lambda x, w: ((wide := w.float()), x @ wide)[1] + wide.sum(),
        *(x, w),
        reference=lambda x, w: x @ w + w.sum(),
        **apart,
    )
    # Nothing to sum is 0, whatever it is scaled with.
    nan = torch.full((1, 8), torch.nan).to("ocl")
    x, w = floats(4, 0).to("ocl"), ints(0, 8).to("ocl")
    for function in (
        lambda x, w, s: x @ (w.float() * s),
        lambda x, w, s: x @ (w.float() * torch.inf),
        lambda x, w, s: torch.addmm(torch.zeros_like(s), x, w.float() * s, alpha=0),
    ):
        torch._dynamo.reset()
        result = torch.compile(function, fullgraph=True)(x, w, nan)
        torch.testing.assert_close(result.cpu(), torch.zeros(4, 8))


def test_sources_that_are_changed():
    def function(x, w, i):
        w = w.clone()
        before = w.to(x.dtype)
        w.index_put_((i,), torch.ones_like(w[:3]))
        return x @ before, w

    x, w, i = floats(4, 64), ints(64, 48), torch.tensor([0, 5, 9])
    torch._dynamo.reset()
    results = torch.compile(function)(*(t.to("ocl") for t in (x, w, i)))
    for actual, expected in zip(results, function(x, w, i), strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-3)


def test_sizes_that_change():
    torch._dynamo.reset()
    function = torch.compile(
        lambda x, w, s: functional.silu(functional.linear(x, w.to(x.dtype) * s)), dynamic=True
    )
    for m, k, n in [*SHAPES, (8, 512, 400), (300, 80, 16)]:
        x, w, s = floats(m, k), ints(n, k), floats(n, 1, seed=2) / 100
        expected = functional.silu(x @ (w * s).t())
        actual = function(*(t.to("ocl") for t in (x, w, s)))
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_that_may_lose_bits(precision):
    """No kernel reads bytes as float32 there."""
    x, w = floats(40, 96), ints(96, 70)
    torch.set_float32_matmul_precision(precision)
    try:
        torch._dynamo.reset()
        actual = torch.compile(lambda x, w: x @ w.float())(x.to("ocl"), w.to("ocl")).cpu()
    finally:
        torch.set_float32_matmul_precision("highest")
    expected = x @ w.float()
    assert (actual - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.slow
def test_kernels_for_gpus():
    run_as_gpu(__file__)
