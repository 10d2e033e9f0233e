"""Casts and scales before a matrix product, which its kernels take over.

An operand that is a cast of another tensor is handed over as that tensor: the engine's kernels
convert what they fetch (csrc/engine/gemm). A scale that is the same along k follows the product.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

from torch_ocl import _C
from torch_ocl.inductor import device as devices

CAST = torch.ops.prims.convert_element_type.default
SCALE = torch.ops.aten.mul.Tensor
_PERMUTE = torch.ops.aten.permute.default
_VIEWS = {
    _PERMUTE,
    torch.ops.aten.view.default,
    torch.ops.aten.unsqueeze.default,
    torch.ops.aten.squeeze.dim,
}
# Which types hold every value of another.
_BYTES = {torch.int8, torch.uint8}
_HELD = {
    torch.float16: _BYTES,
    torch.bfloat16: _BYTES,
    torch.float32: _BYTES | {torch.int16, torch.float16, torch.bfloat16},
    torch.float64: _BYTES
    | {torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float32},
}
# Rows or columns, up to which CPUs' dot products are faster with a cast in them, and packed pairs
# of bfloat16 are slower.
_FEW_DOTS, _FEW_BFLOAT16 = 64, 32
_PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.baddbmm.default,
}


@dataclass
class Operand:
    """An operand that a product reads in the place of a cast one.

    Args:
        source: The tensor before the cast, seen as the operand is.
        scale: Of the operand, or None: a number, or a tensor of its dimensions with 1 along k.
    """

    source: Any
    scale: Any = None


def keeping(op: Any, upstream: Callable[..., Any]) -> Callable[..., Any]:
    """The lowering of a cast or scale, which keeps its operands: values of a graph that nothing
    reads any more are gone when a product is lowered."""

    @functools.wraps(upstream)
    def lowering(*args: Any, **kwargs: Any) -> Any:
        node = V.graph.current_node
        # Other lowerings call these, too.
        if getattr(node, "target", None) is op and len(node.users) == 1:
            _kept()[node] = args
        return upstream(*args, **kwargs)

    return lowering


def _kept() -> dict[torch.fx.Node, tuple[Any, ...]]:
    return V.graph.__dict__.setdefault("ocl_operands", {})  # type: ignore[no-any-return]


def find(boxes: list[Any]) -> list[Operand | None]:
    """The casts that the product takes over that is lowered: one for each of a and b, None where
    the operand stays, and for one of both at most."""
    node = V.graph.current_node
    if getattr(node, "target", None) not in _PRODUCTS:  # other lowerings call these, too
        return [None, None]
    factors = [x for x in node.args if isinstance(x, torch.fx.Node)][-2:]
    if len(factors) != 2 or factors[0] is factors[1]:
        return [None, None]
    hint = functools.partial(V.graph.sizevars.optimization_hint, fallback=8192)
    sizes = [math.prod(map(hint, box.get_size())) for box in boxes]
    # The larger one. What is cast of the smaller one is less than what is read besides, and would
    # be cast for each row or column of the other.
    side = 0 if sizes[0] > sizes[1] else 1
    found: list[Operand | None] = [None, None]
    operand = _through(factors[side], boxes[side], side)
    if operand is not None and _pays(boxes, operand.source.get_dtype()):
        found[side] = operand
    return found


def _through(node: torch.fx.Node, box: Any, side: int) -> Operand | None:
    """The cast that a factor is, seen through views and a scale. What others read, too, is in
    memory anyway."""
    dtype = box.get_dtype()
    views = []
    while node.target in _VIEWS and len(node.users) == 1 and _is_plain(node.args[1:]):
        views.append(node)
        node = node.args[0]  # type: ignore[assignment]
    scale = None
    if node.target is SCALE and node in _kept():
        left, right = node.args
        boxes = _kept()[node]
        at = 0 if isinstance(left, torch.fx.Node) and left in _kept() else 1
        scale, node = boxes[1 - at], (left, right)[at]  # type: ignore[assignment]
        if not isinstance(node, torch.fx.Node):
            return None
    if node.target is not CAST or node not in _kept():
        return None
    source = _kept()[node][0]
    if source.get_dtype() not in _HELD.get(dtype, ()) or source.get_device() != box.get_device():
        return None
    if _is_changed(source):
        return None
    if scale is not None:
        scale = _scale(scale, source, views, dtype, side)
        if scale is None:
            return None
    return Operand(_seen(source, views), scale)


def _is_plain(args: Any) -> bool:
    return all(
        isinstance(x, int) or (isinstance(x, list | tuple) and all(isinstance(i, int) for i in x))
        for x in args
    )


def _seen(x: Any, views: list[torch.fx.Node]) -> Any:
    for view in reversed(views):
        x = lowerings[view.target](x, *view.args[1:])
    return x


def _scale(
    scale: Any, source: Any, views: list[torch.fx.Node], dtype: torch.dtype, side: int
) -> Any | None:
    """The scale as the operand is seen, if it is the same along k, else None.

    Sums of scaled terms and scaled sums differ in their rounding, and where one of both leaves
    the range of the type. So sums are single precision at least, and what they add up are bytes:
    they overflow for other factors past 1e30 alone, which no activation is. A scale that isn't
    finite gives results that aren't, either way; they may be infinite in the place of NaN. An empty
    sum is 0, whatever the scale is.
    """
    if source.get_dtype() not in _BYTES:
        return None
    along_k = -1 if side == 0 else -2
    depth = _seen(source, views).get_size()[along_k]
    if not V.graph.sizevars.statically_known_gt(depth, 0):
        return None
    if isinstance(scale, int | float):
        return None if isinstance(scale, bool) else scale
    if not isinstance(scale, ir.TensorBox) or scale.get_dtype() != dtype or _is_changed(scale):
        return None
    sizes = source.get_size()
    missing = len(sizes) - len(scale.get_size())
    if missing < 0 or any(view.target is not _PERMUTE for view in views):
        return None
    for _ in range(missing):
        scale = lowerings[torch.ops.aten.unsqueeze.default](scale, 0)
    # One that the source is expanded to has matrices that the source has not.
    known = V.graph.sizevars.statically_known_equals
    if any(n != 1 and not known(n, m) for n, m in zip(scale.get_size(), sizes, strict=True)):
        return None
    scale = _seen(scale, views)
    return scale if scale.get_size()[along_k] == sympy.S.One else None


def _is_changed(x: Any) -> bool:
    """Whether what a value reads was written since it was computed. The cast is of what was there
    before."""
    return any(name in V.graph.mutated_buffers for name in x.get_read_names())


def _pays(boxes: list[Any], source: torch.dtype) -> bool:
    """Whether the kernel that takes an operand as the source of its cast is no slower than a cast
    and the usual kernel."""
    a, b = boxes
    hint = functools.partial(V.graph.sizevars.optimization_hint, fallback=8192)
    rows, depth, columns = hint(a.get_size()[-2]), hint(a.get_size()[-1]), hint(b.get_size()[-1])
    dtype, few, index = a.get_dtype(), min(rows, columns), a.get_device().index or 0
    if few <= _C.SKINNY_COLUMNS:
        return True
    # Matrix units take operands of one type. Other kernels of GPUs would fetch tiles many times.
    if not devices.is_cpu_form(index):
        return False
    # Dot products convert their rows for every four columns.
    if few > _FEW_DOTS and _C.prefers_dots(index, source, dtype, dtype, few, depth):
        return False
    # Where the processor multiplies pairs of bfloat16, its panels hold these, and float32 may lose
    # bits to them.
    if dtype == torch.bfloat16 and torch.ocl.get_device_properties(index).has_bf16_dot:
        return few <= _FEW_BFLOAT16
    return dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
