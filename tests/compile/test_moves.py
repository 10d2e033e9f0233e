"""Compiled programs keep all bits of what they only move (torch_ocl/inductor/collect/moves.py)."""

import pytest
import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from tests.as_gpu import run_as_gpu


@pytest.mark.parametrize("columns", [6, 40])
@pytest.mark.parametrize(
    "dtype, halves",
    [
        (torch.int16, torch.float16),
        (torch.int16, torch.bfloat16),
        (torch.int32, torch.bfloat16),
        (torch.uint8, torch.float8_e4m3fn),
        (torch.int8, torch.float8_e5m2),
    ],
)
def test_integers_beside_a_write_through_a_view(columns, dtype, halves):
    """Integers that are NaN in the view."""
    x = torch.arange(-columns * 4, 0).view(4, columns).to(dtype)
    x = torch.cat([x, x & 0x7F7F]) if dtype.itemsize > 1 else torch.cat([x, x & 0x7F])

    def write(x):
        x.view(halves)[..., 1:5] = 6
        return x[1:]

    y = x.to("ocl")
    assert torch.equal(torch.compile(write)(y).cpu(), write(x))
    assert torch.equal(y.cpu(), x)


MOVES = {
    "cat": lambda x, m: torch.cat([x, x[:, 1:3], x.flip(0)], 1),
    "where": lambda x, m: torch.where(m, x, x.flip(1)),
    "masked_fill": lambda x, m: x.masked_fill(m, -2.5),
    "pad": lambda x, m: functional.pad(x, (1, 2, 3, 0), value=1.5),
    "transposed": lambda x, m: x.t().contiguous(),
    "index": lambda x, m: x[m[:, 0].long(), :4],
    "nested": lambda x, m: functional.pad(torch.where(m, x, x.roll(1, 0)), (1, 1))[:, 1:],
    "used twice": lambda x, m: (torch.where(m, x, 0), torch.where(m, x, 0).float().isnan()),
    "triangle": lambda x, m: torch.triu(torch.cat([x, x], 1), 1),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_is_only_moved_keeps_its_bits(name, dtype):
    x = torch.arange(-(1 << 15), 1 << 15, 37, dtype=torch.int16)[:1728].view(36, 48).view(dtype)
    mask = torch.rand(36, 48, generator=torch.Generator().manual_seed(1)) < 0.5
    expected = MOVES[name](x, mask)
    found = torch.compile(MOVES[name])(x.to("ocl"), mask.to("ocl"))
    for a, b in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        bits = torch.int16 if b.is_floating_point() else b.dtype
        assert torch.equal(a.cpu().view(bits), b.view(bits))


GUARDED = {
    "shift": lambda x: functional.pad(x, (1, 0))[:, :-1],
    "cut": lambda x: functional.pad(x, (1, 1), value=0.5)[..., :6],
    "moved": lambda x: functional.pad(x, (0, 2))[:, 2:],
    "resized": lambda x: functional.interpolate(x[None, None], scale_factor=2)[0, 0, :4, :6],
}


@pytest.mark.parametrize("name", GUARDED)
def test_gradients_of_parts(name):
    """A mask within another guards loads."""
    x = torch.arange(24.0).view(4, 6)
    gradients = []
    for device, wrap in (("cpu", lambda f: f), ("ocl", torch.compile)):
        y = x.clone().to(device).requires_grad_()
        wrap(GUARDED[name])(y).pow(2).sum().backward()
        gradients.append(y.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.as_gpu
def test_as_gpu():
    run_as_gpu(__file__)
