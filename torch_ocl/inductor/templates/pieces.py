"""Linear layers of few rows as one launch, with the norm before them and the pointwise ops after
them: torch.ops.ocl.linear_pieces, which passes/shared_input.py writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V

from torch_ocl.inductor import device as devices
from torch_ocl.inductor import refused
from torch_ocl.inductor.templates import template


class Pieces(template.Template):
    """The results side by side, (rows, columns).

    Args:
        layout: Of the result.
        inputs: The input, the weights, the scales of each or none, the weight of a norm or none.
        settings: What runtime.fused_pieces() takes besides.
    """

    kind = "fused_pieces"
    least_operands = 0

    def __init__(self, layout: ir.Layout, inputs: Sequence[Any], settings: tuple[Any, ...]) -> None:
        super().__init__(layout, inputs)
        self._settings = settings

    def matrix(self) -> tuple[sympy.Expr, sympy.Expr]:
        rows, columns = self.get_size()
        return rows, columns

    def indices(self, text: Callable[[sympy.Expr], str]) -> tuple[str, str]:
        return "(long)row", "(long)column"

    def widths(self, device: int) -> dict[str, int]:
        return {"epilogue": 1}

    def pays(self, after: Sequence[Any]) -> bool:
        """Yes: ops after it read as many elements as there are results, few beside the weights."""
        return True

    def needs_epilogue(self) -> bool:
        """A call of the op would read its lists of tensors: the function takes less time."""
        return True

    def settings(self) -> tuple[Any, ...]:
        return self._settings


def _contiguous(x: Any) -> Any:
    """A buffer or a view of one: what others compute of x reads it, too."""
    return ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(x))


def _columns(weight: Any) -> sympy.Expr:
    """Rows of a weight; those of 4 bits may be tiles of 8."""
    size = weight.get_size()
    return size[0] * (8 if len(size) == 4 else 1)


def lowering_of(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """The lowering of linear_pieces. CPUs, and C++, call the op."""

    @functools.wraps(upstream)
    def lowering(
        input: Any,
        weights: Sequence[Any],
        scales: Sequence[Any] | None = None,
        *,
        points: bool = False,
        dtype: torch.dtype | None = None,
        epsilon: float | None = None,
        norm: Any = None,
        shift: float = 0.0,
    ) -> Any:
        device = input.get_device()
        if V.graph.cpp_wrapper or refused.runs_eagerly() or devices.is_cpu_form(device.index or 0):
            rest = {"points": points, "dtype": dtype, "epsilon": epsilon, "norm": norm}
            return upstream(input, weights, scales, shift=float(shift), **rest)
        scales = scales or ()
        dtype = dtype or input.get_dtype()
        columns = sympy.Add(*map(_columns, weights))
        layout = ir.FixedLayout(device, dtype, [input.get_size()[0], columns])
        norms = [] if norm is None else [norm]
        inputs = [_contiguous(x) for x in (input, *weights, *scales, *norms)]
        settings = (len(weights), bool(scales), points, dtype, epsilon, float(shift))
        return ir.TensorBox.create(Pieces(layout, inputs, settings))

    return lowering
