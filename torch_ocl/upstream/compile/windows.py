"""Writes through windows that Tensor.unfold() makes.

A change of torch, for graphs on ocl alone. PyTorch 2.13 needs it.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

#: Operators that write to their first operand.
_WRITERS = {operator.setitem}
_WRITERS |= {getattr(operator, f"i{name}") for name in ("add", "sub", "mul", "truediv", "floordiv")}
_WRITERS |= {getattr(operator, f"i{name}") for name in ("mod", "pow", "and", "or", "xor")}
_WRITERS |= {operator.ilshift, operator.irshift}


def install() -> None:
    """A write to windows becomes a new value of what they view: unfold_inverse() in
    aten/src/ATen/FunctionalInverses.cpp. It takes the gradient's op, which has 0 where there is no
    window, and refuses windows that overlap. Windows that are written are other views here."""
    from torch._inductor import compile_fx

    upstream = compile_fx.compile_fx

    @functools.wraps(upstream)
    def compile_with_windows(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(model, torch.fx.GraphModule):
            change_written_windows(model)
        return upstream(model, inputs, *args, **kwargs)

    compile_fx.compile_fx = compile_with_windows


def change_written_windows(module: torch.fx.GraphModule) -> None:
    """Has a graph call `windows` where it writes to what unfold() returns."""
    found = [n for n in module.graph.nodes if (n.op, n.target) == ("call_method", "unfold")]
    written = [node for node in found if _is_on_ocl(node) and _is_written(node)]
    for node in written:
        node.op, node.target = "call_function", windows
    if written:
        module.recompile()


def windows(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """As Tensor.unfold(): by views that may be written one after another, where there are such. By
    strides elsewhere, which upstream refuses to write if they are those of another view."""
    if x.dim() == 0 or size <= 0 or step <= 0 or size > x.size(dimension):
        return x.unfold(dimension, size, step)  # which knows what is wrong
    d = dimension % x.dim()
    count = (x.size(d) - size) // step + 1
    if size == 1:
        return x[(*[slice(None)] * d, slice(None, None, step))].unsqueeze(-1)
    if size <= step and count * step <= x.size(d):
        parts = x.narrow(d, 0, count * step).unflatten(d, (count, step))
        return parts.narrow(d + 1, 0, size).movedim(d + 1, -1)
    sizes, strides = [*x.shape, size], [*x.stride(), x.stride(d)]
    sizes[d] = count
    strides[d] *= step
    return x.as_strided(sizes, strides, x.storage_offset())


def _is_on_ocl(node: torch.fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.device.type == "ocl"


def _is_written(node: torch.fx.Node) -> bool:
    """Whether a later node writes to a tensor, or to a view of it."""
    views = [node]
    for view in views:
        for user in view.users:
            if user in views:
                continue
            if _writes(user):
                return True
            if _is_on_ocl(user) and _storage(user) == _storage(node):
                views.append(user)
    return False


def _writes(node: torch.fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or node.target in _WRITERS or "out" in node.kwargs


def _storage(node: torch.fx.Node) -> int:
    return node.meta["example_value"].untyped_storage()._cdata
