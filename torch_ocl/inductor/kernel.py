"""One generated kernel: it collects Inductor's ops, and has a form write their text."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable, SizeArg, WorkspaceArg
from torch._inductor.codegen.simd import IterationRangesEntry, SIMDKernel
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import TruncToInt
from torch.utils._sympy.symbol import SymT, symbol_is_type

from torch_ocl.inductor import device as devices
from torch_ocl.inductor.call import launch
from torch_ocl.inductor.collect.collector import Collector
from torch_ocl.inductor.collect.expressions import cast, unwrap
from torch_ocl.inductor.collect.ops import Overrides
from torch_ocl.inductor.forms import layout_of
from torch_ocl.inductor.forms.columns import Part
from torch_ocl.inductor.forms.form import Layout, Nest
from torch_ocl.inductor.plan.lanes import lanes_of
from torch_ocl.inductor.plan.numbers import numbers_fit
from torch_ocl.inductor.plan.sizes import FEWEST_LANES, LONGEST_PRIVATE_ROW, may_keep
from torch_ocl.inductor.plan.stages import Plan
from torch_ocl.inductor.reals import is_real
from torch_ocl.inductor.text.code import Code
from torch_ocl.inductor.text.indices import Names, Printer
from torch_ocl.inductor.text.program import Number, Parameters, kernel_text
from torch_ocl.inductor.types import c_type, compute_dtype
from torch_ocl.inductor.values import Reduction, Store, Value, temporaries


class OclKernel(Collector, SIMDKernel):
    """See SIMDKernel: loops over x (and y, z), and over r0_ where it reduces."""

    index_long = False

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self.start()
        self.reductions: dict[Any, Any] = {}
        self.reduction_count = itertools.count()
        self.host_numbers: dict[str, torch.dtype] = {}
        self.computed: dict[tuple[sympy.Expr, torch.dtype], str] = {}
        self.device = V.graph.get_current_device_or_throw()
        self.on_cpu = devices.is_cpu_form(self.device.index)
        self.in_rows = self.features.is_reduction() and self._rows_are_contiguous()
        self.names = Names(
            self.index_torch_dtype, self.pointer_of, self.memory_of, self.rename_indexing
        )

    # --- what Inductor asks
    @functools.cached_property
    def index_torch_dtype(self) -> torch.dtype:
        fits = numbers_fit(self.features)
        return self.features.select_index_dtype() if fits else torch.int64

    def get_index_dtype_as_torch_dtype(self) -> torch.dtype:
        return self.index_torch_dtype

    def create_cse_var(self, name: str, *args: Any, **kwargs: Any) -> Value:
        return Value(name, kwargs.get("dtype") or torch.float32, "constant", attrs={"value": 0})

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        return c_type(dtype)

    @staticmethod
    def kexpr(e: sympy.Expr) -> str:  # type: ignore[override]
        return Printer(V.kernel.index_torch_dtype == torch.int64).doprint(e)

    def should_use_persistent_reduction(self) -> bool:
        # This backend decides which values are kept from pass to pass, and where passes end
        # (plan/stages.py): Inductor needn't close its loops.
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

    def host_number(self, name: str) -> Value:
        """The one element of a tensor on the CPU: a number of the call."""
        dtype = V.graph.get_dtype(name)
        self.args.input(name)
        self.host_numbers[name] = dtype
        value = self.emit("number", compute_dtype(dtype), name=name)
        return value

    def computed_before(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        """A number of the call, which the graph's code computes."""
        if dtype not in (torch.bool, torch.float32, torch.float64):
            dtype = torch.int64
            expr = TruncToInt(expr) if is_real(expr) else expr
        dtype = torch.float32 if dtype == torch.bool else dtype
        name = self.computed.setdefault((expr, dtype), f"computed{len(self.computed)}")
        return self.emit("parameter", dtype, name=name, lanes=False)

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
        """Checks an index that is computed of loop indices, such as arange's."""
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
        lanes = not self.in_rows
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
        return self.in_rows and isinstance(numel, sympy.Integer) and numel <= LONGEST_PRIVATE_ROW

    # --- the program
    @functools.cached_property
    def nest(self) -> Nest:
        """The loops and what is done in them, once all ops are collected."""
        plan = Plan(
            self.items,
            in_row=self._in_row,
            memory_of=self.memory_of,
            is_removed=self._is_removed,
            may_keep=self._may_keep,
            keeps_loads=not self.on_cpu,
        )
        row = next((t for t in self.range_trees if t.is_reduction), None)
        around = tuple(t for t in reversed(self.range_trees) if not t.is_reduction)
        along = row if self.in_rows and row is not None else around[0]
        flags = {"on_cpu": self.on_cpu, "in_rows": self.in_rows}
        lanes = lanes_of(plan.needed, self.range_tree_nodes, along, **flags)
        length = self.features.reduction_numel
        index = self.device.index
        return Nest(row, around, length, lanes, plan, self.names, index, self.on_cpu)

    @functools.cached_property
    def layout(self) -> Layout:
        """The text, and how it is launched."""
        return layout_of(self.nest)

    @functools.cached_property
    def part(self) -> Layout | None:
        """The text as a function of a combo kernel (combo.py), or None if it can't share a launch.
        It can with columns alone, their number known, in 32-bit indices."""
        if self.features.is_reduction() or self.index_torch_dtype != torch.int32:
            return None
        with V.set_kernel_handler(self):
            nest = self.nest
            if len(nest.around) > 1 or not isinstance(nest.lanes.tree.numel, sympy.Integer):
                return None
            return Part(nest).layout() if nest.lanes.segment is None else None

    @functools.cached_property
    def parameters(self) -> Parameters:
        """Lists what a call passes."""
        return self.parameters_of(self.layout)

    def codegen_kernel(self) -> str:
        body, t = Code(), c_type(self.index_torch_dtype)
        for tree in self.range_trees:
            if isinstance(tree.numel, sympy.Integer):
                body.writeline(f"const {t} {tree.prefix}numel = {tree.numel};")
        body.writelines(self.layout.head)
        body.splice(self.layout.text)
        flags: dict[str, Any] = {"sites": len(self.sites), "on_cpu": self.on_cpu}
        return kernel_text(self.parameters, body, index=self.index_torch_dtype, **flags)

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
        length = self.features.reduction_numel
        return self.in_rows and may_keep(self.device.index, length, value.dtype, others)

    def _is_removed(self, name: str) -> bool:
        return (
            name in V.graph.removed_buffers
            or name in self.removed_buffers
            or name in V.graph.inplaced_to_remove
            or name in self.inplaced_to_remove
        )

    # --- the call
    def parameters_of(self, layout: Layout) -> Parameters:
        """Lists what a call of a text passes."""
        _, call_args, args, _ = self.args.python_argdefs()
        tensors: list[tuple[str, str]] = []
        numbers: list[Number] = []
        for arg, outer in zip(args, call_args, strict=True):
            if isinstance(arg, WorkspaceArg):
                raise NotImplementedError("inductor's workspaces have no use on ocl")
            if isinstance(arg, SizeArg):
                real = isinstance(outer, sympy.Symbol) and symbol_is_type(
                    outer, (SymT.FLOAT, SymT.UNBACKED_FLOAT)
                )
                numbers.append(Number(arg.name, outer, "f" if real else "l"))
            elif outer in self.host_numbers:
                dtype = self.host_numbers[outer]
                kind = "l"
                if dtype.is_floating_point:
                    kind = "d" if dtype == torch.float64 else "f"
                numbers.append(Number(f"{arg.name}_number", outer, kind, dtype))
            else:
                tensors.append((arg.name, outer))
        for (expr, dtype), name in self.computed.items():
            kind = {torch.float32: "f", torch.float64: "d"}.get(dtype, "l")
            numbers.append(Number(name, expr, kind, used_as=dtype))
        for tree in self.range_trees:
            if not isinstance(tree.numel, sympy.Integer):
                numbers.append(Number(f"{tree.prefix}numel", tree.numel, "l"))
        known = [number.outer for number in numbers]
        for name, size in zip(("columns", "rows", "length"), layout.sizes, strict=True):
            if not isinstance(size, sympy.Integer) and size not in known:
                numbers.append(Number(f"{name}_size", size, "l"))
        return Parameters(tuple(tensors), tuple(numbers))

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        launch.write_call(name, self.parameters, self.device)


def _first_step(index: sympy.Expr, along: sympy.Symbol, symbols: Sequence[sympy.Symbol]) -> Any:
    """From an index's first place to the next one along a loop, remainders and quotients known."""
    first = index.xreplace(dict.fromkeys(symbols, sympy.Integer(0)))
    places = {s: sympy.Integer(s == along) for s in symbols}
    return sympy.expand(index.xreplace(places) - first)
