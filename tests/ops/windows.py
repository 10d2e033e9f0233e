"""Convolutions whose operands a matrix product finds in the windows, beside CPU torch's."""

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from torch_ocl import testing

# Images, weight, and what the window is: channels that fill no chunk, few channels, strides larger
# than the window, groups, dilation, one to three axes, several tiles of rows and columns.
CASES = [
    ((2, 8, 9, 10), (8, 8, 3, 3), {"padding": 1}),
    ((2, 16, 9, 11), (24, 16, 3, 3), {"padding": 1, "stride": 2}),
    ((1, 3, 20, 22), (16, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((3, 16, 7, 7), (5, 16, 1, 1), {}),
    ((2, 16, 8, 9), (32, 8, 3, 3), {"padding": 2, "dilation": 2, "groups": 2}),
    ((2, 40, 12, 12), (72, 40, 3, 3), {"padding": 1}),
    ((1, 64, 6, 6), (130, 64, 1, 1), {"stride": 3}),
    ((2, 24, 5, 6), (7, 24, 5, 5), {"padding": 2}),
    ((2, 12, 40), (9, 12, 4), {"stride": 3, "padding": 2}),
    ((2, 8, 4, 5, 6), (8, 8, 3, 2, 3), {"padding": 1, "stride": (2, 1, 1)}),
]
TRANSPOSED = [((2, 16, 5, 6), (16, 9, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1})]


def quarters(*shape, generator):
    """Their products' sums are exact in float, whatever the order of summation."""
    return torch.randint(-4, 5, shape, generator=generator).float() / 4


def results(shape, weight, window, transposed, dtype, device, last):
    """The result and the gradients of input, weight and bias."""
    g = torch.Generator().manual_seed(1)
    axes = len(shape) - 2
    channels = weight[1] if transposed else weight[0]
    given = [quarters(*s, generator=g).to(dtype) for s in (shape, weight, (channels,))]
    given = [t.to(device) for t in given]
    if last and axes > 1:
        kind = torch.channels_last if axes == 2 else torch.channels_last_3d
        given[:2] = [t.contiguous(memory_format=kind) for t in given[:2]]
    given = [t.requires_grad_() for t in given]
    call = getattr(F, f"conv{'_transpose' if transposed else ''}{axes}d")
    y = call(*given, **window)
    grad = quarters(*y.shape, generator=g).to(dtype).to(device)
    return y.detach(), *torch.autograd.grad(y, given, grad)


def check(name: str, dtypes: str) -> None:
    """All cases by one implementation of gemm, in dtypes ("float32,bfloat16")."""
    cases = [(*case, False) for case in CASES] + [(*case, True) for case in TRANSPOSED]
    for dtype in (getattr(torch, each) for each in dtypes.split(",")):
        for shape, weight, window, transposed in cases:
            wanted = results(shape, weight, window, transposed, torch.float32, "cpu", False)
            for last in (False, True):
                forced = testing.force(gemm=name, convolution="implicit_gemm")
                with forced, testing.dispatches() as lines:
                    found = results(shape, weight, window, transposed, dtype, "ocl", last)
                assert sum(f", windows: {name} runs" in line for line in lines) >= 3, lines
                for actual, expected in zip(found, wanted, strict=True):
                    assert_close(actual.cpu(), expected.to(dtype))
