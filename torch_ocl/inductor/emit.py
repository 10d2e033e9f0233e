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
from torch_ocl.inductor.stages import Item
from torch_ocl.inductor.types import c_type
from torch_ocl.inductor.values import Assert, Reduction, Store, Value

if TYPE_CHECKING:
    from torch_ocl.inductor.kernel import OclKernel

# Accumulators of a reduction in turns, so that a sum needn't wait for the one before.
UNROLL = 4


class Emitter:
    """Writes the body of one kernel."""

    def __init__(self, kernel: OclKernel, width: int) -> None:
        self.kernel, self.width = kernel, width
        self.plan = kernel.plan
        self.tree = kernel.lane_tree
        self.in_rows = kernel.lanes_in_rows
        self.group = kernel.group if kernel.is_gpu_form else 1
        self.out = IndentedBuffer()
        self.helpers: dict[str, None] = {}
        self.outer_symbols: dict[sympy.Symbol, None] = {}
        self.locals: list[str] = []
        self._row_tree: IterationRangesRoot | None = next(
            (t for t in kernel.range_trees if t.is_reduction), None
        )

    def renderer(self, width: int) -> Renderer:
        kernel = self.kernel
        lanes = Lanes(kernel.range_tree_nodes, self.tree, width, kernel.line)
        return Renderer(lanes, kernel.index_torch_dtype, kernel.pointer_of, kernel.rename_indexing)

    # --- statements
    def statements(self, items: list[Item], r: Renderer, out: IndentedBuffer) -> None:
        """Values and effects in order; stores into memory that is read here come last."""
        read = {self.kernel.memory_of(n) for i in items for n in _loads(i)}
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
        out = out or self.out
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

    def turned(self, across: IterationRangesRoot) -> list[Value]:
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
        """Reads squares of memory and turns them: tile_<value>[j] then has the lanes at place j
        of the other loop."""
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

    def _column_passes(self, r: Renderer, out: IndentedBuffer) -> None:
        """Reductions over rows of memory, a result to a lane."""
        plan, row = self.plan, self._row_tree
        if row is None:
            # Nothing is reduced: its one pass is not a loop.
            for stage in range(plan.count):
                self.statements(plan.outside[stage] + plan.passes[stage], r, out)
            self.statements(plan.outside[plan.count], r, out)
            return
        for stage in range(plan.count):
            self.statements(plan.outside[stage], r, out)
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
            head = f"for ({r.index_type(1)} {p}index = 0; {p}index < {p}numel; ++{p}index)"
            with self.block(head, out):
                out.writelines(symbols)
                out.splice(inner)
            for red, accumulator in made.items():
                self._results(red, accumulator, r, out)
        self.statements(plan.outside[plan.count], r, out)

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

    # --- rows whose lanes run along them
    def row(self) -> IndentedBuffer:
        """What is done with one row."""
        out = IndentedBuffer()
        one = self.renderer(1)
        plan = self.plan
        for value in plan.kept:
            self._declare_kept(value, out)
        for stage in range(plan.count):
            self._once(plan.outside[stage], one, out)
            self._pass(stage, one, out)
        self._once(plan.outside[plan.count], one, out)
        lines = self.declare_symbols(one, lambda root: not root.is_reduction)
        for symbol in list(self.outer_symbols):
            if not self.kernel.range_tree_nodes[symbol].root.is_reduction:
                one.symbols = {symbol: None}
                line = self.declare_symbols(one, lambda root: not root.is_reduction)
                lines += [text for text in line if text not in lines]
        whole = IndentedBuffer()
        whole.writelines(lines)
        whole.splice(out)
        return whole

    def _once(self, items: list[Item], r: Renderer, out: IndentedBuffer) -> None:
        """What is computed once a row; of a work-group, one work-item stores it."""
        if not self.kernel.is_gpu_form:
            self.statements(items, r, out)
            return
        effects = [i for i in items if isinstance(i, Store | Assert)]
        self.statements([i for i in items if i not in effects], r, out)
        if effects:
            with self.block("if (lid == 0)", out):
                self.statements(effects, r, out)

    @property
    def _length(self) -> int | None:
        """Of a row, if it is known."""
        assert self._row_tree is not None
        numel = self._row_tree.numel
        return int(numel) if isinstance(numel, sympy.Integer) else None

    def _chunks(self) -> int:
        """Of a kept row: vectors that a work-item has."""
        assert self._length is not None
        return -(-(self._length // self.width) // self.group)

    def _declare_kept(self, value: Value, out: IndentedBuffer) -> None:
        wide = self.renderer(self.width).width_of(value)
        chunks, name = self._chunks(), value.name
        if chunks:
            out.writeline(f"{c_type(value.dtype, wide)} kept_{name}[{chunks}];")
        assert self._length is not None
        tail = self._length % self.width
        if tail:
            rest = -(-tail // self.group)
            out.writeline(f"{c_type(value.dtype)} kept_{name}_rest[{rest}];")

    def _pass(self, stage: int, one: Renderer, out: IndentedBuffer) -> None:
        items = self.plan.passes[stage]
        reductions = [i for i in items if isinstance(i, Reduction)]
        made = {red: self._accumulator(red) for red in reductions}
        length, width = self._length, self.width
        turns = UNROLL if self.kernel.is_cpu_form else 1
        if length is not None and length // width < UNROLL:
            turns = 1
        if any(red.kind.startswith(("welford", "arg")) for red in reductions):
            turns = 1
        has_tail = width > 1 and (length is None or length % width != 0)
        has_main = width == 1 or length is None or length >= width
        for accumulator in made.values():
            for part in accumulator.parts:
                at = 1 if part.is_one else width
                t, start = c_type(part.dtype, at), accumulator.start_of(part, at)
                if turns > 1:
                    out.writeline(f"{t} {part.name}_[{turns}] = {{{', '.join([start] * turns)}}};")
                else:
                    out.writeline(f"{t} {part.name}_ = {start};")
                if has_tail:
                    out.writeline(f"{c_type(part.dtype)} {part.name}_rest = {part.start};")
        if has_main:
            self._main_loop(stage, made, turns, out)
        if has_tail:
            self._rest_loop(stage, made, out)
        for red, accumulator in made.items():
            self._finish(accumulator, turns, has_tail, out)
            self._results(red, accumulator, one, out)

    def _loop_body(
        self, stage: int, made: dict[Reduction, Accumulator], width: int, turns: int, rest: bool
    ) -> tuple[IndentedBuffer, bool]:
        r = self.renderer(width)
        end = "_rest" if rest else ""
        place = "k"
        inner = IndentedBuffer()
        items = self.plan.passes[stage]
        for value, at in self.plan.kept.items():
            if at < stage:
                r.names[value] = f"kept_{value.name}{end}[{place}]"
        self.statements(items, r, inner)
        for red, accumulator in made.items():
            suffix = "_rest" if rest else "_[u]" if turns > 1 else "_"
            names = [p.name + suffix for p in accumulator.parts]
            self._update(red, accumulator, names, r, inner, width)
        kept = [v for v, at in self.plan.kept.items() if at == stage]
        for value in kept:
            inner.writeline(f"kept_{value.name}{end}[{place}] = {value.name};")
        lines = self.declare_symbols(r, lambda root: root.is_reduction)
        whole = IndentedBuffer()
        whole.writelines(lines)
        whole.splice(inner)
        return whole, bool(self.plan.kept)

    def _main_loop(
        self, stage: int, made: dict[Reduction, Accumulator], turns: int, out: IndentedBuffer
    ) -> None:
        assert self._row_tree is not None
        p, width = self._row_tree.prefix, self.width
        body, _ = self._loop_body(stage, made, width, turns, False)
        t = c_type(self.kernel.index_torch_dtype)
        length = self._length
        if self.kernel.is_gpu_form:
            whole = f"({p}numel - {p}numel % {width})" if width > 1 else f"{p}numel"
            step = self.group * width
            chunks = f"({whole} + {step - 1}) / {step}" if length is None else str(self._chunks())
            with self.block(f"for ({t} k = 0; k < {chunks}; ++k)", out):
                out.writeline(f"const {t} {p}index = (k * {self.group} + lid) * {width};")
                exact = length is not None and length // width % self.group == 0
                if exact:
                    out.splice(body)
                else:
                    with self.block(f"if ({p}index < {whole})", out):
                        out.splice(body)
            return
        chunks = str(length // width) if length is not None else f"{p}numel / {width}"
        if turns == 1:
            with self.block(f"for ({t} k = 0; k < {chunks}; ++k)", out):
                out.writeline(f"const {t} {p}index = k * {width};")
                out.splice(body)
            return
        exact = length is not None and length // width % turns == 0
        with self.block(f"for ({t} k0 = 0; k0 + {turns - 1} < {chunks}; k0 += {turns})", out):
            out.writeline("#pragma unroll")
            with self.block(f"for (int u = 0; u < {turns}; ++u)", out):
                out.writeline(f"const {t} k = k0 + u, {p}index = k * {width};")
                out.splice(body)
        if not exact:
            start = f"{chunks} / {turns} * {turns}"
            with self.block(f"for ({t} k = {start}, u = 0; k < {chunks}; ++k)", out):
                out.writeline(f"const {t} {p}index = k * {width};")
                out.splice(body)

    def _rest_loop(
        self, stage: int, made: dict[Reduction, Accumulator], out: IndentedBuffer
    ) -> None:
        """The elements behind the last whole vector, one at a time."""
        assert self._row_tree is not None
        p, width = self._row_tree.prefix, self.width
        body, _ = self._loop_body(stage, made, 1, 1, True)
        t = c_type(self.kernel.index_torch_dtype)
        first = f"{p}numel - {p}numel % {width}"
        start, step = ("lid", str(self.group)) if self.kernel.is_gpu_form else ("0", "1")
        head = f"for ({t} k = 0, {p}index = {first} + {start}; {p}index < {p}numel; "
        with self.block(head + f"++k, {p}index += {step})", out):
            out.splice(body)

    def _finish(
        self, accumulator: Accumulator, turns: int, has_tail: bool, out: IndentedBuffer
    ) -> None:
        """From the accumulators of a row's lanes to one, whose variables are the parts' names."""
        width, parts = self.width, accumulator.parts
        if turns > 1:
            with self.block(f"for (int u = 1; u < {turns}; ++u)", out):
                out.writelines(
                    accumulator.combine(
                        [f"{p.name}_[0]" for p in parts], [f"{p.name}_[u]" for p in parts], width
                    )
                )
        names = [f"{p.name}_[0]" if turns > 1 else f"{p.name}_" for p in parts]
        has_main = self.width == 1 or self._length is None or self._length >= width
        for part, name in zip(parts, names, strict=True):
            out.writeline(f"{c_type(part.dtype)} {part.name};")
        with self.block("", out):
            self._fold(accumulator, names, out)
        if has_tail:
            with self.block("", out):
                rest = [f"{p.name}_rest" for p in parts]
                out.writelines(accumulator.combine([p.name for p in parts], rest, 1))
        del has_main
        if self.kernel.is_gpu_form:
            self._across_group(accumulator, out)

    def _fold(self, accumulator: Accumulator, names: list[str], out: IndentedBuffer) -> None:
        """Halves the lanes until one is left."""
        width, parts = self.width, accumulator.parts
        names = list(names)
        for i, part in enumerate(parts):
            if part.is_one and width > 1:
                t = c_type(part.dtype, width)
                out.writeline(f"const {t} {part.name}_all = ({t})({names[i]});")
                names[i] = f"{part.name}_all"
        while width > 1:
            width //= 2
            for part, name in zip(parts, names, strict=True):
                out.writeline(f"{c_type(part.dtype, width)} {part.name}_{width} = {name}.lo;")
            with self.block("", out):
                out.writelines(
                    accumulator.combine(
                        [f"{p.name}_{width}" for p in parts], [f"{n}.hi" for n in names], width
                    )
                )
            names = [f"{p.name}_{width}" for p in parts]
        for part, name in zip(parts, names, strict=True):
            out.writeline(f"{part.name} = {name};")

    def _across_group(self, accumulator: Accumulator, out: IndentedBuffer) -> None:
        parts = accumulator.parts
        for part in parts:
            self.locals.append(f"local {c_type(part.dtype)} {part.name}_shared[{self.group}];")
            out.writeline(f"{part.name}_shared[lid] = {part.name};")
        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        with self.block(f"for (int half_ = {self.group // 2}; half_ > 0; half_ /= 2)", out):
            with self.block("if (lid < half_)", out):
                out.writelines(
                    accumulator.combine(
                        [f"{p.name}_shared[lid]" for p in parts],
                        [f"{p.name}_shared[lid + half_]" for p in parts],
                        1,
                    )
                )
            out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        for part in parts:
            out.writeline(f"{part.name} = {part.name}_shared[0];")


def _loads(item: Item) -> list[str]:
    from torch_ocl.inductor.stages import loads_of

    return loads_of(item)
