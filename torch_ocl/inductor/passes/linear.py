"""Linear layers as graphs have them: of plain weights, and of weights of 8 and of 4 bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ocl import _C
from torch_ocl.inductor import device as devices

aten = torch.ops.aten
RESHAPES = {aten.view.default, aten.reshape.default, aten._unsafe_view.default}
_DTYPES = {torch.float32, torch.float16, torch.bfloat16, torch.float64}


@dataclass
class Linear:
    """input @ weight.T + bias, of few rows.

    Args:
        node: The result, (..., columns).
        input: (..., k).
        weight: (columns, k), or what torch.ops.ocl.linear_pieces takes with scales.
        bias: (columns) where there is one: a list of one node or none.
        scales: Of a quantised weight.
        points: Whether the second of a pair of scales is subtracted from the bits.
    """

    node: torch.fx.Node
    input: torch.fx.Node
    weight: torch.fx.Node
    bias: list[torch.fx.Node] = field(default_factory=list)
    scales: torch.fx.Node | None = None
    points: bool = False

    @property
    def rows(self) -> int:
        """The input's, of all dimensions."""
        return _rows(self.input)

    @property
    def columns(self) -> Any:
        return self.node.meta["val"].shape[-1]

    @property
    def operands(self) -> list[torch.fx.Node]:
        """The nodes that it reads besides the input."""
        scales = [] if self.scales is None else [self.scales]
        return [self.weight, *scales, *self.bias]

    def likeness(self) -> tuple[Any, ...]:
        """A key that parts of one product share, besides their input."""
        common = (len(self.bias), self.points, self.weight.meta["val"].dtype)
        if self.scales is None:
            return common
        value = self.scales.meta["val"]
        return (*common, value.dtype, value.shape[:-2])  # the groups of 4 bits


def find_linear(node: torch.fx.Node) -> Linear | None:
    """The layer whose result a node is, or None."""
    finder = _FINDERS.get(node.target)
    found = finder(node) if finder is not None else None
    if found is None:
        return None
    x, rows = found.input.meta["val"], found.rows
    few = isinstance(rows, int) and 0 < rows <= _C.SKINNY_COLUMNS
    if x.device.type != "ocl" or x.dtype not in _DTYPES or not few:
        return None
    if found.scales is not None and devices.is_cpu_form(x.device.index or 0):
        return None  # CPUs have other kernels for them
    wide = statically_known_true(node.meta["val"].shape[-1] > rows)
    # A bias is added to a row by what reads it. To several it would be added by a kernel for each
    # layer.
    simple = all(b.meta["val"].dim() == 1 and rows == 1 for b in found.bias)
    return found if wide and simple else None


def _rows(node: torch.fx.Node) -> Any:
    rows: Any = 1
    for size in node.meta["val"].shape[:-1]:
        rows = rows * size
    return rows


def _plain(node: torch.fx.Node) -> Linear | None:
    """A product with the transpose of a matrix of contiguous rows."""
    *bias, left, right = node.args
    if node.kwargs or right.target is not aten.permute.default:  # type: ignore[union-attr]
        return None
    weight = right.args[0]  # type: ignore[union-attr]
    if not weight.meta["val"].is_contiguous():  # type: ignore[union-attr]
        return None
    return Linear(node, left, weight, bias)  # type: ignore[arg-type]


def _of_8_bits(node: torch.fx.Node) -> Linear | None:
    x, weight, scales = node.args
    return Linear(node, x, weight, scales=scales)  # type: ignore[arg-type]


def _of_4_bits(node: torch.fx.Node) -> Linear | None:
    x, weight, _, scales = node.args
    return Linear(node, x, weight, scales=scales)  # type: ignore[arg-type]


def _of_4_bits_with_points(node: torch.fx.Node) -> Linear | None:
    """torch_ocl::int4_linear, as GPTQ and AWQ have it, of columns in their order."""
    x, weight, scales, order, in_lanes, bias = node.args
    if order is not None or in_lanes:
        return None
    return Linear(node, x, weight, [] if bias is None else [bias], scales, True)  # type: ignore


_FINDERS = {
    aten.mm.default: _plain,
    aten.addmm.default: _plain,
    aten._weight_int8pack_mm.default: _of_8_bits,
    aten._weight_int4pack_mm.default: _of_4_bits,
    torch.ops.torch_ocl.int4_linear.default: _of_4_bits_with_points,
}
