"""Random cases for the engines that compute over blocks: gemm, fft, linalg, spatial."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.fuzz.tensors import FLOAT, HALF, pair, same, shapes

SIZES = st.one_of(st.integers(0, 20), st.sampled_from([31, 33, 64, 65, 97, 130]))


def relative(tolerance):
    """Errors are measured by the largest element: sums of products cancel."""

    def close(actual, expected):
        finite = expected.abs()[expected.isfinite()]
        scale = float(finite.max()) if finite.numel() else 1.0
        atol = tolerance * max(scale, 1.0)
        assert_close(actual, expected, atol=atol, rtol=tolerance, equal_nan=True)

    return close


@given(st.data())
def test_gemm(data):
    n, k, m = (data.draw(SIZES) for _ in range(3))
    batch = data.draw(st.integers(0, 5))
    dtype = data.draw(
        st.sampled_from(
            [*FLOAT, torch.int64, torch.int32, torch.int8, torch.uint8, torch.complex64]
        )
    )
    # Sums of quarters' products are exact in single precision; halves are rounded once.
    a = data.draw(pair((n, k), dtype, exact=True))
    b = data.draw(pair((k, m), dtype, exact=True))
    same("gemm", torch.mm, a, b)
    bias = data.draw(
        pair(data.draw(st.sampled_from([(n, m), (m,), (1, m), (n, 1), ()])), dtype, exact=True)
    )
    alpha, beta = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 0), (2, 3), (0, 1)]))
    same("gemm", lambda c, x, y: torch.addmm(c, x, y, alpha=alpha, beta=beta), bias, a, b)
    x = data.draw(pair((batch, n, k), dtype, exact=True))
    y = data.draw(pair((batch, k, m), dtype, exact=True))
    same("gemm", torch.bmm, x, y)
    v = data.draw(pair((k,), dtype, exact=True))
    same("gemm", torch.mv, a, v)
    same("gemm", torch.matmul, x, v)
    same("gemm", torch.dot, v, data.draw(pair((k,), dtype, exact=True)))
    out = data.draw(pair((n, m), dtype, overlapping=False))
    same("gemm", lambda p, q, o: torch.mm(p, q, out=o), a, b, out)


@given(st.data())
def test_fft(data):
    shape = data.draw(shapes(min_dims=1, max_dims=3, sizes=st.integers(0, 70)))
    dims = data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True))
    sizes = [data.draw(st.integers(1, 70)) for _ in dims] if data.draw(st.booleans()) else None
    norm = data.draw(st.sampled_from([None, "ortho", "forward", "backward"]))
    name = data.draw(st.sampled_from(["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"]))
    real = name in ("rfftn", "ihfftn") or data.draw(st.booleans())
    dtype = data.draw(
        st.sampled_from(
            [torch.float32, torch.float64] if real else [torch.complex64, torch.complex128]
        )
    )
    x = data.draw(pair(shape, dtype))
    tolerance = 1e-5 if dtype in (torch.float32, torch.complex64) else 1e-12
    same(
        "fft",
        lambda t: getattr(torch.fft, name)(t, s=sizes, dim=dims, norm=norm),
        x,
        close=relative(tolerance),
    )


def up_to_signs(factors):
    """The last reflection of a complex matrix is one only if rounding left an imaginary part."""
    return factors.Q @ factors.R, factors.R.abs()


@given(st.data())
def test_linalg(data):
    batch = data.draw(shapes(max_dims=2, sizes=st.integers(0, 3)))
    n = data.draw(st.one_of(st.integers(0, 12), st.sampled_from([31, 33, 40])))
    right = data.draw(st.integers(0, 5))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.complex64]))
    raw = data.draw(pair((*batch, n, n), dtype, exact=True))
    b = data.draw(pair((*batch, n, right), dtype, exact=True))
    upper = data.draw(st.booleans())
    name = data.draw(st.sampled_from(["solve", "inv", "det", "cholesky", "triangular", "lu", "qr"]))

    def well_conditioned(t):
        shift = 6.0 * (n + 1) * torch.eye(n, dtype=dtype, device=t.device)
        return t @ t.mH + shift if name in ("cholesky", "qr") else t + shift

    functions = {
        "solve": lambda t, r: torch.linalg.solve(well_conditioned(t), r),
        "inv": lambda t, r: torch.linalg.inv(well_conditioned(t)),
        "det": lambda t, r: torch.linalg.slogdet(well_conditioned(t)),
        "cholesky": lambda t, r: torch.linalg.cholesky(well_conditioned(t), upper=upper),
        "triangular": lambda t, r: torch.linalg.solve_triangular(
            well_conditioned(t).triu() if upper else well_conditioned(t).tril(), r, upper=upper
        ),
        "lu": lambda t, r: torch.linalg.lu(well_conditioned(t)),
        "qr": lambda t, r: up_to_signs(torch.linalg.qr(well_conditioned(t))),
    }
    tolerance = 1e-10 if dtype is torch.float64 else 1e-4
    same("linalg", functions[name], raw, b, close=relative(tolerance))


@given(st.data())
def test_spatial(data):
    planes = (data.draw(st.integers(0, 3)), data.draw(st.integers(1, 9)))
    height, width = (data.draw(st.integers(1, 24)) for _ in range(2))
    dtype = data.draw(st.sampled_from(FLOAT))
    x = data.draw(pair((*planes, height, width), dtype, exact=True))
    kernel = data.draw(st.integers(1, 4))
    stride, dilation = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    padding = data.draw(st.integers(0, 3))
    mode = data.draw(st.sampled_from(["reflect", "replicate", "circular", "constant"]))
    out = [data.draw(st.integers(1, 30)) for _ in range(2)]
    f = torch.nn.functional
    functions = [
        lambda t: f.max_pool2d(t, kernel, stride, padding, dilation, return_indices=True),
        lambda t: f.avg_pool2d(t, kernel, stride, padding),
        lambda t: f.pad(t, [padding, 1, 0, padding], mode),
        lambda t: f.unfold(t, kernel, dilation, padding, stride),
        lambda t: f.adaptive_avg_pool2d(t, out),
        lambda t: f.adaptive_max_pool2d(t, out, return_indices=True),
        lambda t: f.interpolate(t, size=out, mode="nearest"),
        lambda t: f.interpolate(t, size=out, mode="nearest-exact"),
        lambda t: f.interpolate(t, size=out, mode="bilinear", align_corners=True),
    ]
    chosen = data.draw(st.integers(0, len(functions) - 1))
    # CPU torch interpolates halves with weights rounded to the half type.
    close = relative(2e-2) if dtype in HALF and chosen == len(functions) - 1 else None
    same("spatial", functions[chosen], x, close=close)


@given(st.data())
def test_convolution(data):
    """Sums of quarters' products are exact, so that the order of summation doesn't show."""
    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    batch = data.draw(st.integers(0, 3))
    inputs, outputs = (groups * data.draw(st.integers(1, 9)) for _ in range(2))
    dims = data.draw(st.integers(1, 3))
    transposed = data.draw(st.booleans())
    size = [data.draw(st.integers(1, 24 // dims)) for _ in range(dims)]
    kernel = [data.draw(st.integers(1, 4)) for _ in range(dims)]
    stride, dilation = (
        [data.draw(st.integers(1, 3)) for _ in range(dims)],
        [data.draw(st.integers(1, 2)) for _ in range(dims)],
    )
    padding = [data.draw(st.integers(0, 3)) for _ in range(dims)]
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    first, second = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    x = data.draw(pair((batch, inputs, *size), dtype, exact=True))
    weight = data.draw(pair((first, second, *kernel), dtype, exact=True))
    bias = data.draw(pair((outputs,), dtype, exact=True)) if data.draw(st.booleans()) else None

    def convolve(x, weight, bias):
        return torch.ops.aten.convolution(
            x, weight, bias, stride, padding, dilation, transposed, [0] * dims, groups
        )

    same("conv", convolve, x, weight, bias)

    def gradients(x, weight):
        leaves = [t.detach().requires_grad_() for t in (x, weight)]
        out = convolve(*leaves, None)
        return torch.autograd.grad(out, leaves, torch.ones_like(out))

    same("conv", gradients, x, weight)


@given(st.data())
def test_softmax_and_norms(data):
    shape = data.draw(shapes(min_dims=2, max_dims=4, sizes=st.one_of(SIZES, st.just(1025))))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    x = data.draw(pair(shape, dtype))
    dim = data.draw(st.integers(0, len(shape) - 1))
    weight = data.draw(pair(shape[dim:], dtype))
    scale = data.draw(pair(shape[1:2], dtype, overlapping=False))
    f = torch.nn.functional
    training = data.draw(st.booleans())
    functions = [
        (lambda t, w: f.softmax(t, dim), weight),
        (lambda t, w: f.log_softmax(t, dim), weight),
        (lambda t, w: f.layer_norm(t, shape[dim:], w), weight),
        (lambda t, w: f.rms_norm(t, shape[dim:], w), weight),
        # A single number leaves nothing but rounding.
        (lambda t, w: f.group_norm(t, 1, w) if t[0].numel() > 1 else t, scale),
        (lambda t, w: f.batch_norm(t, w * 2, w.abs() + 1, w, w, training), scale),
        (lambda t, w: torch.var_mean(t, dim), weight),
        (lambda t, w: torch.linalg.vector_norm(t, 3, dim), weight),
    ]
    function, parameter = data.draw(st.sampled_from(functions))
    tolerance = 1e-4 if dtype is torch.float32 else 1e-10
    same("norm", function, x, parameter, close=relative(tolerance))
