"""Weights of 4-bit integers as tensors: what can be done with one."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from tests.ops.test_int4 import matrix
from torch_ocl.utils.int4 import Int4Tensor


def layer(ordered=True):
    weight, exact = matrix(48, 128, 64, ordered=ordered)
    made = nn.Linear(128, 48).to("ocl")
    made.weight = nn.Parameter(weight, False)
    return made, exact.float().to("ocl")


def same(a, b):
    assert isinstance(a, Int4Tensor) and a.in_lanes == b.in_lanes and a.dtype == b.dtype
    for name in a.parts:
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left.cpu(), right.cpu())


@pytest.mark.parametrize("ordered", [True, False], ids=["", "permuted"])
def test_copies_and_moves(ordered):
    made, exact = layer(ordered)
    weight = made.weight.data
    for twin in (weight.clone(), copy.deepcopy(weight), weight.detach(), weight.cpu().to("ocl")):
        same(twin, weight)
    assert weight.clone().bits.data_ptr() != weight.bits.data_ptr()
    half = weight.to(torch.bfloat16)
    assert half.dtype == torch.bfloat16 and half.pairs is not None
    assert_close(half.dequantize(), exact.bfloat16())
    assert_close((weight + 1).cpu(), exact.cpu() + 1)
    assert "Int4Tensor(" in repr(weight) and "shape=(48, 128)" in repr(weight)
    with pytest.raises(NotImplementedError, match="can't be written"):
        weight.mul_(2)
    other, _ = layer(not ordered)
    with pytest.raises(NotImplementedError, match="copy_"):
        other.weight.data.copy_(weight)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("ordered", [True, False], ids=["", "permuted"])
def test_saved_and_loaded(ordered, weights_only):
    made, _ = layer(ordered)
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    for place in ("cpu", "ocl"):
        file.seek(0)
        state = torch.load(file, weights_only=weights_only, map_location=place)
        assert state["weight"].device.type == place
        same(state["weight"], made.weight)
    fresh, _ = layer(ordered)
    fresh.weight.bits.zero_()
    fresh.load_state_dict(state)
    same(fresh.weight, made.weight)


def test_compiled_one_after_the_other():
    """The cache of compiled code tells them apart."""
    for ordered in (False, True):
        torch.compiler.reset()
        made, exact = layer(ordered)
        compiled = torch.compile(made, fullgraph=True)
        for rows in (1, 9):
            x = torch.randn(rows, 128, device="ocl", requires_grad=True)
            found = compiled(x)
            wanted = F.linear(x, exact, made.bias)
            assert_close(found, wanted, rtol=1e-4, atol=1e-4)
            grad = torch.autograd.grad(found.pow(2).sum(), x)
            assert_close(grad, torch.autograd.grad(wanted.pow(2).sum(), x), rtol=1e-3, atol=1e-2)


def test_autocast_and_gradients_of_gradients():
    made, exact = layer(False)
    x = torch.randn(3, 128, device="ocl")
    with torch.autocast("ocl", dtype=torch.bfloat16):
        found = made(x)
    assert found.dtype == torch.bfloat16
    assert_close(found.float(), F.linear(x, exact, made.bias), rtol=5e-2, atol=0.2)
    vector = torch.randn(128, device="ocl", requires_grad=True)

    def norm(w):
        out = F.linear(vector, w)
        (first,) = torch.autograd.grad(out.pow(3).sum(), vector, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), vector)[0]

    assert_close(norm(made.weight), norm(exact), rtol=1e-3, atol=1)
