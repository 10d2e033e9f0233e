"""Second derivatives of scaled_dot_product_attention, whose first ones are the fused kernel's."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend
from torch.testing import assert_close

from tests.layouts import on_device
from tests.ops.attention import TOLERANCE, is_fused, made


def derivatives(inputs, order=2, **options):
    """Those of the given order of all inputs, in directions that don't depend on the device."""
    query, key, value, grad = inputs
    out = attend(query, key, value, **options)
    assert query.device.type == "cpu" or is_fused(out)
    results = torch.autograd.grad(out, (query, key, value), grad, create_graph=True)
    for i in range(order - 1):
        directions = made(*(r.shape for r in results), seed=2 + i)
        terms = [(r * d.to(r)).sum() for r, d in zip(results, directions, strict=True)]
        results = torch.autograd.grad(sum(terms), inputs, create_graph=i + 2 < order)
    return results


def compare(*shapes, dtype=torch.float32, order=2, **options):
    inputs = made(*shapes, (*shapes[0][:-1], shapes[2][-1]), dtype=dtype)
    here = [on_device(t).requires_grad_() for t in inputs]
    wide = [t.double().requires_grad_() for t in inputs]
    mask = options.pop("mask", None)
    wide_mask = mask.double() if mask is not None and mask.dtype != torch.bool else mask
    with sdpa_kernel(SDPBackend.MATH):
        wanted = derivatives(wide, order, attn_mask=wide_mask, **options)
    here_mask = None if mask is None else mask.to("ocl")
    got = derivatives(here, order, attn_mask=here_mask, **options)
    for actual, expected in zip(got, wanted, strict=True):
        assert_close(actual.cpu(), expected.to(dtype), **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_second_derivatives(causal, dtype):
    compare((2, 3, 7, 8), (2, 3, 9, 8), (2, 3, 9, 8), dtype=dtype, is_causal=causal)
    compare((2, 7, 8), (2, 9, 8), (2, 9, 12), dtype=dtype, is_causal=causal, scale=0.5)


def test_of_half_types():
    compare((1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), dtype=torch.bfloat16)


def test_of_masks():
    shapes = (2, 3, 7, 8), (2, 3, 9, 8), (2, 3, 9, 8)
    allowed = torch.rand(7, 9) > 0.3
    allowed[2] = False  # a row without keys
    compare(*shapes, mask=allowed)
    compare(*shapes, mask=torch.randn(2, 1, 7, 9))


def test_of_grouped_heads():
    compare((1, 4, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), enable_gqa=True)


def test_third_derivatives():
    compare((1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), dtype=torch.float64, order=3)


def test_of_some_inputs():
    """Penalties on the gradient of one input, the others without."""
    query, key, value = made((1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8), dtype=torch.float64)
    results = []
    for device in ("cpu", "ocl"):
        q = query.detach().clone().to(device).requires_grad_()
        with sdpa_kernel([SDPBackend.MATH] if device == "cpu" else [SDPBackend.OVERRIDEABLE]):
            out = attend(q, key.to(device), value.to(device))
        (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        first.norm().backward()
        results.append(q.grad.cpu())
    assert_close(results[1], results[0])


@pytest.mark.parametrize("dropout", [0.3, 1.0])
@pytest.mark.parametrize("heads", [2, 4])
def test_dropout(dropout, heads):
    """The weights that were dropped stay dropped: a one for each key as its value shows which."""
    shapes = (3, 4, 5, 8), (3, heads, 7, 8), (3, heads, 7, 8)
    query, key, value = (t.to("ocl") for t in made(*shapes, dtype=torch.float64))

    def fused(q, k, v):
        torch.manual_seed(5)
        return attend(q, k, v, dropout_p=dropout, enable_gqa=heads < 4)

    ones = torch.eye(7, dtype=torch.float64, device="ocl").expand(3, heads, 7, 7)
    kept = fused(query, key, ones)
    whole = attend(query, key, ones, enable_gqa=heads < 4)
    factors = kept / whole

    def composed(q, k, v):
        k, v = (t.repeat_interleave(4 // heads, 1) for t in (k, v))
        return ((q @ k.mT / 8**0.5).softmax(-1) * factors) @ v

    results = []
    for function in (fused, composed):
        inputs = [t.clone().requires_grad_() for t in (query, key, value)]
        out = function(*inputs)
        first = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(t.square().sum() for t in first), inputs)
        results.append([out, *first, *second])
    for got, expected in zip(*results, strict=True):
        assert_close(got.cpu(), expected.cpu())
