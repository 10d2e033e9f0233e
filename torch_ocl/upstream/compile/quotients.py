"""Quotients of floats that are rounded down, as eager ops have them.

Inductor takes the floor of the quotient: div_mode() in torch/_inductor/lowering.py. One that rounds
up to a whole number is 1 too large then, as of 1.0 by 0.1. A negative number by infinity is -0.0,
not -1.0, and infinity by a number is infinity, not NaN. Here they come from the exact remainder, as
Python's do. A change for graphs on ocl alone, which PyTorch 2.11 and 2.13 need.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def install() -> None:
    """Replaces the lowering, once."""
    from torch._inductor import lowering

    div = torch.ops.aten.div
    upstream = lowering.lowerings[div.Tensor_mode]

    @functools.wraps(upstream)
    def div_mode(a: Any, b: Any, *, rounding_mode: str | None) -> Any:
        tensors = [x for x in (a, b) if hasattr(x, "get_device")]  # the other is a number
        on_ocl = any(x.get_device().type == "ocl" for x in tensors)
        if rounding_mode == "floor" and on_ocl and tensors[0].get_dtype().is_floating_point:
            return lowering.make_pointwise(_rounded_down(tensors[0].get_dtype()))(a, b)
        return upstream(a, b, rounding_mode=rounding_mode)

    lowering.register_lowering([div.Tensor_mode, div.Scalar_mode], broadcast=True)(div_mode)


def _rounded_down(dtype: torch.dtype) -> Any:
    from torch._inductor.virtualized import ops

    def quotient(a: Any, b: Any) -> Any:
        zero, half, one = (ops.constant(n, dtype) for n in (0.0, 0.5, 1.0))
        rest = ops.fmod(a, b)
        signs_differ = ops.logical_xor(ops.lt(b, zero), ops.lt(rest, zero))
        exact = ops.truediv(ops.sub(a, rest), b)
        step = ops.logical_and(ops.ne(rest, zero), signs_differ)
        exact = ops.where(step, ops.sub(exact, one), exact)
        below = ops.floor(exact)
        # The division may have rounded: the nearest whole number is right.
        nearest = ops.where(ops.gt(ops.sub(exact, below), half), ops.add(below, one), below)
        inexact = ops.truediv(a, b)
        result = ops.where(ops.ne(exact, zero), nearest, ops.copysign(zero, inexact))
        return ops.where(ops.eq(b, zero), inexact, result)

    return quotient
