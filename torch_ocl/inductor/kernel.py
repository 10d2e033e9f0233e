"""One generated kernel: its loops, and the program's text of what collector.py collects."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, SizeArg, WorkspaceArg
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot, SIMDKernel
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.symbol import SymT, symbol_is_type

from torch_ocl.inductor import device as devices
from torch_ocl.inductor.access import temporaries
from torch_ocl.inductor.collector import Collector
from torch_ocl.inductor.emit import Emitter
from torch_ocl.inductor.expressions import cast, unwrap
from torch_ocl.inductor.group_loops import GPU_SQUARE
from torch_ocl.inductor.loops import FEWEST_LANES, GPU_LANES, Loops
from torch_ocl.inductor.ops import Overrides
from torch_ocl.inductor.printer import Printer
from torch_ocl.inductor.stages import Plan
from torch_ocl.inductor.types import c_type, compute_dtype
from torch_ocl.inductor.values import Reduction, Store, Value

# Rows up to this length stay in private arrays from pass to pass: the first cache holds them.
_LONGEST_PRIVATE_ROW = 8192
# Registers of a GPU's work-item that a value of its row may take, and all that are kept.
_MOST_IN_REGISTERS, _MOST_KEPT = 32, 64


class OclKernel(Collector, Loops, SIMDKernel):
    """See SIMDKernel: loops over x (and y, z), and over r0_ where it reduces."""

    index_long = False

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self.start()
        self.reductions: dict[Any, Any] = {}
        self.reduction_count = itertools.count()
        self.host_numbers: dict[str, torch.dtype] = {}
        self.index_torch_dtype = self.get_index_dtype_as_torch_dtype()
        self.device = V.graph.get_current_device_or_throw()
        self.is_cpu_form = devices.is_cpu_form(self.device.index)
        self.is_gpu_form = not self.is_cpu_form
        self.lanes_in_rows = self.features.is_reduction() and self._rows_are_contiguous()
        self.group = self._group_size()
        self.width = 1
        self.line: sympy.Expr | None = None
        self.transposed: list[Value] = []
        self.plan: Plan

    # --- what Inductor asks
    def create_cse_var(self, name: str, *args: Any, **kwargs: Any) -> Value:
        return Value(name, kwargs.get("dtype") or torch.float32, "constant", attrs={"value": 0})

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return c_type(dtype)

    @staticmethod
    def kexpr(e: sympy.Expr) -> str:  # type: ignore[override]
        return Printer(V.kernel.index_torch_dtype == torch.int64).doprint(e)

    def should_use_persistent_reduction(self) -> bool:
        # What is kept from pass to pass is this backend's affair (stages.py), and so is where
        # passes end: Inductor needn't close its loops.
        return self.features.is_reduction()

    def codegen_body(self) -> None:
        """Nothing is text yet."""

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        """Declared where it is used."""

    def _rows_are_contiguous(self) -> bool:
        """Whether lanes are better off along the reduction: by what most reads step by one."""
        numel, rows = self.features.reduction_numel, self.features.numel
        sizes = V.graph.sizevars
        if sizes.statically_known_equals(rows, 1):
            return True
        votes = 0
        for node in self.features.scheduler_nodes():
            if not node.is_reduction():
                continue
            body = node._body
            columns, row = body.vars
            for read in body.get_read_exprs():
                if row and _first_step(read, row[-1], (*columns, *row)) == 1:
                    votes += 1
                elif row and read.has(row[-1]):
                    # A split reduction's parts may be the last of the columns' indices.
                    votes -= any(_first_step(read, c, (*columns, *row)) == 1 for c in columns)
        short = isinstance(numel, sympy.Integer) and numel < FEWEST_LANES
        return votes >= 0 and not (short and votes == 0)

    def _group_size(self) -> int:
        """Work-items of a GPU's work-group."""
        usual, most = devices.work_group_sizes(self.device.index)
        if not self.lanes_in_rows:
            return usual
        numel = self.features.reduction_numel
        size = int(numel) if isinstance(numel, sympy.Integer) else 1 << 20
        vectors = -(-size // GPU_LANES)

        def cost(group: int) -> float:
            """Work-items that idle in the last round, and how far from four vectors each has."""
            each = -(-vectors // group)
            return each * group / vectors + abs(math.log2(each / 4)) / 8

        return min((most >> i for i in range(most.bit_length() - 5)), key=cost)

    def host_number(self, name: str) -> Value:
        """The one element of a tensor on the CPU: a number of the call."""
        dtype = V.graph.get_dtype(name)
        self.args.input(name)
        self.host_numbers[name] = dtype
        value = self.emit("number", compute_dtype(dtype), name=name)
        return value

    # --- memory
    def store_reduction(self, name: str, index: sympy.Expr, value: CSEVariable) -> None:
        prior, self.inside_reduction = self.inside_reduction, False
        try:
            self.store(name, index, value)
        finally:
            self.inside_reduction = prior

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        if not (lower or upper):
            return
        if expr not in temporaries(expr):
            self._check_loop_index(expr, size, lower, upper)
            return
        value = self.cse.varname_map[expr.name]
        if value.name in self.checked:
            return
        index = cast(value, self.index_torch_dtype if value.dtype != torch.int64 else torch.int64)
        bound = self.index_value(size, index.dtype)
        self.parts.add("check")
        site = self._site("index", False)
        self.checked[value.name] = self.emit(
            "checked_index", index.dtype, index, bound, lower=lower, upper=upper, site=site
        )

    def _check_loop_index(
        self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool
    ) -> None:
        """Of an index that is computed of loop indices, such as arange's."""
        index = self.index_value(expr, torch.int64)
        text = f"index out of bounds: {expr} of {size}"
        if lower:
            self.device_assert_async(Overrides.ge(index, 0), text)
        if upper:
            bound = self.index_value(size, torch.int64)
            self.device_assert_async(Overrides.lt(index, bound), text)

    # --- reductions
    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any
    ) -> Any:
        values = tuple(map(unwrap, value)) if isinstance(value, tuple) else (unwrap(value),)
        key = (reduction_type, dtype, src_dtype, values)
        if key not in self.reductions:
            self.reductions[key] = self._reduction(dtype, src_dtype, reduction_type, values)
        return self.reductions[key]

    def _reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, kind: str, values: Sequence[Value]
    ) -> Any:
        dtype, source = compute_dtype(dtype), compute_dtype(src_dtype)
        if kind == "welford_reduce" and self._sums_twice():
            from torch._inductor.virtualized import OpsValue

            moments = self.welford_reduce_fallback(source, OpsValue(cast(values[0], source)))
            return tuple(cast(m, dtype) for m in moments)
        if kind == "any" or source == torch.bool and kind in ("max", "min", "prod"):
            kind = "any" if kind in ("any", "max") else "all"
            accumulated = torch.bool
        elif kind in ("sum", "prod", "xor_sum"):
            accumulated = dtype
        elif source == torch.bool:
            accumulated = torch.int32
        else:
            accumulated = source
        if kind.startswith("arg"):
            operands = (cast(values[0], accumulated), *values[1:])
        else:
            operands = tuple(cast(v, accumulated) for v in values)
        number = next(self.reduction_count)
        reduction = Reduction(kind, number, accumulated, operands)
        count = 3 if kind.startswith("welford") else 1
        lanes = not self.lanes_in_rows
        results = tuple(
            self._new(Value, dtype, "result", (), {"lanes": lanes, "number": (number, i)})
            for i in range(count)
        )
        reduction.results = results
        self.items.append(reduction)
        self.items.extend(results)
        if kind == "max":
            results[0].attrs["maximum_of"] = operands[0]
        elif kind == "sum":
            results[0].attrs["sum_of"] = operands[0]
        return results if count > 1 else results[0]

    def _sums_twice(self) -> bool:
        """Whether variance is taken by two passes over a row that is at hand."""
        numel = self.features.reduction_numel
        return (
            self.lanes_in_rows
            and isinstance(numel, sympy.Integer)
            and numel <= _LONGEST_PRIVATE_ROW
        )

    # --- the program's text
    @property
    def lane_tree(self) -> IterationRangesRoot:
        """The loop that lanes run along."""
        if self.lanes_in_rows:
            return next(t for t in self.range_trees if t.is_reduction)
        return next(t for t in reversed(self.range_trees) if not t.is_reduction)

    def _in_row(self, item: Any) -> bool:
        index = item.index if isinstance(item, Value | Store) else None
        if index is not None and any(
            self.range_tree_nodes[s].root.is_reduction
            for s in index.free_symbols
            if s in self.range_tree_nodes
        ):
            return True
        if isinstance(item, Value) and item.op == "masked":
            return any(self._in_row(i) for i in item.attrs["region"].items)
        return False

    def _may_keep(self, value: Value, others: int) -> bool:
        numel = self.features.reduction_numel
        if not (self.lanes_in_rows and isinstance(numel, sympy.Integer)):
            return False
        if self.is_cpu_form:
            return bool(numel <= _LONGEST_PRIVATE_ROW)
        each = -(-int(numel) // self.group) * max(1, value.dtype.itemsize // 4)
        return each <= _MOST_IN_REGISTERS and each * (others + 1) <= _MOST_KEPT

    def _is_removed(self, name: str) -> bool:
        return (
            name in V.graph.removed_buffers
            or name in self.removed_buffers
            or name in V.graph.inplaced_to_remove
            or name in self.inplaced_to_remove
        )

    def _make_plan(self) -> None:
        self.plan = Plan(
            self.items,
            in_row=self._in_row,
            memory_of=self.memory_of,
            is_removed=self._is_removed,
            may_keep=self._may_keep,
            keeps_loads=self.is_gpu_form,
        )

    def codegen_kernel(self, name: str = "KERNEL_NAME") -> str:
        self._make_plan()
        self.width = self._choose_width()
        emitter = Emitter(self, self.width)
        body = IndentedBuffer()
        if self.lanes_in_rows:
            self._rows_loop(emitter, body)
        else:
            self._columns_loop(emitter, body)
        self.helpers = emitter.helpers
        return self._assemble(name, emitter, body)

    def can_be_part(self) -> bool:
        """Whether it can share a launch with others (combo.py): columns alone, their number known,
        in 32-bit indices, and nothing that a check's record is for."""
        if (
            self.features.is_reduction()
            or self._trees()[1]
            or self.sites
            or not isinstance(self.lane_tree.numel, sympy.Integer)
            or self.index_torch_dtype != torch.int32
        ):
            return False
        with V.set_kernel_handler(self):
            self._make_plan()
            self._choose_width()
        return self.line is None

    def codegen_part(self) -> str:
        """Its text as a function PART_NAME of a combo kernel."""
        with V.set_kernel_handler(self):
            self._make_plan()
            self.width = self._choose_width()
            emitter = Emitter(self, self.width)
            text = self._part(emitter)
        self.helpers = emitter.helpers
        return text

    # --- the call
    def call_parameters(self) -> tuple[list[tuple[str, str]], list[tuple[str, Any, str]]]:
        """(parameter, buffer) of the tensors, and (parameter, expression, kind) of the numbers."""
        _, call_args, args, _ = self.args.python_argdefs()
        tensors: list[tuple[str, str]] = []
        numbers: list[tuple[str, Any, str]] = []
        for arg, outer in zip(args, call_args, strict=True):
            if isinstance(arg, WorkspaceArg):
                raise NotImplementedError("inductor's workspaces have no use on ocl")
            if isinstance(arg, SizeArg):
                real = isinstance(outer, sympy.Symbol) and symbol_is_type(
                    outer, (SymT.FLOAT, SymT.UNBACKED_FLOAT)
                )
                numbers.append((arg.name, outer, "f" if real else "l"))
            elif outer in self.host_numbers:
                dtype = self.host_numbers[outer]
                kind = "l"
                if dtype.is_floating_point:
                    kind = "d" if dtype == torch.float64 else "f"
                numbers.append((f"{arg.name}_number", outer, kind))
            else:
                tensors.append((arg.name, outer))
        for tree in self.range_trees:
            if not isinstance(tree.numel, sympy.Integer):
                numbers.append((f"{tree.prefix}numel", tree.numel, "l"))
        known = [expression for _, expression, _ in numbers]
        for name, size in zip(("columns", "rows", "length"), self._sizes(), strict=True):
            if not isinstance(size, sympy.Integer) and size not in known:
                numbers.append((f"{name}_size", size, "l"))
        return tensors, numbers

    def _sizes(self) -> list[sympy.Expr]:
        """Columns, rows, and a row's length."""
        tree, trees = self._trees()
        columns = tree.numel if tree is not None else 1
        rows = sympy.prod([t.numel for t in trees])
        if self.line is not None:
            rows, columns = rows * FloorDiv(columns, self.line), self.line
        if self.transposed:
            side = GPU_SQUARE if self.is_gpu_form else self.width
            blocks = FloorDiv(trees[0].numel + side - 1, side)
            rows = sympy.prod([blocks, *(t.numel for t in trees[1:])])
        length = sympy.prod([t.numel for t in self.range_trees if t.is_reduction])
        if self.transposed:
            length = side
        return [sympy.sympify(size) for size in (columns, rows, length)]

    def launch_sizes(self, numbers: list[tuple[str, Any, str]]) -> list[tuple[bool, int]]:
        """The same for the launcher: constants, or which number of the call."""
        places = {e: i for i, (_, e, kind) in enumerate(numbers) if kind == "l"}
        return [
            (False, int(size)) if isinstance(size, sympy.Integer) else (True, places[size])
            for size in self._sizes()
        ]

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        wrapper = V.graph.wrapper_code
        tensors, numbers = self.call_parameters()
        args: list[Any] = [outer for _, outer in tensors]
        # For C++: what is no tensor has a kind, and the dtype of the tensor that it is read from.
        types: list[Any] = [None] * len(args)
        for _, expression, kind in numbers:
            if isinstance(expression, sympy.Expr):
                for symbol in expression.free_symbols:
                    wrapper.ensure_size_computed(symbol)
                args.append(wrapper.codegen_sizevar(expression))
                types.append((kind, None))
            else:
                args.append(str(expression))
                types.append((kind, self.host_numbers[str(expression)]))
        wrapper.generate_kernel_call(name, args, device=self.device, triton=False, arg_types=types)

    def form(self) -> str:
        """The launcher's."""
        if self.is_gpu_form and self.transposed:
            return "group_tiles"
        if self.lines > 1:
            return "group_columns"
        return ("item" if self.is_cpu_form else "group") + (
            "_rows" if self.lanes_in_rows else "_lanes"
        )

    def work(self) -> int:
        """Elementary operations for an element of the loops."""
        return max(1, len(self.plan.needed) // 8)


def _first_step(index: sympy.Expr, along: sympy.Symbol, symbols: Sequence[sympy.Symbol]) -> Any:
    """From an index's first place to the next one along a loop, remainders and quotients known."""
    first = index.xreplace(dict.fromkeys(symbols, sympy.Integer(0)))
    places = {s: sympy.Integer(s == along) for s in symbols}
    return sympy.expand(index.xreplace(places) - first)
