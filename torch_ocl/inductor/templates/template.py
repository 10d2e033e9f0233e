"""Ops whose kernels take what follows them: matrix products and convolutions.

kernels/include/epilogue.clh says what an epilogue, the text in front of a kernel, has to define,
and epilogue.py writes it. A result is a parameter of its functions, and they store what the ops
after it compute. So the result itself is in memory only where something else reads it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor import dependencies, ir
from torch._inductor.virtualized import V, ops

from torch_ocl.inductor import refused
from torch_ocl.inductor.plan.sizes import GPU_BYTES

# Bytes of a result that take as long as a launch, where they are read at half the speed.
_SMALL = 2 << 20
_DTYPES = {torch.float32, torch.float16, torch.bfloat16, torch.float64}


def lanes_of_gpus(dtype: torch.dtype) -> int:
    """The columns that tensor cores' kernels hand over together: 16 bytes of results."""
    return GPU_BYTES // dtype.itemsize if dtype.itemsize <= 4 else 1


def pays_on_gpus(template: Template, after: Sequence[Any]) -> bool:
    """Tensor cores' kernels of half types hand over vectors. Others hand over an element at a time,
    which reads a large tensor besides at half the speed of a kernel of its own."""
    index = template.get_device().index or 0
    dtype = template.get_dtype()
    if dtype.itemsize == 2 and torch.ocl.get_device_properties(index).has_tensor_cores:
        return True
    hint = functools.partial(V.graph.sizevars.optimization_hint, fallback=8192)
    size = hint(sympy.prod(template.get_size())) * dtype.itemsize
    return bool(size <= _SMALL) or not reads_as_many(template, after)


def reads_as_many(template: Template, after: Sequence[Any]) -> bool:
    """Whether nodes behind a template read another tensor of about its size."""
    hint = functools.partial(V.graph.sizevars.optimization_hint, fallback=8192)
    elements = hint(sympy.prod(template.get_size()))
    inner = {template.get_name()} | {name for node in after for name in node.get_buffer_names()}
    return any(
        2 * hint(dep.get_numel()) >= elements
        for node in after
        for dep in node.read_writes.reads
        if dep.name not in inner
    )


class Template(ir.TemplateBuffer):
    """An op whose kernels can have an epilogue.

    Args:
        layout: Of its result, which is dense.
        inputs: What the eager op takes; a third one may be missing.
    """

    kind: str  # fused_product, fused_pieces or fused_convolution, of call/runtime.py
    least_operands = 3  # that the function takes: None where there is none

    def __init__(self, layout: ir.Layout, inputs: Sequence[Any]) -> None:
        super().__init__(layout, inputs, make_kernel_render=None)

    def matrix(self) -> tuple[sympy.Expr, sympy.Expr]:
        """Rows and columns of the result as epilogues see it: in the order in which it lies."""
        raise NotImplementedError

    def axes(self) -> list[int]:
        """The result's dimensions in the order in which they lie."""
        return list(range(len(self.get_size())))

    def indices(self, text: Callable[[sympy.Expr], str]) -> tuple[str, str]:
        """The row and column of that matrix, of the `z`, `row` and `column` that the
        epilogue's functions take; `text` writes an expression."""
        raise NotImplementedError

    def widths(self, device: int) -> dict[str, int]:
        """The epilogue's functions, and how many columns each takes."""
        raise NotImplementedError

    def pays(self, after: Sequence[Any]) -> bool:
        """Whether an epilogue of these of the scheduler's nodes is no slower than these apart."""
        raise NotImplementedError

    def needs_epilogue(self) -> bool:
        """Whether there is no eager op for it, so that an epilogue stores its result."""
        return False

    def call_alone(self, node: Any) -> None:
        """Writes the call of the eager op; `node` is the scheduler's."""
        raise NotImplementedError

    def settings(self) -> tuple[Any, ...]:
        """Settings that the runtime's function of `kind` takes besides the epilogue's."""
        raise NotImplementedError

    def names(self, lanes: int) -> dict[str, str]:
        """Other names of these functions, the widest of which takes so many columns."""
        return {}

    def lengths(self) -> dict[str, sympy.Integer]:
        """Constants that epilogues take as numbers, so that layers of other sizes share one."""
        return {}

    def operands(self) -> list[str]:
        """The inputs as the wrapper calls them."""
        return [x.codegen_reference() for x in self.inputs]  # type: ignore[union-attr]

    def given(self) -> list[str | None]:
        """The operands as the function of `kind` takes them."""
        names = self.operands()
        return [*names, *[None] * (self.least_operands - len(names))]

    def extract_read_writes(self, normalize: bool = False) -> dependencies.ReadWrites:
        """As upstream's, but what it writes is in the order in which it lies, as readers go."""
        deps = super().extract_read_writes(normalize=normalize)
        name, layout = self.get_name(), self.get_layout()
        order = self.axes()

        def store(index: Sequence[Any], _: Sequence[Any]) -> Any:
            strides = [layout.stride[axis] for axis in order]
            place = sum(i * stride for i, stride in zip(index, strides, strict=True))
            return ops.store(name, place, "fake")

        sizes = [layout.size[axis] for axis in order]
        written = dependencies.extract_read_writes(store, sizes, (), normalize=normalize)
        deps.writes = written.writes
        return deps


def takes(operands: Sequence[Any]) -> bool:
    """Whether an op of these can be a Template. What is to go on without a kernel that a driver
    refuses calls eager ops alone: these kernels are built when they are called."""
    if refused.runs_eagerly():
        return False
    if any(x.get_device().type != "ocl" for x in operands):
        return False
    dtypes = {x.get_dtype() for x in operands}
    return len(dtypes) == 1 and dtypes <= _DTYPES
