"""Resampling and grid sampling against CPU torch."""

import pytest
import torch
from torch.nn import functional

from tests.layouts import on_device
from tests.ops.spatial import FLOATING, check, check_error, check_gradients, formats, sample

SHAPES = {1: (2, 19, 9), 2: (2, 19, 7, 9), 3: (2, 5, 4, 5, 6)}
TARGETS = [
    {"size": (11, 13, 7)},
    {"size": (3, 4, 5)},
    {"size": (1, 1, 1)},
    {"scale_factor": 2},
    {"scale_factor": 0.6},
    {"scale_factor": 1.7},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
]
NEAREST = [(mode, axes) for mode in ("nearest", "nearest-exact") for axes in (1, 2, 3)]
# Antialiased ones; Lanczos is younger than torch 2.11.
FILTERS = ["bilinear", "bicubic"]
if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):
    FILTERS.append("lanczos")
SMOOTH = [("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2)]


def interpolation(mode, axes, target, **more):
    target = {k: v[:axes] if isinstance(v, tuple) else v for k, v in target.items()}
    return lambda t: functional.interpolate(t, mode=mode, **target, **more)


def image(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("mode,axes", NEAREST)
@pytest.mark.parametrize("target", TARGETS)
def test_nearest(mode, axes, target):
    call = interpolation(mode, axes, target)
    for name, x in formats(sample(*SHAPES[axes])):
        check(call, x, what=name)
        check_gradients(call, x, name, second=True)
    check(call, image(*SHAPES[axes]))
    check(call, sample(0, *SHAPES[axes][1:]))


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_many_rows(mode):
    """A GPU's work-item takes several rows then; their number is no multiple of that."""
    x = sample(1, 3, 333, 601)
    check(interpolation(mode, 2, {"scale_factor": 2}), x)
    check(
        interpolation(mode, 2, {"scale_factor": 2}), x.contiguous(memory_format=torch.channels_last)
    )


def test_nearest_large_scales():
    for mode in ("nearest", "nearest-exact"):
        for size, target in ((3, 1000), (1000, 3), (49, 490), (490, 49), (127, 254)):
            call = interpolation(mode, 1, {"size": (target,)})
            for dtype in (torch.float32, torch.float64):
                x = sample(1, 2, size, dtype=dtype)
                check(call, x)
                check_gradients(call, x)


@pytest.mark.parametrize("mode,axes", SMOOTH)
@pytest.mark.parametrize("target", [*TARGETS, {"size": (7, 9, 6)}])
@pytest.mark.parametrize("align", [False, True])
def test_smooth(mode, axes, target, align):
    call = interpolation(mode, axes, target, align_corners=align)
    for name, x in formats(sample(*SHAPES[axes])):
        check(call, x, what=name, rtol=1e-5, atol=1e-5)
        check_gradients(call, x, name, second=True, rtol=1e-5, atol=1e-5)
    check(call, sample(0, *SHAPES[axes][1:]))
    double = sample(*SHAPES[axes], dtype=torch.float64)
    check(call, double, rtol=1e-12, atol=1e-12)
    check_gradients(call, double, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode,axes", NEAREST + SMOOTH)
@pytest.mark.parametrize("dtype", FLOATING)
def test_dtypes(mode, axes, dtype):
    more = {} if "nearest" in mode else {"align_corners": False}
    # CPU torch rounds a gradient's terms to the half type.
    loose = {"rtol": 2e-2, "atol": 1e-1} if dtype in FLOATING[2:] else {"rtol": 1e-5, "atol": 1e-5}
    for name, x in formats(sample(*SHAPES[axes], dtype=dtype)):
        for target in ({"scale_factor": 2}, {"size": (3, 4, 5)}):
            call = interpolation(mode, axes, target, **more)
            check(call, x, what=name, **loose)
            check_gradients(call, x, name, **loose)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("size", [(11, 13), (3, 4), (40, 31), (1, 2), (64, 9)])
@pytest.mark.parametrize("align", [False, True])
def test_bytes_are_exact(mode, antialias, size, align):
    for shape in ((2, 3, 33, 40), (1, 5, 7, 9)):
        for name, x in formats(image(*shape)):
            call = interpolation(mode, 2, {"size": size}, align_corners=align, antialias=antialias)
            check(call, x, what=name)


@pytest.mark.parametrize("mode", FILTERS)
@pytest.mark.parametrize("size", [(11, 13), (3, 4), (40, 31), (1, 1), (7, 9), (9, 4)])
@pytest.mark.parametrize("align", [False, True])
def test_antialias(mode, size, align):
    op = getattr(torch.ops.aten, f"_upsample_{mode}2d_aa")
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-12)):
        for shape in ((2, 19, 7, 9), (1, 3, 33, 40)):
            for name, x in formats(sample(*shape, dtype=dtype)):
                close = {"rtol": tolerance, "atol": tolerance}
                check(lambda t: op(t, size, align), x, what=name, **close)
                check_gradients(lambda t: op(t, size, align), x, name, **close)
    # No larger than the scales allow: past the input's end CPU torch reads what lies there.
    if size[0] <= 21 and size[1] <= 12:
        check(lambda t: op(t, size, align, 0.7, 0.4), sample(1, 2, 30, 30), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 2, 7, 16, 33])
def test_channel_counts(channels):
    x = sample(2, channels, 5, 6).contiguous(memory_format=torch.channels_last)
    for mode in ("nearest", "bilinear", "bicubic"):
        more = {} if mode == "nearest" else {"align_corners": False}
        call = interpolation(mode, 2, {"size": (9, 11)}, **more)
        check(call, x, rtol=1e-5, atol=1e-5)
        check_gradients(call, x, rtol=1e-5, atol=1e-5)


def test_long_rows():
    x = sample(1, 3, 20, 150)
    for mode in ("nearest", "bilinear", "bicubic"):
        call = interpolation(mode, 2, {"scale_factor": 2})
        check(call, x, rtol=1e-5, atol=1e-5)
        check_gradients(call, x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: functional.interpolate(t, size=(0, 3)),
        lambda t: functional.interpolate(t.int(), size=(3, 3)),
        lambda t: functional.interpolate(t.int(), size=(3, 3), mode="bilinear"),
        lambda t: functional.interpolate(t.half(), size=(3, 3), mode="bilinear", antialias=True),
        lambda t: torch.ops.aten.upsample_nearest2d(t, [3]),
        lambda t: torch.ops.aten.upsample_bilinear2d(t[0], [3, 3], False),
        lambda t: torch.ops.aten.upsample_nearest2d_backward(t, [3, 3], [2, 3, 8, 9]),
        lambda t: torch.ops.aten.upsample_linear1d(t[0].byte(), [3], False),
    ],
)
def test_bad_arguments(call):
    check_error(call, sample(2, 3, 8, 9))


# ---- Grid sampling ----------------------------------------------------------------------------

GRID_SHAPES = {2: ((2, 3, 6, 7), (2, 4, 5, 2)), 3: ((2, 3, 4, 5, 6), (2, 3, 4, 2, 3))}
GRID_MODES = [(2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"), (3, "nearest")]


def grid(shape, dtype):
    """From outside the input to outside it; some numbers that are nowhere."""
    generator = torch.Generator().manual_seed(3)
    return ((torch.rand(shape, generator=generator) - 0.5) * 5).to(dtype)


@pytest.mark.parametrize("axes,mode", GRID_MODES)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("dtype", FLOATING)
def test_grid_sample(axes, mode, padding, align, dtype):
    # CPU torch computes places in the half type, and misses by a pixel: doubles are the reference.
    half = dtype in FLOATING[2:]
    close = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-4, "atol": 1e-4}
    shape, grid_shape = GRID_SHAPES[axes]
    numbers = grid(grid_shape, dtype)

    def run(x, grid_):
        x, grid_ = x.detach().requires_grad_(), grid_.detach().requires_grad_()
        out = functional.grid_sample(x, grid_, mode, padding, align)
        cotangent = sample(*out.shape, dtype=dtype, seed=1).to(x)
        gradients = torch.autograd.grad(out, (x, grid_), cotangent)
        return tuple(t.detach() for t in (out, *gradients))

    for name, x in formats(sample(*shape, dtype=dtype)):
        want = run(x.double(), numbers.double()) if half else run(x, numbers)
        for strided in (numbers, torch.stack([numbers, numbers], -1)[..., 1]):
            got = run(on_device(x), on_device(strided))
            for g, w in zip(got, want, strict=True):
                assert g.dtype == dtype
                torch.testing.assert_close(
                    g.cpu().to(w), w, msg=lambda text, name=name: f"{name}: {text}", **close
                )


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_numbers_that_are_nowhere(padding):
    x = sample(1, 2, 5, 6)
    numbers = grid((1, 3, 4, 2), torch.float32)
    numbers[0, 0, 0, 0] = float("nan")
    numbers[0, 1, 1, 1] = float("inf")
    numbers[0, 2, 2, 0] = -1e30
    for mode in ("bilinear", "nearest"):
        got = functional.grid_sample(on_device(x), numbers.to("ocl"), mode, padding, False)
        assert got.shape == (1, 2, 3, 4)
        if padding == "zeros":
            want = functional.grid_sample(x, numbers, mode, padding, False)
            torch.testing.assert_close(got.cpu(), want, equal_nan=True)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("align", [False, True])
def test_volumes_of_grid_numbers_that_are_nowhere(align, mode, padding):
    numbers = grid((1, 3, 4, 3, 3), torch.float32)
    flat = numbers.view(-1)
    for i, value in enumerate([float("nan"), float("inf"), -float("inf"), 1e30, -1e30]):
        flat[7 * i : 7 * i + 15 : 7] = value

    def run(device):
        x = sample(1, 2, 5, 6, 4).to(device).requires_grad_()
        places = numbers.to(device).requires_grad_()
        out = functional.grid_sample(x, places, mode, padding, align)
        return (out.detach(), *torch.autograd.grad(out.sum(), (x, places)))

    for got, want in zip(run("ocl"), run("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), want, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_grid_of_a_rotation_and_empty_ones():
    theta = torch.tensor([[[0.8, -0.6, 0.1], [0.6, 0.8, -0.2]]])
    x = sample(1, 3, 16, 18)

    def rotated(t):
        where = functional.affine_grid(theta.to(t.device), t.shape, align_corners=False)
        return functional.grid_sample(t, where, align_corners=False)

    check(rotated, x, rtol=1e-4, atol=1e-4)
    check_gradients(rotated, x, rtol=1e-4, atol=1e-4)
    volume = torch.eye(3, 4)[None]
    check(lambda t: functional.affine_grid(t, (1, 2, 3, 4, 5), align_corners=True), volume)
    check(lambda t: functional.grid_sample(t[:0], torch.zeros(0, 2, 2, 2, device=t.device)), x)
    check(lambda t: functional.grid_sample(t, torch.zeros(1, 0, 2, 2, device=t.device)), x)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: functional.grid_sample(t, t[:1, :, :, :2]),
        lambda t: functional.grid_sample(t, t[..., :3]),
        lambda t: functional.grid_sample(t, t[..., :2].double()),
        lambda t: functional.grid_sample(t.long(), t[..., :2].long()),
        lambda t: functional.grid_sample(t[None], t[None, ..., :3], mode="bicubic"),
    ],
)
def test_bad_grids(call):
    check_error(call, sample(2, 3, 8, 9))
