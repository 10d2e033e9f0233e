"""A kernel's loops, as text.

CPUs: a work-item walks a run of columns, lane by lane in vectors, or a run of rows, each in the
passes of stages.py. GPUs: a work-item has one vector of columns, or a work-group one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sympy
import torch
from torch._inductor.codegen.simd import IterationRangesRoot
from torch._inductor.utils import IndentedBuffer

from torch_ocl.inductor.access import Lanes
from torch_ocl.inductor.accumulate import Accumulator
from torch_ocl.inductor.render import Renderer, mask_for
from torch_ocl.inductor.rows import Rows
from torch_ocl.inductor.stages import Item, loads_of
from torch_ocl.inductor.types import c_type
from torch_ocl.inductor.values import Assert, Reduction, Store, Value

if TYPE_CHECKING:
    from torch_ocl.inductor.kernel import OclKernel


class Emitter(Rows):
    """Writes the body of one kernel."""

    def __init__(self, kernel: OclKernel, width: int) -> None:
        self.kernel, self.width = kernel, width
        self.plan = kernel.plan
        self.tree = kernel.lane_tree
        self.in_rows = kernel.lanes_in_rows
        self.group = kernel.group if kernel.is_gpu_form else 1
        self.lines = 1  # of work-items of a group that share rows
        self.out = IndentedBuffer()
        self.helpers: dict[str, None] = {}
        self.outer_symbols: dict[sympy.Symbol, None] = {}
        self.locals: list[str] = []
        self._row_tree: IterationRangesRoot | None = next(
            (t for t in kernel.range_trees if t.is_reduction), None
        )

    def share_columns(self, group: int, lines: int) -> None:
        """Has `lines` of `group` work-items each share the rows of their columns."""
        self.group, self.lines = group, lines

    def renderer(self, width: int) -> Renderer:
        kernel = self.kernel
        lanes = Lanes(kernel.range_tree_nodes, self.tree, width, kernel.line)
        return Renderer(lanes, kernel.index_torch_dtype, kernel.pointer_of, kernel.rename_indexing)

    # --- statements
    def statements(self, items: list[Item], r: Renderer, out: IndentedBuffer) -> None:
        """Values and effects in order; stores into memory that is read here come last."""
        read = {self.kernel.memory_of(n) for i in items for n in loads_of(i)}
        last: list[Item] = []
        for item in items:
            if isinstance(item, Store) and self.kernel.memory_of(item.name) in read:
                last.append(item)
            else:
                self._statement(item, r, out)
        for item in last:
            self._statement(item, r, out)

    def _statement(self, item: Item, r: Renderer, out: IndentedBuffer) -> None:
        if isinstance(item, Reduction) or item in r.names:
            return
        if isinstance(item, Store):
            out.writelines(r.store(item))
        elif isinstance(item, Assert):
            self._assert(item, r, out)
        elif item.op == "masked":
            self._masked(item, r, out)
        elif item.op == "checked_index":
            self._checked(item, r, out)
        elif item.op not in ("constant", "result"):
            t = c_type(item.dtype, r.width_of(item))
            out.writeline(f"const {t} {item.name} = {r.expression(item)};")

    def _masked(self, value: Value, r: Renderer, out: IndentedBuffer) -> None:
        mask, other = value.args[:2]
        region, result = value.attrs["region"], value.attrs["result"]
        width = r.width_of(value)
        t = c_type(value.dtype, width)
        out.writeline(f"{t} {value.name} = {r.operand(other, width)};")
        wide = r.varies(mask)
        out.writeline(f"if ({f'any({r.operand(mask, r.width)})' if wide else r.one(mask)}) {{")
        before, r.region = r.region, region
        with out.indent():
            for item in region.items:
                self._statement(item, r, out)
            text = r.operand(result, width)
            if wide:
                chosen = mask_for(r.operand(mask, width), value.dtype, width)
                text = f"{chosen} ? {text} : {value.name}"
            out.writeline(f"{value.name} = {text};")
        r.region = before
        out.writeline("}")

    def _checked(self, value: Value, r: Renderer, out: IndentedBuffer) -> None:
        """An index; 0 in its place where it is out of range, which is reported."""
        index, size = value.args
        width = r.width_of(value)
        mask = r.mask()
        name = "check_lanes" if width > 1 else "check_one"
        allowed = (
            r.operand(mask, width)
            if mask is not None and width > 1
            else (f"({c_type(torch.bool, width)})(-1)" if width > 1 else "1")
        )
        long = "long" if value.dtype == torch.int64 else "int"
        if width > 1:
            r.helpers[f"DEFINE_CHECK({width}, {long})"] = None
            name = f"check_lanes_{width}_{long}"
        else:
            r.helpers[f"DEFINE_CHECK_ONE({long})"] = None
            name = f"check_one_{long}"
        low = 1 if value.attrs["lower"] else 0
        high = 1 if value.attrs["upper"] else 0
        site = f"a.site{value.attrs['site']}"
        out.writeline(
            f"const {c_type(value.dtype, width)} {value.name} = {name}({r.operand(index, width)}, "
            f"{r.operand(size, 1)}, {allowed}, {low}, {high}, asserts, (uint){site});"
        )

    def _assert(self, item: Assert, r: Renderer, out: IndentedBuffer) -> None:
        condition = item.condition
        wide = r.varies(condition)
        mask = r.mask()
        text = f"!{r.operand(condition, r.width if wide else 1)}"
        if wide:
            if mask is not None:
                text = f"({text}) & {r.operand(mask, r.width)}"
            text = f"any({text})"
        out.writeline(f"if ({text}) record_failure(0, 0, asserts, (uint)a.site{item.site});")

    # --- loop indices
    def declare_symbols(
        self, r: Renderer, inner: Callable[[IterationRangesRoot], bool]
    ) -> list[str]:
        """Declarations of the loop indices that were used; those of outer loops are left to
        them."""
        lines = []
        t, lanes = r.index_type(1), r.index_type(r.width)
        numbers = f"({lanes})(LANE_NUMBERS_{r.width})"
        for symbol in r.symbols:
            entry = self.kernel.range_tree_nodes[symbol]
            if not inner(entry.root):
                self.outer_symbols[symbol] = None
                continue
            text = self.kernel.kexpr(self.kernel.rename_indexing(entry.expr))
            lines.append(f"const {t} {symbol} = {text};")
            if symbol not in r.lane_symbols:
                continue
            if r.lanes.kind(symbol) == "step":
                lines.append(f"const {lanes} {symbol}_lanes = {symbol} + {numbers};")
            else:
                root = sympy.Symbol("whole_", integer=True, nonnegative=True)
                expression = entry.expr.xreplace({entry.root.index_sym(): root})
                text = self.kernel.kexpr(self.kernel.rename_indexing(expression))
                text = text.replace("whole_", f"({entry.root.index_sym()} + {numbers})")
                lines.append(f"const {lanes} {symbol}_lanes = {text};")
        self.helpers.update(r.helpers)
        return lines

    @contextmanager
    def block(self, head: str, out: IndentedBuffer | None = None) -> Iterator[None]:
        out = self.out if out is None else out  # an empty buffer is false
        out.writeline(head + " {")
        with out.indent():
            yield
        out.writeline("}")

    # --- bodies
    def columns(
        self,
        width: int,
        names: dict[Value, str] | None = None,
        inner: IterationRangesRoot | None = None,
    ) -> IndentedBuffer:
        """What is done at one place of the columns: everything, for a kernel without rows of
        lanes. `names` are values that are at hand; `inner` is a loop whose index is known there
        only."""
        out = IndentedBuffer()
        r = self.renderer(width)
        r.names.update(names or {})
        plan = self.plan
        if not plan.count:
            self.statements(plan.outside[0], r, out)
        else:
            self._column_passes(r, out)
        lines = self.declare_symbols(r, lambda root: root is self.tree or root is inner)
        whole = IndentedBuffer()
        whole.writelines(lines)
        whole.splice(out)
        return whole

    def transposed(self, across: IterationRangesRoot) -> list[Value]:
        """Loads whose neighbours in memory lie along another loop than the lanes'."""
        width = self.width
        along = self.renderer(width).lanes
        other = Lanes(self.kernel.range_tree_nodes, across, width)
        items = [i for part in (*self.plan.outside, *self.plan.passes) for i in part]
        return [
            item
            for item in dict.fromkeys(items)
            if isinstance(item, Value)
            and item.op == "load"
            and not item.args
            and along.stride(item.index) not in (0, 1)
            and other.stride(item.index) == 1
        ]

    def tiles(self, loads: list[Value], across: IterationRangesRoot, out: IndentedBuffer) -> None:
        """Reads squares of memory and transposes them: tile_<value>[j] then has the lanes at place
        j of the other loop."""
        width, p, q = self.width, self.tree.prefix, across.prefix
        kernel = self.kernel
        lanes = Lanes(kernel.range_tree_nodes, across, width)
        r = Renderer(lanes, kernel.index_torch_dtype, kernel.pointer_of, kernel.rename_indexing)
        t = c_type(kernel.index_torch_dtype)
        inner = IndentedBuffer()
        for load in loads:
            kind = c_type(load.dtype, width)
            out.writeline(f"{kind} tile_{load.name}[{width}];")
            inner.writeline(f"tile_{load.name}[j] = {r.expression(load)};")
            r.helpers[f"DEFINE_TRANSPOSE({c_type(load.dtype)}, {width})"] = None
        lines = self.declare_symbols(r, lambda root: root is self.tree or root is across)
        with self.block(f"for (int j = 0; j < {width}; ++j)", out):
            out.writeline(f"const {t} {p}index = {p}first + j, {q}index = {q}first;")
            out.writelines(lines)
            out.splice(inner)
        for load in loads:
            out.writeline(f"transpose_{c_type(load.dtype)}_{width}(tile_{load.name});")

    def square_reads(
        self, loads: list[Value], across: IterationRangesRoot, place: str
    ) -> tuple[IndentedBuffer, list[str]]:
        """Statements that put an element of each load into its square, tile_<value>[place], and the
        declarations that they need."""
        kernel = self.kernel
        lanes = Lanes(kernel.range_tree_nodes, across, 1)
        r = Renderer(lanes, kernel.index_torch_dtype, kernel.pointer_of, kernel.rename_indexing)
        reads = IndentedBuffer()
        for load in loads:
            reads.writeline(f"tile_{load.name}[{place}] = {r.expression(load)};")
        return reads, self.declare_symbols(r, lambda root: root is self.tree or root is across)

    def _column_passes(self, r: Renderer, out: IndentedBuffer) -> None:
        """Reductions over rows of memory, a result to a lane."""
        plan, row = self.plan, self._row_tree
        if row is None:
            # Nothing is reduced: its one pass is not a loop.
            for stage in range(plan.count):
                self.statements(plan.outside[stage] + plan.passes[stage], r, out)
            self.statements(plan.outside[plan.count], r, out)
            return
        once = self._once if self.lines > 1 else self.statements
        for stage in range(plan.count):
            once(plan.outside[stage], r, out)
            reductions = [i for i in plan.passes[stage] if isinstance(i, Reduction)]
            made = {red: self._accumulator(red) for red in reductions}
            for accumulator in made.values():
                for part in accumulator.parts:
                    at = 1 if part.is_one else r.width
                    start = accumulator.start_of(part, at)
                    out.writeline(f"{c_type(part.dtype, at)} {part.name} = {start};")
            inner = IndentedBuffer()
            self.statements(plan.passes[stage], r, inner)
            for red, accumulator in made.items():
                names = [p.name for p in accumulator.parts]
                self._update(red, accumulator, names, r, inner, r.width)
            symbols = self._row_symbols(r)
            p = row.prefix
            start, step = "0", f"++{p}index"
            if self.lines > 1:
                start, step = f"inside ? line : {p}numel", f"{p}index += {self.lines}"
            head = f"for ({r.index_type(1)} {p}index = {start}; {p}index < {p}numel; {step})"
            with self.block(head, out):
                out.writelines(symbols)
                out.splice(inner)
            if self.lines > 1:
                self._across_lines([*made.values()], r.width, out)
            for red, accumulator in made.items():
                self._results(red, accumulator, r, out)
        once(plan.outside[plan.count], r, out)

    def _across_lines(
        self, accumulators: list[Accumulator], width: int, out: IndentedBuffer
    ) -> None:
        """Combines the accumulators of a group's lines; each has the result then."""
        if not accumulators:
            return
        here, there = f"line * {self.group} + lane", f"(line + half_) * {self.group} + lane"
        parts = [part for accumulator in accumulators for part in accumulator.parts]
        for part in parts:
            t = c_type(part.dtype, width)
            self.locals.append(f"local {t} {part.name}_lines[{self.group * self.lines}];")
            text = f"({t})({part.name})" if part.is_one and width > 1 else part.name
            out.writeline(f"{part.name}_lines[{here}] = {text};")
        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        with self.block(f"for (int half_ = {self.lines // 2}; half_ > 0; half_ /= 2)", out):
            with self.block("if (line < half_)", out):
                for accumulator in accumulators:
                    mine = [f"{part.name}_lines[{here}]" for part in accumulator.parts]
                    others = [f"{part.name}_lines[{there}]" for part in accumulator.parts]
                    with self.block("", out):
                        out.writelines(accumulator.combine(mine, others, width))
            out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        for part in parts:
            one = ".s0" if part.is_one and width > 1 else ""
            out.writeline(f"{part.name} = {part.name}_lines[lane]{one};")

    def _row_symbols(self, r: Renderer) -> list[str]:
        """Declares the loop indices of rows, and takes them off the renderer's list."""
        rows = [s for s in r.symbols if self.kernel.range_tree_nodes[s].root is self._row_tree]
        lines = []
        for symbol in rows:
            text = self.kernel.kexpr(
                self.kernel.rename_indexing(self.kernel.range_tree_nodes[symbol].expr)
            )
            lines.append(f"const {r.index_type(1)} {symbol} = {text};")
            del r.symbols[symbol]
        return lines

    def _accumulator(self, reduction: Reduction) -> Accumulator:
        return Accumulator(
            reduction.kind, reduction.number, reduction.dtype, self.kernel.index_torch_dtype
        )

    def _update(
        self,
        reduction: Reduction,
        accumulator: Accumulator,
        at: list[str],
        r: Renderer,
        out: IndentedBuffer,
        width: int,
    ) -> None:
        values = [r.operand(v, width) for v in reduction.values]
        if accumulator.is_place:
            values = self._place(reduction, accumulator, r, width)
        with self.block("", out):
            out.writelines(accumulator.update(at, values, width))

    def _place(
        self, reduction: Reduction, accumulator: Accumulator, r: Renderer, width: int
    ) -> list[str]:
        """The value and its place in the row."""
        value = r.operand(reduction.values[0], width)
        t = r.index_type(width)
        if len(reduction.values) > 1:
            given = reduction.values[1]
            text = r.operand(given, width)
            if given.dtype != accumulator.index_dtype:
                text = f"convert_{t}({text})" if width > 1 else f"({t})({text})"
            return [value, text]
        assert self._row_tree is not None
        index = f"{self._row_tree.prefix}index"
        if width == 1:
            return [value, index]
        if self.in_rows:
            return [value, f"(({t})({index}) + ({t})(LANE_NUMBERS_{width}))"]
        return [value, f"({t})({index})"]

    def _results(
        self, reduction: Reduction, accumulator: Accumulator, r: Renderer, out: IndentedBuffer
    ) -> None:
        """Declares a reduction's results, which are in the accumulator's variables."""
        parts = accumulator.parts
        if accumulator.is_place:
            parts = parts[:1] if reduction.kind.endswith("_value") else parts[1:]
        for value, part in zip(reduction.results, parts, strict=True):
            width = r.width_of(value)
            text = part.name
            if part.is_one:
                text = r.widened(text, part.dtype, width)
            if part.dtype == torch.bool and width == 1:
                text = f"({text} != 0)"
            text = r.convert(text, part.dtype, value.dtype, width)
            out.writeline(f"const {c_type(value.dtype, width)} {value.name} = {text};")
