"""Positions that gradients of max pooling are given: those outside of their plane are told with all
their 64 bits."""

import pytest
import torch

aten = torch.ops.aten
#: Each kernel of the gradient: over planes, over channels (CPUs), over windows.
SHAPES = {
    "planes": ((4, 24), torch.contiguous_format),
    "channels": ((4, 32), torch.channels_last),
    "few planes": ((1, 1), torch.contiguous_format),
    "strided": ((2, 12), torch.channels_last),
}
SIZES = {2: (9, 8), 3: (5, 6, 8)}


def fixed(x, axes):
    window = [2] * axes, [2] * axes, [0] * axes, [1] * axes, False
    name = f"max_pool{axes}d_with_indices"
    out, positions = getattr(aten, name)(x, *window)
    return positions, lambda p: getattr(aten, name + "_backward")(
        torch.ones_like(out), x, *window, p
    )


def adaptive(x, axes):
    name = f"adaptive_max_pool{axes}d"
    out, positions = getattr(aten, name)(x, [3] * axes)
    return positions, lambda p: getattr(aten, name + "_backward")(torch.ones_like(out), x, p)


def fractional(x, axes):
    name = f"fractional_max_pool{axes}d"
    window = [2] * axes, [3] * axes
    samples = torch.full((*x.shape[:2], axes), 0.5, dtype=x.dtype, device=x.device)
    out, positions = getattr(aten, name)(x, *window, samples)
    return positions, lambda p: getattr(aten, name + "_backward")(
        torch.ones_like(out), x, *window, p
    )


def pooled(pool, axes, shape, dtype=torch.float32):
    """Positions on the device, and the gradient as a function of them."""
    sizes, layout = SHAPES[shape]
    if axes == 3 and layout is torch.channels_last:
        layout = torch.channels_last_3d
    x = torch.randn(*sizes, *SIZES[axes], dtype=dtype).contiguous(memory_format=layout)
    return pool(x.to("ocl"), axes)


@pytest.mark.parametrize("value", [1 << 40, -(1 << 40), -2, "count", (1 << 63) - 1])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("pool", [fixed, adaptive, fractional])
def test_positions_outside_are_told(pool, axes, shape, value):
    positions, gradient = pooled(pool, axes, shape)
    if value == "count":
        value = torch.Size(SIZES[axes]).numel()
    positions[-1, -1, -1, -1] = value
    with pytest.raises(IndexError, match=rf"index {value} is out of range"):
        gradient(positions).cpu()
    torch.ocl.synchronize()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pool", [fixed, adaptive])
def test_positions_outside_are_told_of_other_dtypes(pool, shape, dtype):
    positions, gradient = pooled(pool, 2, shape, dtype)
    positions[0, 0, 0, 1] = 1 << 40
    with pytest.raises(IndexError, match=str(1 << 40)):
        gradient(positions).cpu()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axes", [2, 3])
def test_windows_without_a_position(axes, shape):
    """CPU torch passes over -1."""
    positions, gradient = pooled(fixed, axes, shape)
    whole = gradient(positions)
    positions[0, 0] = -1
    without = gradient(positions)
    assert without[0, 0].abs().sum() == 0 and whole[0, 0].abs().sum() > 0
    assert torch.equal(without.flatten(0, 1)[1:], whole.flatten(0, 1)[1:])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pool", [adaptive, fractional])
def test_other_windows_have_a_position(pool, shape):
    positions, gradient = pooled(pool, 2, shape)
    positions[0, 0, 0, 0] = -1
    with pytest.raises(IndexError, match="index -1 is out of range"):
        gradient(positions).cpu()
