"""Convolutions of few channels per group, whose sums run along positions on CPUs: in both memory
formats, where lines and channels fill vectors and where they don't."""

import pytest
import torch
from torch.nn import functional

from tests.ops.spatial import sample
from tests.ops.test_convolution import check_all


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("width", [9, 15, 16, 37])
@pytest.mark.parametrize(
    "groups, inputs, outputs", [(8, 8, 8), (4, 5, 4), (3, 6, 3), (2, 9, 9), (16, 2, 2)]
)
def test_groups(groups, inputs, outputs, width, last):
    x = sample(2, groups * inputs, 6, width) / 4
    weight = sample(groups * outputs, inputs, 3, 3, seed=1) / 4
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    for window in ({"padding": 1}, {"stride": 2, "padding": 1}, {}, {"stride": 3, "dilation": 2}):
        if window.get("dilation") and width < 10:
            window = {"dilation": (2, 1)}
        check_all(
            lambda u, v, b, window=window: functional.conv2d(u, v, b, groups=groups, **window),
            x,
            weight,
            sample(groups * outputs, seed=2),
            f"{window}",
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtypes(dtype, last):
    x = sample(2, 32, 5, 21, dtype=dtype) / 8
    weight = sample(32, 8, 3, 3, dtype=dtype, seed=1) / 8
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    check_all(
        lambda u, v, b: functional.conv2d(u, v, b, padding=1, groups=4),
        x,
        weight,
        sample(32, dtype=dtype, seed=2) / 8,
    )


@pytest.mark.parametrize("last", [False, True])
def test_volumes_and_lines(last):
    x = sample(2, 16, 3, 4, 18)
    if last:
        x = x.contiguous(memory_format=torch.channels_last_3d)
    check_all(
        lambda u, v, b: functional.conv3d(u, v, b, padding=1, groups=2),
        x / 4,
        sample(16, 8, 3, 3, 3, seed=1) / 4,
        sample(16, seed=2),
        rtol=1e-4,
        atol=1e-4,
    )
    line = sample(3, 33, 16).mT if last else sample(3, 16, 33)
    check_all(
        lambda u, v, b: functional.conv1d(u, v, b, padding=2, groups=4),
        line,
        sample(20, 4, 5, seed=1),
        None,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("last", [False, True])
def test_special_values(last):
    """Reach the windows that hold them, and no other group's results."""
    x = sample(1, 16, 6, 20)
    x[0, 0, 3, 3], x[0, 9, 5, 19], x[0, 9, 0, 0] = float("nan"), float("inf"), float("-inf")
    weight = sample(16, 8, 3, 3, seed=1)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    check_all(lambda u, v, b: functional.conv2d(u, v, b, padding=1, groups=2), x, weight, None)
