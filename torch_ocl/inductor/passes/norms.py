"""RMS norms as graphs have them: what torch.nn.RMSNorm and transformers' models become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

aten = torch.ops.aten
CAST = torch.ops.prims.convert_element_type.default
_ADD = {aten.add.Tensor, aten.add.Scalar}
_FLOATS = {torch.float32, torch.float16, torch.bfloat16}


@dataclass
class RmsNorm:
    """x / sqrt(mean(x^2) + epsilon) * (weight + shift), over the last dimension of x.

    Args:
        x: (..., n), in the dtype of the result.
        weight: (n), of any floating-point dtype.
    """

    x: torch.fx.Node
    weight: torch.fx.Node
    epsilon: float
    shift: float


def find_norm(node: torch.fx.Node) -> RmsNorm | None:
    """The norm whose result a node is, or None. It may be rounded on the way: a model that rounds
    what it multiplies by the weight is less accurate than one that doesn't."""
    dtype = node.meta["val"].dtype
    product = _uncast(node)
    if dtype not in _FLOATS or product.target is not aten.mul.Tensor:
        return None
    for value, factor in (product.args, product.args[::-1]):
        if not isinstance(value, torch.fx.Node) or not isinstance(factor, torch.fx.Node):
            return None
        weight, shift = _weight(factor, node.meta["val"].shape[-1])
        found = _normalised(_uncast(value))
        if weight is not None and found is not None and found[0].meta["val"].dtype == dtype:
            return RmsNorm(found[0], weight, found[1], shift)
    return None


def _uncast(node: Any) -> Any:
    while isinstance(node, torch.fx.Node) and node.target is CAST and _is_float(node.args[0]):
        node = node.args[0]
    return node


def _is_float(node: Any) -> bool:
    return node.meta["val"].dtype in _FLOATS


def _weight(node: torch.fx.Node, width: Any) -> tuple[torch.fx.Node | None, float]:
    """The weight in a factor, and the number that is added to it."""
    shift = 0.0
    node = _uncast(node)
    if node.target in _ADD and isinstance(node.args[1], int | float) and not node.kwargs:
        shift, node = float(node.args[1]), _uncast(node.args[0])
    value = node.meta["val"]
    if not isinstance(width, int) or value.dtype not in _FLOATS or value.shape != (width,):
        return None, 0.0
    return node, shift


def _normalised(node: Any) -> tuple[torch.fx.Node, float] | None:
    """x and epsilon of x * rsqrt(mean(x^2) + epsilon), computed in single precision."""
    if node.target is not aten.mul.Tensor or node.meta["val"].dtype != torch.float32:
        return None
    for wide, scale in (node.args, node.args[::-1]):
        if isinstance(scale, torch.fx.Node) and scale.target is aten.rsqrt.default:
            break
    else:
        return None
    total = scale.args[0]
    if total.target not in _ADD or total.kwargs or not isinstance(total.args[1], int | float):
        return None
    mean = total.args[0]
    if mean.target is not aten.mean.dim or mean.kwargs or len(mean.args) != 3 or not mean.args[2]:
        return None
    last = wide.meta["val"].dim() - 1
    if [d % (last + 1) for d in mean.args[1]] != [last] or not _is_square(mean.args[0], wide):
        return None
    return _uncast(wide), float(total.args[1])


def _is_square(node: torch.fx.Node, of: torch.fx.Node) -> bool:
    if node.target is aten.pow.Tensor_Scalar:
        return node.args == (of, 2)
    return node.target is aten.mul.Tensor and node.args == (of, of)
