"""Convolutions with few windows, by im2col into vectors, against CPU torch.

A vector is copied as a whole where its windows follow each other. In some of these shapes its last
window lies as far behind its first as in a run, though another image begins in between.
"""

import itertools

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("images", [2, 3, 5])
def test_lines_of_short_images(dtype, images):
    for channels, length, kernel in itertools.product((1, 2, 3), range(3, 10), (1, 2, 3)):
        # Small integers, so that sums are exact in any order.
        x = torch.randint(-3, 4, (images, channels, length)).to(dtype)
        weight = torch.randint(-3, 4, (64, channels, kernel)).to(dtype)
        got = functional.conv1d(x.to("ocl"), weight.to("ocl")).cpu()
        shapes = f"{tuple(x.shape)}, {tuple(weight.shape)}"
        assert torch.equal(got, functional.conv1d(x, weight)), shapes


@pytest.mark.parametrize(
    "shape, weight, options",
    [
        ((4, 16, 7, 3), (96, 16, 3, 3), {"padding": (0, 1), "dilation": (1, 2)}),
        ((2, 9, 6, 5), (384, 3, 1, 3), {"padding": (0, 1), "dilation": (2, 1), "groups": 3}),
        ((1, 16, 6, 6, 7), (33, 16, 1, 3, 2), {"stride": (1, 1, 2), "dilation": (1, 2, 1)}),
        ((3, 2, 4), (31, 2, 2), {"stride": 2, "padding": 1}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_lines_of_small_images(shape, weight, options, dtype, turned):
    """With gradients, and an input whose first dimension is innermost."""
    call = (functional.conv1d, functional.conv2d, functional.conv3d)[len(shape) - 3]
    x, w = (torch.randint(-3, 4, s).to(dtype) for s in (shape, weight))
    if turned:
        back = tuple(reversed(range(x.dim())))
        x = x.permute(back).contiguous().permute(back)
    results = []
    for device in ("cpu", "ocl"):
        leaves = [t.to(device).requires_grad_() for t in (x, w)]
        y = call(*leaves, **options)
        results.append([y.detach(), *torch.autograd.grad(y.square().sum(), leaves)])
    for got, want in zip(results[1], results[0], strict=True):
        assert_close(got.cpu(), want, rtol=0, atol=0)
