"""Convolutions by transformed tiles (kernels/conv/winograd.cl) against CPU torch."""

import os

import pytest
import torch
from torch.nn import functional

from tests import fresh
from tests.layouts import on_device
from tests.ops.spatial import same, sample
from tests.ops.test_convolution import check_all
from torch_ocl.testing import dispatches

INF, NAN = float("inf"), float("nan")

#: Lines of 4 to 8 tiles to a strip, whole or not; odd sizes; several panels, the last one partly.
SHAPES = [
    (4, 64, 64, 28, 28),
    (3, 24, 33, 17, 29),
    (2, 40, 16, 9, 31),
    (16, 16, 48, 4, 7),
    (1, 130, 70, 21, 19),
]


def image(shape, last, **options):
    x = sample(*shape, **options) / 8
    return x.contiguous(memory_format=torch.channels_last) if last else x


def close(call, x, weight, factor=8):
    """No farther from exact sums than `factor` times what CPU torch is, in units of the largest."""
    exact = call(x.double(), weight.double())
    got = call(on_device(x), on_device(weight)).cpu().double()
    scale = torch.finfo(x.dtype).eps * exact.abs().max()
    error = max((call(x, weight).double() - exact).abs().max(), scale)
    assert (got - exact).abs().max() <= factor * error


def check_values(x, weight, padding):
    """The result and the input's gradient; sums of the weight's have an order of their own."""
    want = functional.conv2d(x, weight, padding=padding)
    same(functional.conv2d(on_device(x), on_device(weight), padding=padding), want, "result")
    # The gradient's own padding would meet the weight's infinities, which CPU torch leaves out.
    want = functional.conv_transpose2d(x, weight.transpose(0, 1).contiguous(), padding=2)
    got = functional.conv_transpose2d(
        on_device(x), on_device(weight.transpose(0, 1).contiguous()), padding=2
    )
    same(got, want, "transposed")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2, (2, 0)])
def test_paddings(shape, last, padding):
    images, inputs, outputs, *size = shape
    x, weight = image((images, inputs, *size), last), sample(outputs, inputs, 3, 3, seed=1) / 8
    bias = sample(outputs, seed=2)
    check_all(lambda a, b, c: functional.conv2d(a, b, c, padding=padding), x, weight, bias)
    check_all(lambda a, b, _: functional.conv2d(a, b, None, padding=padding), x, weight, None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_half_types(dtype, last):
    x = image((4, 32, 15, 17), last, dtype=dtype)
    weight, bias = sample(40, 32, 3, 3, dtype=dtype, seed=1) / 8, sample(40, dtype=dtype, seed=2)
    check_all(
        lambda a, b, c: functional.conv2d(a, b, c, padding=1), x, weight, bias, wider=torch.float32
    )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("groups", [2, 3])
def test_groups_and_layouts(last, groups):
    x = image((3, 16 * groups, 20, 23), last)
    weights = sample(17 * groups, 16, 3, 3, seed=1) / 8
    turned = weights.permute(1, 3, 2, 0).contiguous().permute(3, 0, 2, 1)
    for weight in (weights, weights.contiguous(memory_format=torch.channels_last), turned):
        for a in (x, x[:, :, ::2, ::2], x.transpose(-1, -2)):
            check_all(
                lambda a, b, _: functional.conv2d(a, b, None, padding=1, groups=groups),
                a,
                weight,
                None,
            )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_transposed(last, padding):
    x, weight = image((4, 32, 13, 18), last), sample(32, 24, 3, 3, seed=1) / 8
    bias = sample(24, seed=2)
    check_all(
        lambda a, b, c: functional.conv_transpose2d(a, b, c, padding=padding), x, weight, bias
    )


@pytest.mark.parametrize("last", [False, True])
def test_special_values(last):
    """Elements that windows reach are the sums of all products, elsewhere nothing changes."""
    x, weight = image((2, 16, 19, 24), last), sample(24, 16, 3, 3, seed=1) / 8
    x[0, 3, 0, 0], x[0, 4, 7, 8], x[1, 0, 18, 23], x[1, 9, 9, 12] = INF, -INF, NAN, INF
    weight[:3, 4] = 0  # times infinity
    check_values(x, weight, 1)
    weight[5, 3, 1, 1], weight[7, 2, 0, 2] = INF, NAN
    check_values(x, weight, 0)


def test_large_numbers_whose_sums_are_finite():
    """Transforms of them overflow, their products with small windows don't."""
    x = torch.full((1, 16, 16, 16), 3e38)
    weight = torch.full((16, 16, 3, 3), 1e-3)
    check_values(x, weight, 1)


@pytest.mark.parametrize("channels", [16, 64, 256, 512])
@pytest.mark.parametrize("last", [False, True])
def test_error(channels, last):
    generator = torch.Generator().manual_seed(channels)
    x = torch.randn(2, channels, 14, 14, generator=generator)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    weight = torch.randn(32, channels, 3, 3, generator=generator)
    close(lambda a, b: functional.conv2d(a, b, padding=1), x, weight)
    close(lambda a, b: functional.conv_transpose2d(a, b.transpose(0, 1), padding=1), x, weight)


SCRIPT = """
import torch
x, weight = torch.randn(2, 32, 16, 16, device="ocl"), torch.randn(32, 32, 3, 3, device="ocl")
torch.nn.functional.conv2d(x, weight, padding=1).sum().item()
"""


def test_choice():
    x, weight = (torch.randn(s, device="ocl") for s in ((2, 32, 16, 16), (32, 32, 3, 3)))
    with dispatches() as lines:
        functional.conv2d(x, weight, padding=1)
    on_cpu = torch.ocl.get_device_properties(0).type == "cpu"
    assert lines[-1].endswith("winograd runs") == on_cpu


def test_switched_off():
    """A setting, so that a whole program has the sums of all products."""
    settings = {"TORCH_OCL_VERBOSE": "dispatch", "TORCH_OCL_CONVOLUTION": "-winograd"}
    run = fresh.run_script(SCRIPT, environment={**os.environ, **settings})
    assert run.returncode == 0, run.stderr
    assert "winograd runs" not in run.stderr and "contract runs" in run.stderr


def test_the_last_one_left_out():
    """It runs where there is no other, and says so."""
    settings = {"TORCH_OCL_CONVOLUTION": "-contract"}
    script = SCRIPT.replace("32, 16, 16", "32, 5, 5")
    run = fresh.run_script(script, environment={**os.environ, **settings})
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("though TORCH_OCL_CONVOLUTION leaves it out") == 1, run.stderr
