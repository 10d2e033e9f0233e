"""Convolutions, transposed ones, and their gradients, against CPU torch."""

import functools
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.as_gpu import run_as_gpu
from tests.layouts import on_device
from tests.ops.convolutions import CALLS, check_all
from tests.ops.spatial import check_error, formats, same, sample

SIZES = {1: (37,), 2: (9, 14), 3: (5, 7, 8)}
WINDOWS = [
    {},
    {"padding": 1},
    {"stride": 2, "padding": 1},
    {"stride": 3, "padding": 2, "dilation": 2},
    {"stride": 2, "dilation": 3, "padding": 4},
]


def weight_shape(inputs, outputs, groups, kernel, transposed):
    if transposed:
        return (inputs, outputs // groups, *kernel)
    return (outputs, inputs // groups, *kernel)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_windows(axes, transposed, window, groups):
    kernels = [(3,) * axes, (1, 2, 4)[-axes:]]
    for kernel in kernels:
        x = sample(3, 6, *SIZES[axes])
        weight = sample(*weight_shape(6, 12, groups, kernel, transposed), seed=1)
        bias = sample(12, seed=2)
        call = CALLS[axes, transposed]
        check_all(
            lambda a, b, c, call=call: call(a, b, c, groups=groups, **window),
            x,
            weight,
            bias,
            f"kernel {kernel}",
        )


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_formats(axes, transposed, stride):
    call = CALLS[axes, transposed]
    x = sample(2, 18, *SIZES[axes])
    weight = sample(*weight_shape(18, 35, 1, (3,) * axes, transposed), seed=1)
    for (name, a), (weight_name, b) in itertools.product(formats(x), formats(weight)):
        check_all(
            lambda u, v, c: call(u, v, c, padding=1, stride=stride),
            a,
            b,
            None,
            f"{name}, {weight_name}",
        )


@pytest.mark.parametrize("channels", [(1, 1), (3, 64), (64, 3), (33, 31), (64, 96), (130, 17)])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("last", [False, True])
def test_channels(channels, kernel, last):
    inputs, outputs = channels
    x = sample(2, inputs, 20, 23) / 8
    weight = sample(outputs, inputs, kernel, kernel, seed=1) / 8
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    check_all(
        lambda a, b, c: functional.conv2d(a, b, c, padding=kernel // 2),
        x,
        weight,
        sample(outputs, seed=2),
        rtol=1e-5,
        atol=1e-4,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 8])
def test_dtypes(dtype, transposed, groups):
    x = sample(2, 8, 11, 13, dtype=dtype) / 4
    weight = sample(*weight_shape(8, 16, groups, (3, 3), transposed), dtype=dtype, seed=1) / 4
    call = CALLS[2, transposed]
    check_all(
        lambda a, b, c: call(a, b, c, padding=1, groups=groups),
        x,
        weight,
        sample(16, dtype=dtype, seed=2),
    )


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.complex64]
)
def test_other_dtypes(dtype):
    x, weight = sample(2, 4, 9, 8, dtype=dtype), sample(6, 4, 3, 3, dtype=dtype, seed=1)
    same(
        functional.conv2d(on_device(x), on_device(weight), padding=1),
        functional.conv2d(x, weight, padding=1),
        "result",
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_windows(transposed, last, dtype):
    """Fewer positions than channels, and sums over few positions for the weight's gradient."""
    call = CALLS[2, transposed]
    for inputs, outputs, size, stride, groups in (
        (40, 150, (2, 4), 1, 1),
        (130, 66, (7, 5), 2, 2),
        (70, 140, (1, 19), 1, 1),
    ):
        x = sample(3, inputs, *size, dtype=dtype) / 8
        shape = weight_shape(inputs, outputs, groups, (3, 3), transposed)
        weight = sample(*shape, dtype=dtype, seed=1) / 8
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        check_all(
            lambda a, b, c, s=stride, g=groups: call(a, b, c, padding=1, stride=s, groups=g),
            x,
            weight,
            sample(outputs, dtype=dtype, seed=2),
            f"{inputs} to {outputs} of {size}",
            **({"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {}),
        )


def test_long_sums():
    """More channels than are summed in registers at a time, and more images than fit at once. CPU
    torch's own sums over all positions are an order of magnitude less accurate."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 700, 6, 7, generator=generator)
    weight = torch.randn(40, 700, 3, 3, generator=generator) / 80
    call = functools.partial(functional.conv2d, padding=1)
    check_all(call, x, weight, None, wider=torch.float64, rtol=1e-5, atol=1e-4)
    x = torch.randn(24, 16, 150, 160, generator=generator)
    weight = torch.randn(16, 16, 3, 3, generator=generator) / 12
    check_all(call, x, weight, None, wider=torch.float64, rtol=1e-5, atol=2e-2)
    x = torch.randn(1, 2, 40000, generator=generator)
    weight = torch.randn(3, 2, 5, generator=generator)
    check_all(functional.conv1d, x, weight, None, wider=torch.float64, rtol=1e-5, atol=2e-2)


def test_padding_of_windows():
    x, weight = sample(2, 4, 10, 9), sample(6, 4, 3, 2, seed=1)
    for arguments in (
        {"padding": "same"},
        {"padding": "same", "dilation": 2},
        {"padding": "valid"},
        {"padding": (2, 0), "stride": (1, 3)},
        {"padding": 5},
    ):
        check_all(lambda a, b, c, k=arguments: functional.conv2d(a, b, c, **k), x, weight, None)


@pytest.mark.parametrize("output_padding", [0, 1, (1, 2)])
def test_output_padding(output_padding):
    x, weight = sample(2, 4, 5, 6), sample(4, 3, 3, 3, seed=1)
    check_all(
        lambda a, b, c: functional.conv_transpose2d(
            a, b, c, stride=3, padding=1, output_padding=output_padding
        ),
        x,
        weight,
        sample(3, seed=2),
    )


@pytest.mark.parametrize("transposed", [False, True])
def test_windows_that_leave_gaps(transposed):
    """A stride past the window: elements of the (transposed: result) input that nothing covers."""
    call = CALLS[2, transposed]
    x, weight = sample(2, 4, 11, 12), sample(4, 4, 2, 2, seed=1)
    check_all(lambda a, b, c: call(a, b, c, stride=5), x, weight, sample(4, seed=2))


@pytest.mark.parametrize("first_is_last", [True, False])
@pytest.mark.parametrize(
    "inputs, outputs, window", [(24, 3, (1, 5)), (32, 6, (2, 3)), (24, 3, (3, 5)), (40, 7, (1, 9))]
)
def test_gradients_of_transposed_weights_in_mixed_layouts(first_is_last, inputs, outputs, window):
    """Neighbouring rows of the weight's gradient lie apart, and turn over within a tile."""
    x, weight = sample(2, inputs, 8, 8), sample(inputs, outputs, *window, seed=1)
    grad = sample(*functional.conv_transpose2d(x, weight).shape, seed=2)
    layouts = [torch.channels_last, torch.contiguous_format]
    if not first_is_last:
        layouts.reverse()
    x, grad = (t.contiguous(memory_format=f) for t, f in zip((x, grad), layouts, strict=True))

    def gradients(x, weight, grad):
        leaves = [t.detach().requires_grad_() for t in (x, weight)]
        return torch.autograd.grad(functional.conv_transpose2d(*leaves), leaves, grad)

    got = gradients(*(t.to("ocl") for t in (x, weight, grad)))
    for g, w in zip(got, gradients(x, weight, grad), strict=True):
        same(g, w, "gradient")


def test_empty():
    for x, weight in (
        (sample(0, 4, 8, 8), sample(6, 4, 3, 3)),
        (sample(2, 0, 8, 8), sample(6, 0, 3, 3)),
    ):
        check_all(functional.conv2d, x, weight, sample(6, seed=2))


@pytest.mark.parametrize(
    "call, weight",
    [
        (functional.conv2d, (4, 3, 0, 3)),
        (functional.conv_transpose2d, (3, 4, 3, 0)),
        (functional.conv_transpose2d, (3, 0, 3, 3)),
    ],
)
def test_empty_windows_and_results_are_refused(call, weight):
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError, match="kernel size should be|non-empty"):
            call(torch.ones(1, 3, 8, 8, device=device), torch.ones(weight, device=device))


def test_without_batch():
    check_all(functional.conv2d, sample(4, 8, 8), sample(6, 4, 3, 3), sample(6))
    check_all(functional.conv_transpose1d, sample(4, 8), sample(4, 6, 3), sample(6))


def test_special_values():
    x = sample(1, 2, 8, 8)
    x[0, 0, 3, 3], x[0, 1, 6, 6] = float("nan"), float("inf")
    check_all(functional.conv2d, x, sample(3, 2, 3, 3, seed=1), None)


def test_double_backward():
    def second(x, weight):
        x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
        out = functional.conv2d(x, weight, stride=2, padding=1)
        grads = torch.autograd.grad(out.square().sum(), (x, weight), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), (x, weight))

    x, weight = sample(2, 4, 7, 8) / 8, sample(6, 4, 3, 3, seed=1) / 8
    for g, w in zip(second(on_device(x), on_device(weight)), second(x, weight), strict=True):
        same(g, w, "second gradient", rtol=1e-4, atol=1e-2)


def test_forward_mode():
    def tangent(x, weight, dx):
        return torch.func.jvp(lambda t: functional.conv2d(t, weight, padding=1), (x,), (dx,))[1]

    arguments = sample(2, 4, 7, 8), sample(6, 4, 3, 3, seed=1), sample(2, 4, 7, 8, seed=5)
    same(tangent(*map(on_device, arguments)), tangent(*arguments), "tangent")


def test_vmap():
    def each(x, weight):
        return torch.func.vmap(lambda t: functional.conv2d(t, weight, padding=1))(x)

    arguments = sample(3, 2, 4, 7, 8), sample(6, 4, 3, 3, seed=1)
    same(each(*map(on_device, arguments)), each(*arguments), "batched")


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_output_padding_that_the_cpu_refuses(axes):
    x, refused = sample(1, 2, *[3] * axes), 0
    convolution = CALLS[axes, True]
    for size, stride, dilation, extra in itertools.product((1, 2), (1, 3), (1, 2), (0, 1, 2)):
        weight = sample(2, 2, *[size] * axes)
        options = {"stride": stride, "dilation": dilation, "output_padding": extra}
        try:
            expected = convolution(x, weight, **options)
        except RuntimeError:
            refused += 1
            with pytest.raises(RuntimeError, match="output padding must be smaller"):
                convolution(x.to("ocl"), weight.to("ocl"), **options)
            continue
        same(convolution(x.to("ocl"), weight.to("ocl"), **options), expected, options)
    assert refused > 0


def test_errors():
    x, weight = sample(2, 4, 8, 8), sample(6, 4, 3, 3)
    check_error(functional.conv2d, x, sample(6, 3, 3, 3))
    check_error(functional.conv2d, x, sample(6, 4, 9, 9))
    check_error(functional.conv2d, x, weight, sample(5))
    check_error(functional.conv2d, x, weight.double())
    check_error(lambda a, b: functional.conv2d(a, b, stride=0), x, weight)
    check_error(lambda a, b: functional.conv2d(a, b, dilation=0), x, weight)
    check_error(
        lambda a, b: functional.conv_transpose2d(a, b, padding=1),
        sample(1, 1, 1, 1),
        sample(1, 1, 2, 2),
    )
    check_error(lambda a, b: functional.conv2d(a, b, groups=3), x, weight)
    check_error(lambda a, b: functional.conv2d(a, b, padding=-1), x, weight)


def test_network_trains():
    """A few steps of a small network follow CPU torch's."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 8, 2, stride=2),
        nn.Conv2d(8, 8, 3, groups=8, padding=1),
        nn.Flatten(),
        nn.Linear(8 * 16 * 16, 10),
    )
    x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
    losses = {}
    state = {k: v.clone() for k, v in net.state_dict().items()}
    for device in ("cpu", "ocl"):
        net = net.to(device)
        net.load_state_dict(state)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        losses[device] = []
        for _ in range(5):
            loss = functional.cross_entropy(net(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    torch.testing.assert_close(losses["ocl"], losses["cpu"], rtol=1e-4, atol=1e-4)


PHASES = [
    {"stride": 2, "padding": 1},
    {"stride": 2},
    {"stride": 3, "padding": 2},
    {"stride": 2, "padding": 1, "output_padding": 1},
]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("window", PHASES)
@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_few_channels_and_a_stride(axes, window, kernel):
    """On GPUs sums that differ in their place between the strides are computed together."""
    x = sample(2, 7, *SIZES[axes]) / 8
    weight = sample(7, 3 if axes < 3 else 1, *(kernel,) * axes, seed=1) / 8
    for name, a in formats(x):
        check_all(
            lambda u, v, b: CALLS[axes, True](u, v, b, **window),
            a,
            weight,
            sample(weight.size(1), seed=2),
            name,
            rtol=1e-5,
            atol=1e-4,
        )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("channels,kernel,stride", [(3, 7, 2), (2, 3, 1), (5, 4, 2), (9, 3, 1)])
def test_few_channels_of_large_images(channels, kernel, stride, last):
    x = sample(2, channels, 190, 190) / 8
    weight = sample(4, channels, kernel, kernel, seed=1) / 8
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    for a, w in ((x, weight), (x[..., :-2, :-1], weight)):
        check_all(
            lambda u, v, b: functional.conv2d(u, v, b, stride=stride, padding=kernel // 2),
            a,
            w,
            sample(4, seed=2),
            rtol=1e-4,
            atol=1e-3,
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("channels,length", [(3, 38), (2, 9), (4, 33)])
def test_few_channels_dtypes(channels, length, last, dtype):
    """Their gradients lie apart in images with a stride."""
    x = sample(2, channels, 14, length, dtype=dtype) / 8
    weight = sample(10, channels, 5, 5, dtype=dtype, seed=1) / 8
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    check_all(
        lambda u, v, b: functional.conv2d(u, v, b, stride=2, padding=2),
        x,
        weight,
        sample(10, dtype=dtype, seed=2) / 8,
    )


#: An input, outputs, a window, its stride and padding.
STRIDED = [
    ((2, 3, 32, 48), 8, (16, 16), (16, 16), 0),
    ((1, 4, 8, 8), 16, (4, 4), (4, 4), 0),
    ((3, 3, 6, 8), 5, (2, 4), (2, 4), 0),
    ((2, 1, 10), 4, (5,), 5, 0),
    ((4, 3, 8, 16, 16), 8, (2, 2, 4), (2, 2, 4), 0),
    ((2, 3, 33, 49), 8, (16, 16), 16, 0),
    ((2, 3, 21, 22), 8, (7, 7), 2, 3),
    ((2, 3, 12, 13), 8, (3, 3), 2, 1),
    ((2, 2, 9, 17), 5, (1, 5), (1, 3), (0, 4)),
    ((2, 3, 9, 16), 8, (3, 2), (1, 3), 1),
    ((2, 5, 1, 1), 8, (7, 7), 2, 3),
]


@pytest.mark.parametrize("outputs", [1, 3, 8, 16])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_a_single_position_lies_both_ways(outputs, transposed):
    """Its strides are those of planes, and those of channels last."""
    call = functional.conv_transpose2d if transposed else functional.conv2d
    weight = (5, outputs, 3, 3) if transposed else (outputs, 5, 3, 3)
    check_all(
        lambda a, b, c: call(a, b, c, padding=1),
        sample(2, 5, 1, 1),
        sample(*weight, seed=1) / 4,
        sample(outputs, seed=2),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape, outputs, kernel, stride, padding", STRIDED, ids=str)
def test_columns_as_channels(shape, outputs, kernel, stride, padding, dtype):
    """Residual networks and vision transformers begin with these."""
    call = getattr(functional, f"conv{len(kernel)}d")
    planes = sample(*shape, dtype=dtype)
    for x in (planes, planes.movedim(1, -1).contiguous().movedim(-1, 1)):
        check_all(
            lambda a, b, c: call(a, b, c, stride=stride, padding=padding),
            x,
            sample(outputs, shape[1], *kernel, dtype=dtype, seed=1) / 4,
            sample(outputs, dtype=dtype, seed=2),
            **({} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}),
        )


@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "shape, outputs, kernel, stride, padding, dilation, groups",
    [
        ((2, 64, 15, 13), 72, (3, 3), 2, 1, 1, 1),
        ((2, 64, 14, 14), 64, (3, 3), 1, 1, 1, 4),
        ((3, 24, 9, 9), 40, (1, 1), 2, 0, 1, 1),
        ((2, 3, 20, 22), 64, (7, 7), 2, 3, 1, 1),
        ((2, 13, 11, 17), 17, (3, 3), 2, 0, 1, 1),
        ((1, 32, 8, 8), 64, (3, 3), 3, 0, 2, 2),
        ((2, 32, 8, 8), 64, (2, 2), 2, 0, 1, 1),
        ((2, 32, 33, 1), 32, (3, 1), 2, (1, 0), 1, 1),
        ((1, 8, 1, 1), 8, (1, 1), 1, 0, 1, 1),
        ((1, 16, 40, 40), 8, (9, 9), 1, 4, 1, 1),
    ],
)
def test_half_types_by_matrix_instructions(
    dtype, last, shape, outputs, kernel, stride, padding, dilation, groups
):
    """The shapes that matrix instructions take or leave: channels that fill no vector, groups,
    windows of 64 elements and of more, strides whose phases have no element of the window."""
    x = sample(*shape, dtype=dtype) / 4
    weight = sample(outputs, shape[1] // groups, *kernel, dtype=dtype, seed=1) / 4
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
        weight = weight.contiguous(memory_format=torch.channels_last)
    check_all(
        lambda a, b, c: functional.conv2d(a, b, c, stride, padding, dilation, groups),
        x,
        weight,
        sample(outputs, dtype=dtype, seed=2),
    )
