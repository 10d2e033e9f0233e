"""Matrix products that take the pointwise ops after them into their kernels.

Upstream's lowerings make calls of eager ops of them, which nothing is fused with. Here they are
templates to the scheduler (fusion.py). epilogue.py writes what is fused; a product that is alone is
the same call as upstream's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import config, ir
from torch._inductor.kernel.mm_common import mm_args
from torch._inductor.lowering import lowerings, to_dtype
from torch._inductor.virtualized import V

from torch_ocl import _C
from torch_ocl.inductor import device as devices
from torch_ocl.inductor.templates import prologue, template
from torch_ocl.inductor.types import compute_dtype


class Product(template.Template):
    """alpha * a @ b + beta * c, of two or three dimensions, contiguous.

    Args:
        op: The name of the op in torch.ops.aten that computes it alone.
        inputs: a, b, and c where there is one.
    """

    kind = "fused_product"

    def __init__(
        self, op: str, layout: ir.Layout, inputs: Sequence[Any], alpha: float, beta: float
    ) -> None:
        super().__init__(layout, inputs)
        self.op, self.alpha, self.beta = op, alpha, beta

    def matrix(self) -> tuple[sympy.Expr, sympy.Expr]:
        *rows, columns = self.get_size()
        return sympy.prod(rows), columns

    def indices(self, text: Callable[[sympy.Expr], str]) -> tuple[str, str]:
        return f"(long)z * ({text(self.get_size()[-2])}) + (long)row", "(long)column"

    def widths(self, device: int) -> dict[str, int]:
        lanes = template.lanes_of_gpus(self.get_dtype())
        if devices.is_cpu_form(device):
            lanes = int(devices.vector_bytes(device)) // compute_dtype(self.get_dtype()).itemsize
        return {"epilogue": 1} | ({"epilogue_lanes": lanes} if lanes > 1 else {})

    def pays(self, after: Sequence[Any]) -> bool:
        """CPUs have dot products where there are few rows or columns. Their sums aren't vectors of
        a row: many go through memory, as apart from what follows."""
        device = self.get_device().index or 0
        if not devices.is_cpu_form(device):
            return template.pays_on_gpus(self, after)
        hint = functools.partial(V.graph.sizevars.optimization_hint, fallback=8192)
        *batch, rows, columns = map(hint, self.get_size())
        few = min(rows, columns)
        depth = hint(self.inputs[0].get_size()[-1])  # type: ignore[union-attr]
        results = rows * columns * math.prod(batch)
        a, b = (x.get_dtype() for x in self.inputs[:2])  # type: ignore[union-attr]
        return results <= _C.SKINNY_RESULTS or not _C.prefers_dots(
            device, a, b, self.get_dtype(), few, depth
        )

    def settings(self) -> tuple[Any, ...]:
        return float(self.alpha), float(self.beta)

    def needs_epilogue(self) -> bool:
        """No eager op takes operands of two types, and none of these has a wider result."""
        return any(x.get_dtype() != self.get_dtype() for x in self.inputs)  # type: ignore[union-attr]

    def call_alone(self, node: Any) -> None:
        node.mark_run()
        scalars = (self.alpha, self.beta)
        V.graph.wrapper_code.call_product(self.op, self.get_name(), self.operands(), scalars)


def lowering_of(name: str, upstream: Callable[..., Any], addend: bool) -> Callable[..., Any]:
    """The lowering of a matrix product, with an addend or without, in the place of upstream's."""

    @functools.wraps(upstream)
    def lowering(*args: Any, alpha: Any = 1, beta: Any = 1, **kwargs: Any) -> Any:
        scalars = {"alpha": alpha, "beta": beta} if addend else {}
        if not _takes(args, (alpha, beta), kwargs):
            return upstream(*args, **scalars, **kwargs)
        *c, a, b = args
        dtype = a.get_dtype()
        # With alpha 0 nothing is read, and a scale of infinity would be.
        before = prologue.find([a, b]) if alpha != 0 else [None, None]
        a, b = (x if cast is None else cast.source for x, cast in zip((a, b), before, strict=True))
        *_, layout, a, b = mm_args(a, b)
        layout.dtype = dtype
        scales = [cast.scale for cast in before if cast is not None and cast.scale is not None]
        if scales:
            layout.dtype = torch.promote_types(dtype, torch.float32)
            product = Product("bmm" if len(layout.size) == 3 else "mm", layout, [a, b], alpha, 0)
            return _scaled(ir.TensorBox.create(product), scales, c, beta, dtype)
        inputs = [a, b, *(ir.ExternKernel.realize_input(x) for x in c)]
        return ir.TensorBox.create(Product(name, layout, inputs, alpha, beta))

    return lowering


def _scaled(
    result: Any, scales: Sequence[Any], c: Sequence[Any], beta: float, dtype: torch.dtype
) -> Any:
    """A product with its scales and addend, rounded once."""
    aten = torch.ops.aten
    wide = result.get_dtype()

    def widened(x: Any) -> Any:
        return x if isinstance(x, int | float) else to_dtype(x, wide)

    for scale in scales:
        result = lowerings[aten.mul.Tensor](result, widened(scale))
    if c and beta != 0:
        addend = widened(c[0])
        if beta != 1:
            addend = lowerings[aten.mul.Tensor](addend, beta)
        result = lowerings[aten.add.Tensor](result, addend)
    return to_dtype(result, dtype)


def convolution_lowering_of(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering that has convolutions with windows of one element as matrix products, where they
    are these for the engine, too: on GPUs, with channels last. CPUs have kernels that need no
    packed input."""

    @functools.wraps(upstream)
    def lowering(x: Any, *args: Any, **kwargs: Any) -> Any:
        device = x.get_device()
        if (
            device.type != "ocl"
            or devices.is_cpu_form(device.index or 0)
            or not V.graph.layout_opt
            or len(x.get_size()) != 4
        ):
            return upstream(x, *args, **kwargs)
        with config.patch(conv_1x1_as_mm=True):
            return upstream(x, *args, **kwargs)

    return lowering


def _takes(args: Sequence[Any], scalars: Sequence[Any], rest: dict[str, Any]) -> bool:
    """Whether it is one of these products."""
    if any(value is not None for value in rest.values()):
        return False
    plain = all(isinstance(s, int | float) and not isinstance(s, bool) for s in scalars)
    return plain and template.takes(args)
