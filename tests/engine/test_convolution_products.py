"""Convolutions that are matrix products on GPUs, against CPU torch."""

import pytest
import torch

from tests.as_gpu import run_as_gpu
from tests.ops.spatial import sample
from tests.ops.test_convolution import CALLS, check_all, weight_shape


@pytest.mark.parametrize("last,channels", [(False, 9), (True, 9), (True, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_products(last, channels, dtype):
    """Windows of one element, and windows side by side."""
    tolerance = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {}
    for axes, size, transposed, kernel in (
        (2, (12, 13), False, 1),
        (2, (12, 13), True, 1),
        (2, (5, 6), True, 2),
        (2, (16, 7), True, (1, 3)),
        (1, (140,), False, 1),
        (1, (11,), True, 3),
        (3, (3, 4, 5), True, (1, 2, 3)),
    ):
        kernels = (kernel,) * axes if isinstance(kernel, int) else kernel
        x = sample(3, 20, *size, dtype=dtype) / 8
        weight = (
            sample(*weight_shape(20, channels, 1, kernels, transposed), dtype=dtype, seed=1) / 8
        )
        # CPU torch's results of float64 volumes are contiguous.
        if last and (axes == 2 or axes == 3 and dtype != torch.float64):
            innermost = torch.channels_last if axes == 2 else torch.channels_last_3d
            x, weight = (t.contiguous(memory_format=innermost) for t in (x, weight))
        for bias in (sample(channels, dtype=dtype, seed=2), None):
            check_all(
                lambda a, b, c, call=CALLS[axes, transposed], k=kernels: call(
                    a, b, c, stride=k if len(k) > 1 else k[0]
                ),
                x,
                weight,
                bias,
                f"{axes}d {kernel}",
                **tolerance,
            )


@pytest.mark.parametrize("call", [torch.conv2d, torch.conv_transpose2d])
@pytest.mark.parametrize("batch", [1, 2])
def test_expanded_operands(call, batch):
    """A sum's gradient, and an input, whose positions are all the same element."""
    weight = sample(3, 3, 1, 1, seed=1)
    shape = (batch, 3, 5, 4)
    # Expanded where they are used: a copy to the device would be dense.
    for x, last in (
        (sample(*shape), True),
        (torch.tensor(2.5), False),
        (sample(batch, 3, 1, 1), False),
        (sample(1, 3, 1, 1), True),
    ):
        if last:
            x = x.to(memory_format=torch.channels_last)
        gradients = []
        for device in ("cpu", "ocl"):
            a, b = (t.detach().to(device).requires_grad_() for t in (x, weight))
            result = call(a.expand(shape), b)
            result.sum().backward()
            gradients.append([t.detach().cpu() for t in (result, a.grad, b.grad)])
        torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.as_gpu
def test_as_a_gpu():
    run_as_gpu(__file__)
