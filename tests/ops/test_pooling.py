"""Average, max, adaptive and fractional pooling, and unpooling, against CPU torch."""

import contextlib
import itertools

import pytest
import torch
from torch.nn import functional

from tests.layouts import dense_strides, laid_out, on_device, told_strides
from tests.ops.spatial import (
    FLOATING,
    INTEGER,
    check,
    check_error,
    check_gradients,
    formats,
    sample,
)

SHAPES = {2: (2, 19, 9, 11), 3: (2, 19, 5, 7, 8)}
WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": (2, 3, 2), "stride": (3, 1, 2)},
    {"kernel_size": 4, "stride": 5},
]


def window_of(axes, arguments):
    return {k: v[-axes:] if isinstance(v, tuple) else v for k, v in arguments.items()}


def max_pool(axes, **window):
    pool = getattr(functional, f"max_pool{axes}d")
    return lambda t: pool(t, return_indices=True, **window_of(axes, window))


def average_pool(axes, **window):
    pool = getattr(functional, f"avg_pool{axes}d")
    return lambda t: pool(t, **window_of(axes, window))


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("window", [*WINDOWS, {"kernel_size": 3, "dilation": 2, "padding": 1}])
def test_max_pool(axes, window):
    call = max_pool(axes, **window)
    for name, x in formats(sample(*SHAPES[axes])):
        check(call, x, what=name)
        check_gradients(call, x, name, second=True)
    check(call, sample(*SHAPES[axes][1:]))
    check(call, sample(0, *SHAPES[axes][1:]))


@pytest.mark.parametrize("dtype", FLOATING + INTEGER)
@pytest.mark.parametrize("axes", [2, 3])
def test_max_pool_dtypes(axes, dtype):
    call = max_pool(axes, kernel_size=3, stride=2, padding=1)
    x = sample(*SHAPES[axes], dtype=dtype)
    check(call, x)
    if not (axes == 3 and dtype in (torch.uint8, torch.int8)):  # CPU torch's indices overflow
        check(
            call,
            x.contiguous(memory_format=[torch.channels_last, torch.channels_last_3d][axes - 2]),
        )
    if dtype.is_floating_point:
        check_gradients(call, x)


@pytest.mark.parametrize("axes", [2, 3])
def test_max_pool_special_values(axes):
    x = sample(*SHAPES[axes])
    x.flatten()[::7] = float("nan")
    x.flatten()[1::3] = -float("inf")
    x[:, 0] = -float("inf")
    x[:, 1] = float("nan")
    for name, strided in formats(x):
        check(max_pool(axes, kernel_size=3, stride=2, padding=1), strided, what=name)
        pool = getattr(functional, f"adaptive_max_pool{axes}d")
        check(lambda t, pool=pool: pool(t, 3, return_indices=True), strided, what=name)
        check(average_pool(axes, kernel_size=2), strided, what=name)


# Lines of one vector, of several, of long ones, and of fewer outputs than lanes.
@pytest.mark.parametrize("dtype", [*FLOATING, torch.int64, torch.uint8])
@pytest.mark.parametrize("width", [9, 23, 40, 150, 600])
@pytest.mark.parametrize("window", [*WINDOWS, {"kernel_size": 3, "dilation": 2, "padding": 1}])
def test_max_pool_of_lines(width, window, dtype):
    x = sample(2, 3, 7, width, dtype=dtype)
    check(max_pool(2, **window), x)
    check(max_pool(2, **window), x[:, 1:, :, 1:])
    if dtype.is_floating_point:
        x.flatten()[:: 2 * width + 3] = float("nan")
        x[:, 1] = -float("inf")
        check(max_pool(2, **window), x)
        window = {k: v[-1] if isinstance(v, tuple) else v for k, v in window.items()}
        check(lambda t: functional.max_pool1d(t, **window), x[:, 0])
        check(lambda t: functional.max_pool1d(t, **window), x[0, 0])
        check(lambda t: functional.max_pool1d(t, **window), x.mT.contiguous().mT[:, 0])


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("width", [5, 17, 64, 600])
@pytest.mark.parametrize("size", [(3, 4), (2, 1), (7, 5)])
def test_adaptive_maximum_of_columns(width, size, dtype):
    x = sample(2, 3, 19, width, dtype=dtype) // 8  # equal ones
    check(lambda t: functional.adaptive_max_pool2d(t, size, return_indices=True), x)
    x.flatten()[:: 2 * width + 3] = float("nan")
    x[:, 1] = -float("inf")
    x[:, 2] = -0.0
    x[:, 2, ::3] = 0.0
    check(lambda t: functional.adaptive_max_pool2d(t, size, return_indices=True), x)


def test_max_pool1d_without_positions():
    x = sample(2, 3, 50)
    with torch.inference_mode():
        check(lambda t: functional.max_pool1d(t, 3, 2), x)
    check(lambda t: torch.vmap(lambda u: functional.max_pool1d(u, 3, 2))(t), x)
    forward = lambda t: torch.func.jvp(lambda u: functional.max_pool1d(u, 3), (t,), (t,))  # noqa: E731
    for got, want in zip(forward(on_device(x)), forward(x), strict=True):
        torch.testing.assert_close(got.cpu(), want)
    gradient = torch.func.grad(lambda t: functional.max_pool1d(t, 3).sum())
    torch.testing.assert_close(gradient(on_device(x)).cpu(), gradient(x))
    for bad in ({"kernel_size": 0}, {"kernel_size": 60}, {"kernel_size": 3, "padding": 2}):
        check_error(lambda t, bad=bad: functional.max_pool1d(t, **bad), x)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("more", [{}, {"count_include_pad": False}, {"divisor_override": 5}])
def test_average_pool(axes, window, more):
    call = average_pool(axes, **window, **more)
    for name, x in formats(sample(*SHAPES[axes])):
        check(call, x, what=name)
        check_gradients(call, x, name, second=True)
    check(call, sample(*SHAPES[axes][1:], dtype=torch.int64))
    check(call, sample(0, *SHAPES[axes][1:]))


@pytest.mark.parametrize("dtype", [*FLOATING, torch.int64])
def test_average_pool_dtypes(dtype):
    for axes in (2, 3):
        if axes == 3 and dtype in (torch.float16, torch.bfloat16):
            continue
        call = average_pool(axes, kernel_size=3, stride=2, padding=1)
        for name, x in formats(sample(*SHAPES[axes], dtype=dtype)):
            check(call, x, what=name)
            if dtype.is_floating_point:
                # CPU torch sums gradients in the half type.
                loose = {"rtol": 2e-2, "atol": 5e-2} if dtype in FLOATING[2:] else {}
                check_gradients(call, x, name, **loose)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("size", [1, 3, (4, 2, 3), (None, 5, 1)])
def test_adaptive(axes, size, dtype):
    size = size[-axes:] if isinstance(size, tuple) else size
    average = getattr(functional, f"adaptive_avg_pool{axes}d")
    maximum = getattr(functional, f"adaptive_max_pool{axes}d")
    # CPU torch sums in the half type.
    loose = {"rtol": 2e-2, "atol": 5e-2} if dtype in FLOATING[2:] else {}
    x = sample(*SHAPES[axes], dtype=dtype)
    for name, strided in formats(x):
        check(lambda t: maximum(t, size, return_indices=True), strided, what=name)
        got = on_device(strided)
        assert average(got, 3).stride() == average(strided, 3).stride(), name
        torch.testing.assert_close(average(got, size).cpu(), average(strided, size), **loose)
        check_gradients(lambda t: maximum(t, size), strided, name, **loose)
    check_gradients(lambda t: average(t, size), x, **loose)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("kernel,size", [(2, 3), (2, 1), (3, 2), ((1, 2, 3), (4, 5, 5))])
def test_fractional(axes, kernel, size, dtype):
    kernel = kernel[-axes:] if isinstance(kernel, tuple) else kernel
    size = size[-axes:] if isinstance(size, tuple) else size
    pool = getattr(functional, f"fractional_max_pool{axes}d")
    x = sample(*SHAPES[axes], dtype=dtype)
    random = torch.rand(2, 19, axes, generator=torch.Generator().manual_seed(1)).to(dtype)

    def call(t):
        samples = random.to(t.device)
        return pool(t, kernel, size, return_indices=True, _random_samples=samples)

    for name, strided in formats(x):
        check(call, strided, what=name)
    check_gradients(call, x)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("axes", [2, 3])
def test_unpool(axes, dtype):
    unpool = getattr(functional, f"max_unpool{axes}d")
    x = sample(*SHAPES[axes], dtype=dtype)
    pooled, indices = max_pool(axes, kernel_size=2)(x)
    size = SHAPES[axes][2:]
    for _, strided in formats(pooled):
        got = unpool(on_device(strided), indices.to("ocl"), 2, output_size=size)
        want = unpool(strided, indices, 2, output_size=size)
        torch.testing.assert_close(got.cpu(), want)
    check_gradients(
        lambda t: unpool(t, indices.to(t.device), 2, output_size=size), pooled, second=True
    )
    check_gradients(
        lambda t: unpool(t[0], indices[0].to(t.device), 2, output_size=size[-axes:]), pooled
    )


def test_unpool_refuses_indices():
    x = sample(1, 1, 2, 2)
    for wrong in (-1, 16):
        index = torch.full((1, 1, 2, 2), wrong)
        index[0, 0, 0] = torch.tensor([0, 15])
        with pytest.raises(RuntimeError, match="max_unpool2d"):
            functional.max_unpool2d(on_device(x), index.to("ocl"), 2)
            torch.ocl.synchronize()


def test_one_dimension():
    x = sample(2, 3, 20)
    check(lambda t: functional.max_pool1d(t, 3, 2, 1, return_indices=True), x)
    check_gradients(lambda t: functional.max_pool1d(t, 3, 2, 1), x)
    check(lambda t: functional.max_pool1d(t, 3, 2, 1, 2, ceil_mode=True), x)
    check_gradients(lambda t: functional.avg_pool1d(t, 3, 2, 1), x)
    check(lambda t: functional.adaptive_max_pool1d(t, 7, return_indices=True), x)
    check_gradients(lambda t: functional.adaptive_avg_pool1d(t, 7), x)
    check(lambda t: functional.lp_pool1d(t.abs(), 2, 3), x)
    check(
        lambda t: functional.max_unpool1d(*functional.max_pool1d(t, 2, return_indices=True), 2), x
    )


@pytest.mark.parametrize("channels", [1, 2, 7, 16, 33])
def test_channel_counts(channels):
    x = sample(2, channels, 6, 7).contiguous(memory_format=torch.channels_last)
    for call in (
        max_pool(2, kernel_size=3, stride=2, padding=1),
        average_pool(2, kernel_size=3, stride=2, padding=1),
        lambda t: functional.adaptive_max_pool2d(t, 4, return_indices=True),
    ):
        check(call, x)
        check_gradients(call, x)


def test_large_planes():
    x = sample(2, 3, 130, 257)
    check(max_pool(2, kernel_size=3, stride=2, padding=1), x)
    check_gradients(max_pool(2, kernel_size=3, stride=2, padding=1), x)
    check_gradients(average_pool(2, kernel_size=2), x)


def test_out():
    x = sample(2, 3, 8, 9)
    strided = lambda t: torch.zeros(2, 3, 4, 4, 2, device=t.device)[..., 1]  # noqa: E731
    check(lambda t: torch.ops.aten.avg_pool2d.out(t, [2, 2], out=strided(t)), x)
    check(
        lambda t: torch.ops.aten.max_pool2d_with_indices.out(
            t, [2, 2], out=strided(t), indices=strided(t).long()
        ),
        x,
    )
    volume = sample(2, 3, 4, 5, 6)
    check(
        lambda t: torch.ops.aten.max_pool3d_with_indices.out(
            t,
            [2, 2, 2],
            out=torch.empty(0, device=t.device),
            indices=torch.empty(0, dtype=torch.int64, device=t.device),
        ),
        volume,
    )
    check(
        lambda t: torch.ops.aten.adaptive_avg_pool3d.out(
            t, [2, 2, 2], out=torch.empty(0, device=t.device)
        ),
        volume,
    )


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5, 6), (3, 4, 5, 6)])
def test_adaptive_averages_of_three_axes_are_contiguous(sizes):
    def run(device):
        x = sample(*sizes).movedim(1, -1).contiguous().movedim(-1, 1).to(device).requires_grad_()
        out = functional.adaptive_avg_pool3d(x, 2)
        return [out, *torch.autograd.grad(out.square().sum(), x)]

    for actual, expected in zip(run("ocl"), run("cpu"), strict=True):
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual.cpu(), expected)


def strides_of_results(call, x):
    x.requires_grad_()
    results = call(x)
    results = results if isinstance(results, tuple) else (results,)
    return [told_strides(t) for t in (*results, *torch.autograd.grad(results[0].sum(), x))]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_strides(axes, batch):
    """CPU torch's, also where a size of 1 or a missing batch makes formats hard to tell."""

    def unpool(t):
        indices = torch.zeros_like(t, dtype=torch.int64)
        return getattr(functional, f"max_unpool{axes}d")(t.detach(), indices, 2) + 0 * t.sum()

    calls = [
        max_pool(axes, kernel_size=2, stride=1, padding=1),
        average_pool(axes, kernel_size=2, stride=1, padding=1),
        lambda t: getattr(functional, f"adaptive_max_pool{axes}d")(t, 2, return_indices=True),
        lambda t: getattr(functional, f"adaptive_avg_pool{axes}d")(t, 2),
        unpool,
    ]
    whole = (*batch, 3, *range(4, 4 + axes))
    shapes = [whole] + [(*whole[:d], 1, *whole[d + 1 :]) for d in range(len(whole))]
    for shape in shapes:
        x = sample(*shape)
        choices = [*dense_strides(shape), x.movedim(-1, 0).contiguous().movedim(0, -1).stride()]
        if not batch:  # channels last
            choices.append(x.movedim(0, -1).contiguous().movedim(-1, 0).stride())
        for number, strides in itertools.product(range(len(calls)), choices):
            found = []
            # CPU torch's gradient of unpooling takes no channels last, its pools not all layouts.
            with contextlib.suppress(RuntimeError):
                found.append(strides_of_results(calls[number], laid_out(x, strides)))
            if found:
                found.append(strides_of_results(calls[number], laid_out(x.to("ocl"), strides)))
                assert found[0] == found[1], (number, shape, strides)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: functional.max_pool2d(t, 3, padding=2),
        lambda t: functional.max_pool2d(t, 20),
        lambda t: functional.max_pool2d(t, 2, stride=0),
        lambda t: functional.max_pool2d(t[0, 0], 2),
        lambda t: functional.max_pool2d(t.bool(), 2),
        lambda t: functional.max_pool2d(t[:, :0], 2),
        lambda t: functional.max_pool3d(t, 3, padding=2),
        lambda t: functional.max_pool3d(t, (1, 20, 1)),
        lambda t: functional.max_pool3d(t, 2, dilation=0),
        lambda t: functional.max_pool3d(t.bool(), 2),
        lambda t: functional.max_pool3d(t[:, :, :0], 1),
        lambda t: torch.ops.aten.max_pool3d_with_indices(t, [2, 2]),
        lambda t: functional.avg_pool2d(t.int(), 2),
        lambda t: functional.avg_pool2d(t, 2, divisor_override=0),
        lambda t: functional.avg_pool3d(t.half(), 2),
        lambda t: functional.adaptive_avg_pool2d(t, (2, 2, 2)),
        lambda t: functional.adaptive_avg_pool2d(t, (-1, 2)),
        lambda t: functional.adaptive_avg_pool2d(t[..., :0], 2),
        lambda t: functional.adaptive_avg_pool2d(t.long(), 2),
        lambda t: functional.adaptive_avg_pool3d(t[0, 0], 2),
        lambda t: functional.adaptive_max_pool2d(t.long(), 2),
        lambda t: functional.fractional_max_pool2d(t, 2, 20),
        lambda t: torch.ops.aten.max_unpool2d(t, t, [4, 4]),
        lambda t: torch.ops.aten.max_unpool2d(t, t.long(), [4]),
        lambda t: torch.ops.aten.max_unpool2d(t, t[:1].long(), [4, 4]),
        lambda t: torch.ops.aten.max_unpool3d(t, t.long(), [4, 4, 4], [0, 1, 1], [0, 0, 0]),
        lambda t: torch.ops.aten._adaptive_avg_pool2d_backward(t[..., :0], t),
    ],
)
def test_bad_arguments(call):
    check_error(call, sample(2, 3, 8, 9))
