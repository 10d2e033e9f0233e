"""What follows a matrix product, as a text in front of the engine's kernels.

kernels/gemm/gemm.clh says what the text has to define. A product's result is a parameter of its
functions, and they store what the ops after it compute. So the result itself is in memory only
where something else reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import RemovedArg
from torch._inductor.codegen.simd import CantSplit, SIMDKernel
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

from torch_ocl.inductor import device as devices
from torch_ocl.inductor import runtime
from torch_ocl.inductor.access import Lanes
from torch_ocl.inductor.collector import Collector
from torch_ocl.inductor.emit import Emitter
from torch_ocl.inductor.printer import Printer
from torch_ocl.inductor.render import Renderer
from torch_ocl.inductor.stages import Plan
from torch_ocl.inductor.types import c_type, compute_dtype
from torch_ocl.inductor.values import Value

# Of a kernel's parameters, which are 1 KiB together.
_MOST_OPERANDS = 16
# What these need would have to reach the gemm kernels by other ways than operands.
_NOT_TAKEN = {"check", "host numbers", "random", "atomics", "special_f32", "special_f64"}


class NotTakenError(Exception):
    """No text can do that."""


@dataclass
class Text:
    """A text, and what its functions take besides the product."""

    text: str
    lanes: int
    tensors: list[str]  # names of buffers: those it reads, then those it writes
    numbers: list[sympy.Expr]
    removed: set[str]  # buffers that need no memory


class _Kernel(Collector, SIMDKernel):
    """The ops: loops over y, the rows of all matrices, and x, a row's columns."""

    def __init__(self, product: Any, nodes: Sequence[Any]) -> None:
        *batch, self.rows, columns = product.node.get_size()
        rows = sympy.prod([*batch, self.rows])
        features = SIMDKernelFeatures([*nodes], rows * columns, sympy.S.One)
        super().__init__({"y": rows, "x": columns}, features=features)
        self.start()
        self.device, self.index_torch_dtype = product.get_device(), torch.int64
        self.product = product.node

    @staticmethod
    def kexpr(e: sympy.Expr) -> str:  # type: ignore[override]
        return str(Printer(True).doprint(e))

    def create_cse_var(self, name: str, *args: Any, **kwargs: Any) -> Value:
        return Value(name, kwargs.get("dtype") or torch.float32, "constant", attrs={"value": 0})

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return c_type(dtype)

    def codegen_iteration_ranges_entry(self, entry: Any) -> None:
        """Declared where it is used."""

    # An error here would be logged as a failure of the graph's: what can't be done is noted.
    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        if lower or upper:
            self.parts.add("check")

    def host_number(self, name: str) -> Value:
        self.parts.add("host numbers")
        return self.emit("number", compute_dtype(V.graph.get_dtype(name)), name=name)

    def collect(self, nodes: Sequence[Any]) -> None:
        """The values that nodes compute, in their order, and what they store."""
        name, dtype = self.product.get_name(), compute_dtype(self.product.get_dtype())
        value = self.emit("parameter", dtype, name="value")
        self.cse.store_cache[name] = value
        self.store_buffer_names.add(name)
        sizes = [tree.numel for tree in self.range_trees]
        (places, _) = self.split_and_set_ranges([sizes, []])
        self.store(name, self.product.get_layout().make_indexer()(self._split(places)), value)
        for node in nodes:
            node.codegen(self.split_and_set_ranges(node.get_ranges()))

    def _split(self, places: Sequence[sympy.Expr]) -> list[sympy.Expr]:
        """The product's indices: it is contiguous, so its batch can stay 0."""
        y, x = places
        return [*[sympy.S.Zero] * (len(self.product.get_size()) - 2), y, x]

    def is_removed(self, name: str) -> bool:
        return name in V.graph.removed_buffers or name in self.removed_buffers


class _Columns(Lanes):
    """Lanes along a row."""

    def _value_varies(self, value: Value) -> bool:
        return value.op == "parameter" or super()._value_varies(value)


class _Renderer(Renderer):
    def _parameter(self, value: Value, width: int) -> str:
        return str(value.attrs["name"])


class _Writer(Emitter):
    """Writes the function of one element, or of `width` in a row."""

    def __init__(self, kernel: _Kernel, width: int) -> None:
        self.kernel, self.width = kernel, width  # type: ignore[assignment]
        self.helpers: dict[str, None] = {}
        columns = next(t for t in kernel.range_trees if t.prefix == "x")
        lanes = _Columns(kernel.range_tree_nodes, columns, width)
        self.r = _Renderer(lanes, torch.int64, kernel.pointer_of, kernel.rename_indexing)

    def function(self, name: str) -> str:
        kernel: Any = self.kernel
        plan = Plan(
            kernel.items,
            in_row=lambda item: False,
            memory_of=kernel.memory_of,
            is_removed=kernel.is_removed,
            may_keep=lambda value: False,
        )
        body = IndentedBuffer()
        self.statements(plan.outside[0], self.r, body)
        rows = kernel.kexpr(kernel.rename_indexing(kernel.rows))
        value = c_type(compute_dtype(kernel.product.get_dtype()), self.width)
        out = IndentedBuffer()
        places = "const ulong z, const ulong row, const ulong column"
        out.writeline(
            f"static inline void {name}({places}, const {value} value EPILOGUE_SIGNATURE) {{"
        )
        with out.indent():
            out.writeline(f"const long yindex = (long)z * ({rows}) + (long)row;")
            out.writeline("const long xindex = (long)column;")
            out.writelines(self.declare_symbols(self.r, lambda root: True))
            out.splice(body)
        out.writeline("}")
        return str(out.getvalue())


def _lanes(kernel: _Kernel) -> int:
    """Columns that the second function takes, 0 if there is none: CPUs' kernels have vectors."""
    index = kernel.device.index or 0
    if not devices.is_cpu_form(index):
        return 0
    size = compute_dtype(kernel.product.get_dtype()).itemsize
    return int(devices.vector_bytes(index)) // size


def write(product: Any, nodes: Sequence[Any]) -> Text:
    """The text that does what nodes do.

    Args:
        product: The scheduler's node of a product (products.py), contiguous.
        nodes: Those of pointwise ops of as many elements, in order.

    Raises:
        NotTakenError: It can't be done in the product's kernel.
    """
    try:
        with V.graph.set_current_device(product.get_device()):
            kernel = _Kernel(product, nodes)
            with kernel:
                kernel.collect(nodes)
            with V.set_kernel_handler(kernel):
                return _write(kernel)
    except (CantSplit, NotImplementedError) as error:
        raise NotTakenError(str(error)) from error


def _write(kernel: _Kernel) -> Text:
    if kernel.parts & _NOT_TAKEN:
        raise NotTakenError(f"it needs {kernel.parts & _NOT_TAKEN}")
    lanes = _lanes(kernel)
    widths = {"epilogue": 1} | ({"epilogue_lanes": lanes} if lanes > 1 else {})
    functions, helpers = [], {}
    for name, width in widths.items():
        writer = _Writer(kernel, width)
        functions.append(writer.function(name))
        helpers.update(writer.helpers)
    read = {str(inner): outer for outer, inner in kernel.args.input_buffers.items()}
    written = {
        str(inner): outer
        for outer, inner in kernel.args.output_buffers.items()
        if not isinstance(inner, RemovedArg)
    }
    numbers = {str(name): expression for expression, name in kernel.args.sizevars.items()}
    if not all(expression.is_integer for expression in numbers.values()):
        raise NotTakenError("numbers that are no sizes")
    if not written or len(read) + len(written) > _MOST_OPERANDS:
        raise NotTakenError("too many operands")
    pointers = [(p, "const ") for p in read] + [(p, "") for p in written]
    lists = {
        "SIGNATURE": [f"global {const}char* {p}" for p, const in pointers],
        "PARAMETERS": [
            f"global {const}char *{p}_base, const ulong {p}_offset" for p, const in pointers
        ],
        "OPERANDS": [f"{p}_base + {p}_offset" for p, _ in pointers],
    }
    for name in numbers:
        lists["SIGNATURE"].append(f"const long {name}")
        lists["PARAMETERS"].append(f"const long {name}")
        lists["OPERANDS"].append(name)
    lines = ["#define EPILOGUE_TEXT", f"#define EPILOGUE_LANES {lanes if lanes > 1 else 0}"]
    lines += runtime.prelude_lines(sorted(kernel.parts))
    for suffix, words in lists.items():
        lines.append(f"#define EPILOGUE_{suffix} {''.join(f', {word}' for word in words)}")
    text = "\n".join([*lines, *helpers, *functions])
    removed = {name for name in kernel.removed_buffers if name not in written.values()}
    tensors = [*read.values(), *written.values()]
    return Text(text, max(lanes, 0), tensors, list(numbers.values()), removed)
