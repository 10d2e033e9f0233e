"""Helpers of the tests of normalisations."""

import torch

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
aten = torch.ops.aten
CHANNEL_SHAPES = [(2, 6), (1000, 35), (4, 12, 33), (2, 6, 4, 5), (3, 8, 7, 7), (2, 6, 3, 4, 5)]
CHANNEL_SHAPES += [(1, 3, 300, 301), (40, 32, 20, 20)]


def made(shape, dtype, seed=0, mean=0.5):
    """Some tensor on the CPU, with values that are representable in `dtype`."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) + mean).to(dtype)


def results(function, inputs, device, dtype=None):
    """The result and the gradients of a random combination of its elements."""
    leaves = [t.to(device, dtype or t.dtype, copy=True).requires_grad_() for t in inputs]
    out = function(*leaves)
    out.backward(made(out.shape, inputs[0].dtype, seed=9, mean=0).to(device, out.dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def check(function, inputs):
    """Compares with CPU torch in double, allowing four times the error CPU torch has in the dtype
    itself (its sums are in another order; double is its own reference), and dtypes and strides with
    CPU torch's."""
    actual = results(function, inputs, "ocl")
    expected = results(function, inputs, "cpu", torch.float64)
    in_dtype = results(function, inputs, "cpu")
    for i, (a, e, same) in enumerate(zip(actual, expected, in_dtype, strict=True)):
        assert a.dtype == same.dtype and a.shape == e.shape
        assert a.stride() == same.stride()
        if e.numel() == 0:
            continue
        scale = e.abs().max().item()
        allowed = 4 * (same.double() - e).abs().max().item() + 4 * torch.finfo(a.dtype).eps * scale
        if inputs[0].dtype == torch.float64:
            allowed = 1e-10 * max(1, scale)
        assert (a.cpu().double() - e).abs().max().item() <= allowed, f"result {i}"
