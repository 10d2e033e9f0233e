"""Depthwise convolutions: a group for each channel."""

import pytest
import torch
from torch.nn import functional

from tests.as_gpu import run_as_gpu
from tests.ops.convolutions import CALLS, check_all
from tests.ops.spatial import sample


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_depthwise(multiplier, stride, last):
    x = sample(2, 48, 17, 19)
    weight = sample(48 * multiplier, 1, 3, 3, seed=1)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
        weight = weight.contiguous(memory_format=torch.channels_last)
    check_all(
        lambda a, b, c: functional.conv2d(a, b, c, padding=1, stride=stride, groups=48),
        x,
        weight,
        sample(48 * multiplier, seed=2),
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("last", [False, True])
def test_depthwise_windows(transposed, stride, last):
    """Windows over images narrower than a vector, with a rest, and wider than a block."""
    call = CALLS[2, transposed]
    for channels, size, kernel, padding in (
        (20, (7, 7), (3, 3), 1),
        (20, (14, 14), (3, 3), 0),
        (5, (33, 45), (5, 5), 2),
        (16, (3, 31), (1, 4), (0, 2)),
        (6, (9, 1), (3, 1), (1, 0)),
        (4, (23, 37), (7, 7), 3),
        (12, (5, 700), (3, 2), 1),
        (3, (150, 18), (2, 3), (0, 1)),
        (9, (8, 8), (3, 3), (5, 4)),
    ):
        if transposed and channels == 9:
            padding = (2, 1)
        x, weight = sample(2, channels, *size), sample(channels, 1, *kernel, seed=1)
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        check_all(
            lambda a, b, c, k=(padding, channels): call(
                a, b, c, padding=k[0], stride=stride, groups=k[1]
            ),
            x,
            weight,
            sample(channels, seed=2),
            f"{channels} channels of {size}, kernel {kernel}",
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_depthwise_dtypes(dtype, last):
    x = sample(2, 12, 9, 21, dtype=dtype) / 4
    weight = sample(12, 1, 3, 3, dtype=dtype, seed=1) / 4
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    for stride in (1, 2):
        check_all(
            lambda a, b, c, s=stride: functional.conv2d(a, b, c, padding=1, stride=s, groups=12),
            x,
            weight,
            sample(12, dtype=dtype, seed=2),
        )


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_lines(stride):
    """One axis, and multiples of the channels."""
    for channels, multiplier in ((16, 1), (5, 3)):
        x = sample(3, channels, 75)
        weight = sample(channels * multiplier, 1, 5, seed=1)
        check_all(
            lambda a, b, c, g=channels: functional.conv1d(
                a, b, c, padding=2, stride=stride, groups=g
            ),
            x,
            weight,
            sample(channels * multiplier, seed=2),
        )


@pytest.mark.parametrize("last", [False, True])
def test_depthwise_special_values(last):
    """A NaN reaches what a window over it gives, nothing else, at the ends of lines too."""
    x, weight = sample(2, 16, 9, 35), sample(16, 1, 3, 3, seed=1)
    x[0, 0, 3, 34], x[0, 1, 6, 15], x[1, 2, 8, 0] = float("nan"), float("inf"), float("nan")
    x[1, 3, 0, 17] = float("-inf")
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    for stride in (1, 2):
        check_all(
            lambda a, b, c, s=stride: functional.conv2d(a, b, c, stride=s, groups=16),
            x,
            weight,
            None,
        )


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)
