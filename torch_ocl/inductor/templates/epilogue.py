"""Writes epilogues: what follows a matrix product or convolution, in front of the engine's kernels
(template.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import RemovedArg
from torch._inductor.codegen.simd import CantSplit, SIMDKernel
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.virtualized import V

from torch_ocl.inductor import device as devices
from torch_ocl.inductor.call import runtime
from torch_ocl.inductor.collect.collector import Collector
from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.plan.stages import Plan
from torch_ocl.inductor.text.code import Code
from torch_ocl.inductor.text.indices import Names, Printer
from torch_ocl.inductor.text.program import helpers_of
from torch_ocl.inductor.text.render import Renderer
from torch_ocl.inductor.types import c_type, compute_dtype
from torch_ocl.inductor.values import Item, Value, loads_of, operands_of

# A kernel's parameters are 1 KiB together, and operands are some of them.
_MOST_OPERANDS = 16
# Things that these need would have to reach the gemm kernels by other means than operands.
_NOT_TAKEN = {"check", "host numbers", "random", "atomics", "special_f32", "special_f64"}


class NotTakenError(Exception):
    """No epilogue can do that."""


@dataclass
class Epilogue:
    """An epilogue's source, and what its functions take besides an element of the result."""

    source: str
    lanes: int
    tensors: list[str]  # names of buffers: those it reads, then those it writes
    numbers: list[sympy.Expr]
    removed: set[str]  # buffers that need no memory


class _Kernel(Collector, SIMDKernel):
    """The ops: loops over y, the rows of all matrices, and x, a row's columns."""

    def __init__(self, template: Any, nodes: Sequence[Any]) -> None:
        rows, self.columns = template.node.matrix()
        columns = self.columns
        features = SIMDKernelFeatures([*nodes], rows * columns, sympy.S.One)
        super().__init__({"y": rows, "x": columns}, features=features)
        self.start()
        self.device, self.index_torch_dtype = template.get_device(), torch.int64
        self.template = template.node

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

    def computed_before(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        self.parts.add("host numbers")
        return super().computed_before(expr, dtype)

    def collect(self, nodes: Sequence[Any]) -> None:
        """The values that nodes compute, in their order, and what they store."""
        name, dtype = self.template.get_name(), compute_dtype(self.template.get_dtype())
        value = self.emit("parameter", dtype, name="value", lanes=True)
        self.cse.store_cache[name] = value
        self.store_buffer_names.add(name)
        sizes = [tree.numel for tree in self.range_trees]
        (places, _) = self.split_and_set_ranges([sizes, []])
        y, x = places
        self.store(name, y * self.columns + x, value)
        for node in nodes:
            node.codegen(self.split_and_set_ranges(node.get_ranges()))

    def depends_on_rows(self, item: Item) -> bool:
        """Whether it is another one in another row, its operands being the same."""
        if not isinstance(item, Value) or item.op == "parameter":
            return True
        if item.op == "masked":
            return any(map(self.depends_on_rows, item.attrs["region"].items))
        symbols = item.index.free_symbols if item.index is not None else ()
        nodes = self.range_tree_nodes
        return any(s in nodes and nodes[s].root.prefix == "y" for s in symbols)

    def is_removed(self, name: str) -> bool:
        return name in V.graph.removed_buffers or name in self.removed_buffers


class _Writer:
    """Writes the functions of one element, or of `width` in a row."""

    def __init__(self, kernel: _Kernel, width: int) -> None:
        self.kernel, self.width = kernel, width
        lengths = {
            length: sympy.Symbol(name, integer=True, positive=True)
            for name, length in kernel.template.lengths().items()
        }

        def rename(index: sympy.Expr) -> sympy.Expr:
            return kernel.rename_indexing(index).xreplace(lengths)

        self.names = Names(torch.int64, kernel.pointer_of, kernel.memory_of, rename)

    def renderer(self) -> Renderer:
        kernel = self.kernel
        columns = next(t for t in kernel.range_trees if t.prefix == "x")
        return Renderer(Lanes(kernel.range_tree_nodes, columns, self.width), self.names)

    def functions(self, name: str, by_columns: bool) -> list[str]:
        """The function of that name. `by_columns`: what depends on columns alone, if memory is
        read for it, is in another one, for kernels whose work-items stay in their columns."""
        kernel = self.kernel
        plan = Plan(
            kernel.items,
            in_row=kernel.depends_on_rows if by_columns else lambda item: True,
            memory_of=kernel.memory_of,
            is_removed=kernel.is_removed,
            may_keep=lambda value, others: False,
        )
        before, items = plan.outside[0], plan.passes[0]
        value = f"const {c_type(compute_dtype(kernel.template.get_dtype()), self.width)} value"
        place = ["const ulong row", "const ulong column", value]
        if not any(map(loads_of, before)):
            return [self._function(f"void {name}", place, [*before, *items])]
        needed = dict.fromkeys(v for item in items for v in operands_of(item))
        handed = [v for v in needed if v in {*before} and v.op != "constant"]
        members = {v.name: c_type(v.dtype, self._lanes_of(v)) for v in handed}
        declared = " ".join(f"{kind} {member};" for member, kind in members.items())
        return [
            "#define EPILOGUE_COLUMNS",
            f"typedef struct {{ {declared} }} epilogue_columns;",
            self._function(
                "epilogue_columns epilogue_columns_of",
                place[1:2],
                before,
                last=[f"return (epilogue_columns){{{', '.join(members)}}};"],
            ),
            self._function(
                "void epilogue_elements",
                [*place, "const epilogue_columns columns"],
                items,
                first=[f"const {kind} {m} = columns.{m};" for m, kind in members.items()],
            ),
            f"static inline void {name}(const ulong z, {', '.join(place)} EPILOGUE_SIGNATURE) {{",
            "    const epilogue_columns own = epilogue_columns_of(z, column EPILOGUE_ARGUMENTS);",
            "    epilogue_elements(z, row, column, value, own EPILOGUE_ARGUMENTS);",
            "}",
        ]

    def _lanes_of(self, value: Value) -> int:
        return self.renderer().width_of(value)

    def _function(
        self,
        name: str,
        parameters: Sequence[str],
        items: list[Item],
        *,
        first: Sequence[str] = (),
        last: Sequence[str] = (),
    ) -> str:
        kernel = self.kernel
        lines, r = Code(), self.renderer()
        r.statements(items, lines)
        row, column = kernel.template.indices(lambda e: kernel.kexpr(kernel.rename_indexing(e)))
        out = Code()
        taken = ", ".join(["const ulong z", *parameters])
        with out.block(f"static inline {name}({taken} EPILOGUE_SIGNATURE)"):
            if "const ulong row" in parameters:
                out.writeline(f"const long yindex = {row};")
            out.writeline(f"const long xindex = {column};")
            out.writelines(first)
            out.splice(r.indices.body(lines, kernel.range_trees).code)
            out.writelines(last)
        return str(out.getvalue())


def write(template: Any, nodes: Sequence[Any]) -> Epilogue:
    """The epilogue that does what nodes do.

    Args:
        template: The scheduler's node of a Template.
        nodes: Those of pointwise ops of as many elements, in order.

    Raises:
        NotTakenError: It can't be done in the template's kernel.
    """
    try:
        with V.graph.set_current_device(template.get_device()):
            kernel = _Kernel(template, nodes)
            with kernel:
                kernel.collect(nodes)
            with V.set_kernel_handler(kernel):
                return _write(kernel)
    except (CantSplit, NotImplementedError) as error:
        raise NotTakenError(str(error)) from error


def _write(kernel: _Kernel) -> Epilogue:
    if kernel.parts & _NOT_TAKEN:
        raise NotTakenError(f"it needs {kernel.parts & _NOT_TAKEN}")
    widths = kernel.template.widths(kernel.device.index or 0)
    lanes = max(widths.values())
    functions = []
    of_gpu = not devices.is_cpu_form(kernel.device.index or 0)
    for name, width in widths.items():
        writer = _Writer(kernel, width)
        functions += writer.functions(name, by_columns=of_gpu and width == lanes > 1)
    read = {str(inner): outer for outer, inner in kernel.args.input_buffers.items()}
    written = {
        str(inner): outer
        for outer, inner in kernel.args.output_buffers.items()
        if not isinstance(inner, RemovedArg)
    }
    numbers = {str(name): expression for expression, name in kernel.args.sizevars.items()}
    numbers |= kernel.template.lengths()
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
        "PASSED": [f"{p}_base, {p}_offset" for p, _ in pointers],
        "ARGUMENTS": [p for p, _ in pointers],
    }
    for name in numbers:
        lists["SIGNATURE"].append(f"const long {name}")
        lists["PARAMETERS"].append(f"const long {name}")
        lists["OPERANDS"].append(name)
        lists["PASSED"].append(name)
        lists["ARGUMENTS"].append(name)
    lines = ["#define HAS_EPILOGUE", f"#define EPILOGUE_LANES {lanes if lanes > 1 else 0}"]
    lines += runtime.prelude_lines(sorted(kernel.parts))
    for suffix, words in lists.items():
        lines.append(f"#define EPILOGUE_{suffix} {''.join(f', {word}' for word in words)}")
    names = [f"#define {also} {name}" for also, name in kernel.template.names(lanes).items()]
    source = "\n".join([*lines, *names, *helpers_of("".join(functions)), *functions, ""])
    removed = {name for name in kernel.removed_buffers if name not in written.values()}
    tensors = [*read.values(), *written.values()]
    return Epilogue(source, lanes if lanes > 1 else 0, tensors, list(numbers.values()), removed)
