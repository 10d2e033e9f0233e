"""Attention of bfloat16 by x86's AMX (kernels/attention/forward_amx.cl), where the processor has
it; by the next of the list elsewhere."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import torch_ocl

# Batch, heads, heads of keys, queries, keys, columns of keys and of values.
SHAPES = [
    (1, 1, 1, 16, 16, 32, 32),
    (2, 3, 3, 64, 64, 64, 64),
    (1, 4, 2, 33, 70, 64, 32),
    (1, 2, 2, 100, 1, 32, 64),
    (2, 2, 2, 17, 129, 128, 128),
    (1, 2, 1, 130, 200, 96, 64),
    (1, 1, 1, 64, 1000, 256, 64),
]
MASKS = ["none", "causal", "bool", "bfloat16", "row"]


def mask_of(kind, heads, batch, queries, keys):
    if kind == "bool":
        mask = torch.rand(batch, 1, queries, keys) > 0.3
        mask[0, 0, queries // 2] = False  # a row without a key
        return mask
    if kind == "bfloat16":
        return torch.randn(batch, heads, queries, keys).bfloat16()
    return torch.rand(1, 1, 1, keys) > 0.3 if kind == "row" and keys > 1 else None


def difference(got, wanted):
    return (got.double() - wanted).pow(2).mean().sqrt().item()


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_are_as_exact_as_the_cpus(shape, kind):
    """The error is that of CPU torch or less, against double precision. Matrix units of GPUs take
    weights that are one bfloat16, as CUDA torch does."""
    batch, heads, key_heads, queries, keys, depth, columns = shape
    torch.manual_seed(0)
    query = torch.randn(batch, heads, queries, depth).bfloat16()
    key = torch.randn(batch, key_heads, keys, depth).bfloat16()
    value = torch.randn(batch, key_heads, keys, columns).bfloat16()
    mask = mask_of(kind, heads, batch, queries, keys)
    options = {"is_causal": kind == "causal", "enable_gqa": heads != key_heads}
    wide = mask if mask is None or mask.dtype == torch.bool else mask.double()
    wanted = scaled_dot_product_attention(
        query.double(), key.double(), value.double(), attn_mask=wide, **options
    ).nan_to_num(0)
    of_cpu = scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)
    with torch_ocl.testing.dispatches() as lines:
        got = scaled_dot_product_attention(
            *(t.to("ocl") for t in (query, key, value)),
            attn_mask=None if mask is None else mask.to("ocl"),
            **options,
        ).cpu()
    properties = torch.ocl.get_device_properties(0)
    assert ("amx runs" in "\n".join(lines)) == properties.has_amx
    of_a_cpu = properties.type == "cpu"
    of_cpu = difference(of_cpu.nan_to_num(0), wanted)
    assert difference(got, wanted) <= (1.1 if of_a_cpu else 1.5) * of_cpu + 1e-5


def test_operands_that_lie_otherwise():
    """A transposed value and query, as layers have them, and results' gradients."""
    torch.manual_seed(0)
    packed = torch.randn(2, 50, 3, 4, 32).bfloat16()
    query, key, value = packed.permute(2, 0, 3, 1, 4)
    value = value.transpose(-1, -2).contiguous().transpose(-1, -2)
    query = query.transpose(-1, -2).contiguous().transpose(-1, -2)
    exact = [t.double().requires_grad_() for t in (query, key, value)]
    wanted = scaled_dot_product_attention(*exact)
    on_device = [t.to("ocl").detach().requires_grad_() for t in (query, key, value)]
    got = scaled_dot_product_attention(*on_device)
    torch.testing.assert_close(got.cpu().double(), wanted, rtol=2e-2, atol=1e-2)
    gradient = torch.randn(wanted.shape).bfloat16()
    slopes = torch.autograd.grad(got, on_device, gradient.to("ocl"))
    for slope, other in zip(
        slopes, torch.autograd.grad(wanted, exact, gradient.double()), strict=True
    ):
        torch.testing.assert_close(slope.cpu().double(), other, rtol=2e-2, atol=3e-2)


def test_infinities_and_nans():
    """A key past the range, a NaN in one query, and scores that are large."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, 40, 32).bfloat16() for _ in range(3))
    query[0, 0, 5, 3] = torch.nan
    query[0, 0, 7] *= 1000
    got = scaled_dot_product_attention(*(t.to("ocl") for t in (query, key, value))).cpu()
    wanted = scaled_dot_product_attention(query.double(), key.double(), value.double())
    assert torch.equal(got.isnan(), wanted.isnan())
    torch.testing.assert_close(got.double().nan_to_num(), wanted.nan_to_num(), rtol=2e-2, atol=1e-2)
