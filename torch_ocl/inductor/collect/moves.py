"""Numbers of 8 and 16 bits that a kernel only moves, as their bits.

They are computed in float, and a NaN's bits are lost on the way back. That matters where they are a
view of integers: Inductor writes a part of them by a select over all of them. So what is loaded,
chosen by conditions or constant, and then stored or viewed as another dtype, is never a float.
"""

from __future__ import annotations

import torch
from torch._inductor.virtualized import V

from torch_ocl.inductor.collect.expressions import constant, emit
from torch_ocl.inductor.types import compute_dtype
from torch_ocl.inductor.values import Value

_BITS = {1: torch.uint8, 2: torch.uint16}


def moved_bits(value: Value, dtype: torch.dtype) -> Value | None:
    """The bits of a value of `dtype`; None if it is computed, or is its bits already."""
    if compute_dtype(dtype) == dtype or not _is_moved(value, dtype) or not _reads(value):
        return None
    return _bits(value, dtype)


def _is_moved(value: Value, dtype: torch.dtype) -> bool:
    if value.op == "load":
        return V.graph.get_dtype(value.attrs["name"]) == dtype
    if value.op == "bitcast":
        return value.attrs["to"] == dtype
    return value.op == "constant" or (
        value.op in ("where", "masked") and all(_is_moved(v, dtype) for v in _choices(value))
    )


def _reads(value: Value) -> bool:
    """Whether there is more than constants."""
    if value.op in ("where", "masked"):
        return any(map(_reads, _choices(value)))
    return value.op != "constant"


def _choices(value: Value) -> tuple[Value, Value]:
    if value.op == "where":
        return value.args[1], value.args[2]
    return value.args[1], value.attrs["result"]


def _bits(value: Value, dtype: torch.dtype) -> Value:
    bits = _BITS[dtype.itemsize]
    if value.op == "constant":
        number = torch.tensor(value.attrs["value"], dtype=torch.float64).to(dtype)
        return constant(number.view(bits).item(), bits)
    if value.op == "load":
        attrs = {"name": value.attrs["name"], "memory_dtype": bits}
        return emit("load", bits, *value.args, index=value.index, **attrs)
    if value.op == "bitcast":
        return emit("bitcast", bits, *value.args, source=value.attrs["source"], to=bits)
    if value.op == "where":
        a, b = (_bits(v, dtype) for v in _choices(value))
        return emit("where", bits, value.args[0], a, b)
    other, region = _bits(value.args[1], dtype), value.attrs["region"]
    with V.kernel.inside(region):
        result = _bits(value.attrs["result"], dtype)
    return V.kernel.emit_masked(region, other, result, key=(value, dtype))
