"""The tests of attention share these: inputs, and the comparison with CPU torch, whose reference is
computed in double precision from the same rounded inputs."""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend
from torch.testing import assert_close

from tests.layouts import on_device

FLOATS = [torch.float32, torch.float64]
HALVES = [torch.float16, torch.bfloat16]
TOLERANCE = {
    torch.float32: {"rtol": 1e-4, "atol": 2e-5},
    torch.float64: {"rtol": 1e-10, "atol": 1e-10},
    # Half an ulp of the result, and as much of each rounded result that the gradients start from.
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1.6e-2},
}


def made(*shapes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def is_fused(result):
    return "FusedAttentionOverrideable" in result.grad_fn.name()


def compare(query, key, value, mask=None, backward=True, **options):
    """Forward and backward on both devices; the mask is boolean or of the inputs' dtype."""
    dtype = query.dtype
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (query, key, value)]
    here = [on_device(t).requires_grad_() for t in (query, key, value)]
    wide_mask = mask if mask is None or mask.dtype == torch.bool else mask.double()
    wanted = attend(*wide, attn_mask=wide_mask, **options)
    got = attend(*here, attn_mask=None if mask is None else mask.to("ocl"), **options)
    assert is_fused(got)
    assert got.dtype == dtype
    assert_close(got.detach().cpu(), wanted.detach().to(dtype), equal_nan=True, **TOLERANCE[dtype])
    if not backward:
        return
    (grad,) = made(wanted.shape, dtype=dtype, seed=1)
    wanted.backward(grad.double())
    got.backward(grad.to("ocl"))
    for a, e in zip(here, wide, strict=True):
        assert a.grad.shape == a.shape
        assert_close(a.grad.cpu(), e.grad.to(dtype), **TOLERANCE[dtype])
