"""Pooling, resampling and padding of images whose channels lie innermost. GPUs take four channels
at a time where there are enough of them, and single ones where four don't divide them."""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu

FUNCTIONS = {
    "max_pool2d": lambda x: functional.max_pool2d(x, 3, 2, 1, return_indices=True),
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 3, 2, 1),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, (37, 33)),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x, (37, 33)),
    "nearest": lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"),
    "bilinear": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "zeros": lambda x: functional.pad(x, (1, 2, 3, 1)),
    "reflect": lambda x: functional.pad(x, (1, 2, 3, 1), mode="reflect"),
}


def results(function, x, device):
    """The results and the gradient, on the CPU."""
    x = x.detach().to(device).requires_grad_()
    out = function(x)
    out = out if isinstance(out, tuple) else (out,)
    cotangent = torch.randn(out[0].shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    out[0].backward(cotangent.to(device).contiguous(memory_format=torch.channels_last))
    return [t.detach().cpu() for t in (*out, x.grad)]


@pytest.mark.parametrize(
    "dtype, channels, shift",
    [
        (torch.float32, 64, 0),
        (torch.float32, 66, 0),  # no vectors
        (torch.float32, 64, 1),  # none that are aligned
        (torch.bfloat16, 64, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_channels_innermost(name, dtype, channels, shift):
    generator = torch.Generator().manual_seed(0)
    lines = torch.randn(16 * 65 * 65 * channels + shift, generator=generator).to(dtype)[shift:]
    x = lines.view(16, 65, 65, channels).permute(0, 3, 1, 2)
    expected, actual = (results(FUNCTIONS[name], x, device) for device in ("cpu", "ocl"))
    # CPU torch adds up overlapping windows' gradients in the dtype itself.
    tolerance = {"rtol": 2e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {}
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e, **tolerance)


@pytest.mark.slow
def test_as_gpu():
    run_as_gpu(__file__)
