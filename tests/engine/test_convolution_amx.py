"""Convolutions of bfloat16 by x86's AMX (kernels/conv/amx.cl), where the processor has it; by the
next of the list elsewhere."""

import itertools

import pytest
import torch
from torch.nn import functional

import torch_ocl

# Batch, channels, height, width, output channels; window, stride, padding, dilation.
SHAPES = [
    ((2, 64, 56, 56, 64), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((1, 16, 9, 9, 16), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 40, 17, 33, 50), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((3, 32, 7, 7, 64), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((2, 32, 20, 24, 32), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((1, 20, 30, 12, 17), (5, 3), (2, 1), (2, 0), (2, 1)),
    ((2, 33, 14, 14, 65), (7, 7), (2, 2), (3, 3), (1, 1)),
    ((1, 16, 1, 40, 16), (1, 5), (1, 1), (0, 2), (1, 1)),
    ((2, 64, 28, 28, 48), (1, 1), (2, 2), (0, 0), (1, 1)),
    ((1, 16, 40, 40, 32), (4, 4), (3, 3), (5, 5), (1, 1)),
    ((2, 16, 3, 3, 16), (3, 3), (1, 1), (0, 0), (1, 1)),
]


def has_amx():
    return torch.ocl.get_device_properties(0).has_amx


def tensor(generator, *shape):
    return torch.randn(*shape, generator=generator).bfloat16()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layouts", list(itertools.product("pl", "pl")), ids="".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_and_gradients(shape, layouts, bias):
    """In planes and channels last, against double precision."""
    (n, channels, height, width, columns), window, *how = shape
    generator = torch.Generator().manual_seed(0)
    depth = channels * window[0] * window[1]
    x = tensor(generator, n, channels, height, width)
    weight = (tensor(generator, columns, channels, *window).float() * depth**-0.5).bfloat16()
    x, weight = (
        t.contiguous(memory_format=torch.channels_last) if layout == "l" else t
        for t, layout in zip((x, weight), layouts, strict=True)
    )
    addend = tensor(generator, columns) if bias else None
    exact = x.double().requires_grad_()
    wanted = functional.conv2d(
        exact, weight.double(), addend if not bias else addend.double(), *how
    )
    on_device = x.to("ocl").requires_grad_()
    with torch_ocl.testing.dispatches() as lines:
        got = functional.conv2d(
            on_device, weight.to("ocl"), addend.to("ocl") if bias else None, *how
        )
    assert ("amx runs" in "\n".join(lines)) == has_amx()
    close(got, wanted)
    gradient = tensor(generator, *wanted.shape)
    (of_input,) = torch.autograd.grad(got, on_device, gradient.to("ocl"))
    (of_exact,) = torch.autograd.grad(wanted, exact, gradient.double())
    close(of_input, of_exact)


def close(got, wanted):
    bound = 2**-8 * wanted.abs() + 1e-4 * wanted.abs().max()
    assert ((got.detach().cpu().double() - wanted).abs() <= bound).all()


def test_several_launches_of_images():
    """More images than a copy has room for."""
    generator = torch.Generator().manual_seed(1)
    x, weight = tensor(generator, 40, 128, 40, 40), tensor(generator, 32, 128, 3, 3)
    wanted = functional.conv2d(x.double(), weight.double(), padding=1)
    close(functional.conv2d(x.to("ocl"), weight.to("ocl"), padding=1), wanted)


def test_a_nan_stays_in_its_windows():
    """Zeros around the input, and runs that reach past a line, don't spread it."""
    x = torch.ones(1, 16, 10, 20).bfloat16()
    x[0, 3, 4, 19] = torch.nan
    weight = torch.ones(16, 16, 3, 3).bfloat16()
    wanted = functional.conv2d(x.float(), weight.float(), padding=1)
    got = functional.conv2d(x.to("ocl"), weight.to("ocl"), padding=1).cpu().float()
    assert torch.equal(got.isnan(), wanted.isnan())
    assert torch.equal(got.nan_to_num(), wanted.nan_to_num())


def test_those_that_it_leaves_to_others():
    """Groups, few channels, other dtypes and gaps along lines."""
    generator = torch.Generator().manual_seed(2)
    x = tensor(generator, 2, 32, 12, 12).to("ocl")
    few = tensor(generator, 2, 3, 12, 12).to("ocl")
    weight = tensor(generator, 32, 32, 3, 3).to("ocl")
    calls = [
        lambda: functional.conv2d(x, weight[:, :16], groups=2),
        lambda: functional.conv2d(few, weight[:, :3]),
        lambda: functional.conv2d(x.float(), weight.float()),
        lambda: functional.conv2d(x, weight, dilation=2),
        lambda: functional.conv2d(x[:0], weight),
    ]
    for call in calls:
        with torch_ocl.testing.dispatches() as lines:
            call()
        assert "amx runs" not in "\n".join(lines)
