"""How many lanes a kernel has, its loops over columns and rows, and its program's text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot
from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

from torch_ocl.inductor import device as devices
from torch_ocl.inductor.access import Lanes, is_multiple
from torch_ocl.inductor.emit import Emitter
from torch_ocl.inductor.group_loops import GroupLoops
from torch_ocl.inductor.types import c_type, compute_dtype
from torch_ocl.inductor.values import Store, Value

if TYPE_CHECKING:
    from torch_ocl.inductor.kernel import OclKernel

CPU_LANES, GPU_LANES = 16, 4
# Lanes below this are worth less than what a division for each lane costs.
FEWEST_LANES = 4


class Loops(GroupLoops):
    """The part of OclKernel that is about loops."""

    def _choose_width(self: OclKernel) -> int:
        """How many lanes: at most as many as divide what loop indices are split by."""
        tree = self.lane_tree
        items = [*_all_items(self.plan.needed)]
        most = CPU_LANES if self.is_cpu_form else self._gpu_lanes(items)
        self.line = None
        if isinstance(tree.numel, sympy.Integer):
            while most > 1 and most > tree.numel:
                most //= 2
        used = {
            s
            for i in items
            if isinstance(i, Value | Store) and i.index is not None
            for s in i.index.free_symbols
            if s in self.range_tree_nodes and self.range_tree_nodes[s].root is tree
        }
        entries = [self.range_tree_nodes[s] for s in used]
        self.line = self._find_line(entries, most)
        if self.line is not None:
            return most
        width = most
        while width > 1 and not all(_splits_into(e, width) for e in entries):
            width //= 2
        if width < min(FEWEST_LANES, most):
            width = most if self._many_contiguous(items, most) else 1
        return width

    def _gpu_lanes(self, items: list[Any]) -> int:
        """As many as have 16 bytes in memory; numbers of 8 bytes take twice the registers."""
        values = [i for i in items if isinstance(i, Value)]
        if any(v.dtype.itemsize == 8 for v in values):
            return GPU_LANES // 2
        buffers = {i.name for i in items if isinstance(i, Store)}
        buffers |= {v.attrs["name"] for v in values if v.op == "load"}
        small = all(V.graph.get_dtype(name).itemsize <= 2 for name in buffers)
        return 2 * GPU_LANES if small else GPU_LANES

    def _find_line(
        self: OclKernel, entries: list[IterationRangesEntry], most: int
    ) -> sympy.Expr | None:
        """The length of lines whose ends lanes must not cross, if most lanes don't divide it."""
        if self.is_gpu_form or self.lanes_in_rows:
            return None
        sizes = V.graph.sizevars
        lengths = [
            e.length
            for e in entries
            if e.divisor == 1 and not sizes.statically_known_equals(e.length, e.root.numel)
        ]
        lengths += [e.divisor for e in entries if e.divisor != 1]
        if not lengths or all(is_multiple(n, most) for n in lengths):
            return None
        line = min(lengths, key=lambda n: sizes.optimization_hint(n))
        if sizes.optimization_hint(line) < most or not is_multiple(self.lane_tree.numel, line):
            return None
        return line if all(is_multiple(n, line) for n in lengths) else None

    def _many_contiguous(self: OclKernel, items: list[Any], width: int) -> bool:
        """Whether vectors pay although some indices differ from lane to lane."""
        lanes = Lanes(self.range_tree_nodes, self.lane_tree, width)
        places = [
            i for i in items if isinstance(i, Store) or (isinstance(i, Value) and i.op == "load")
        ]
        near = sum(lanes.stride(i.index) in (0, 1) for i in places)
        return 2 * near >= len(places)

    def _trees(self: OclKernel) -> tuple[IterationRangesRoot | None, list[IterationRangesRoot]]:
        """The one whose indices are columns, and the others but the reduction, innermost first."""
        outer = [t for t in reversed(self.range_trees) if not t.is_reduction]
        if self.lanes_in_rows:
            return None, outer
        return (outer[0], outer[1:]) if outer else (None, [])

    def _declare_outer(
        self: OclKernel, emitter: Emitter, trees: list[IterationRangesRoot], row: str
    ) -> list[str]:
        """Declares indices of loops whose one counter is `row`, and what is derived of them."""
        t = c_type(self.index_torch_dtype)
        lines = []
        rest = row
        for i, tree in enumerate(trees):
            last = i == len(trees) - 1
            text = rest if last else f"{rest} % {tree.prefix}numel"
            lines.append(f"const {t} {tree.prefix}index = {text};")
            rest = f"({rest} / {tree.prefix}numel)"
        for symbol in emitter.outer_symbols:
            entry = self.range_tree_nodes[symbol]
            if entry.root in trees and not self.lanes_in_rows:
                text = self.kexpr(self.rename_indexing(entry.expr))
                lines.append(f"const {t} {symbol} = {text};")
        return lines

    def _rows_loop(self: OclKernel, emitter: Emitter, out: IndentedBuffer) -> None:
        row = emitter.row()
        _, trees = self._trees()
        lines = self._declare_outer(emitter, trees, "row")
        t = c_type(self.index_torch_dtype)
        if self.is_gpu_form:
            out.writeline(f"const {t} row = get_group_id(0);")
            out.writelines(lines)
            out.splice(row)
            return
        rows = " * ".join(f"{tree.prefix}numel" for tree in trees) or "1"
        out.writeline(f"const {t} first = get_global_id(0) * ({t})a.rows_each;")
        out.writeline(f"const {t} end = min(first + ({t})a.rows_each, ({t})({rows}));")
        out.writeline(f"for ({t} row = first; row < end; ++row) {{")
        with out.indent():
            out.writelines(lines)
            out.splice(row)
        out.writeline("}")

    def _find_transposed(self: OclKernel, emitter: Emitter) -> list[Value]:
        """Loads that are done in squares."""
        _, trees = self._trees()
        usable = not self.lanes_in_rows and trees and not self.plan.count
        if not usable or self.line is not None or self.width < FEWEST_LANES:
            return []
        return emitter.transposed(trees[0])

    def _tiles_loop(self: OclKernel, emitter: Emitter, out: IndentedBuffer) -> None:
        """Squares of width x width of columns and the next loop; what is left, place by place."""
        tree, trees = self._trees()
        assert tree is not None
        across, width = trees[0], self.width
        p, q, t = tree.prefix, across.prefix, c_type(self.index_torch_dtype)
        tiles = IndentedBuffer()
        emitter.tiles(self.transposed, across, tiles)
        names = {load: f"tile_{load.name}[j]" for load in self.transposed}
        square = emitter.columns(width, names, across)
        wide, one = emitter.columns(width, None, across), emitter.columns(1, None, across)
        out.writeline(f"const {t} first = get_global_id(0) * ({t})a.columns_each;")
        out.writeline(f"const {t} end = min(first + ({t})a.columns_each, {p}numel);")
        blocks = f"(({q}numel + {width - 1}) / {width})"
        rows = " * ".join([blocks, *(f"{x.prefix}numel" for x in trees[1:])])
        out.writeline(f"const {t} first_row = get_global_id(1) * ({t})a.rows_each;")
        out.writeline(f"const {t} end_row = min(first_row + ({t})a.rows_each, ({t})({rows}));")

        def each_row(body: IndentedBuffer, stop: str) -> None:
            head = f"for ({t} {q}index = {q}first; {q}index < {stop}; ++{q}index)"
            with emitter.block(head, out):
                out.splice(body)

        with emitter.block(f"for ({t} row = first_row; row < end_row; ++row)", out):
            out.writeline(f"const {t} {q}first = row % {blocks} * {width};")
            out.writelines(self._declare_outer(emitter, trees[1:], f"(row / {blocks})"))
            out.writeline(f"{t} {p}first = first;")
            with emitter.block(f"for (; {p}first + {width - 1} < end; {p}first += {width})", out):
                with emitter.block(f"if ({q}first + {width - 1} < {q}numel)", out):
                    out.splice(tiles)
                    with emitter.block(f"for (int j = 0; j < {width}; ++j)", out):
                        out.writeline(f"const {t} {p}index = {p}first, {q}index = {q}first + j;")
                        out.splice(square)
                    out.writeline("continue;")
                out.writeline(f"const {t} {p}index = {p}first;")
                each_row(wide, f"{q}numel")
            with emitter.block(f"for ({t} {p}index = {p}first; {p}index < end; ++{p}index)", out):
                each_row(one, f"min({q}first + {width}, {q}numel)")

    def _columns_loop(self: OclKernel, emitter: Emitter, out: IndentedBuffer) -> None:
        self.transposed = self._find_transposed(emitter)
        if self.transposed:
            if self.is_gpu_form:
                self._group_tiles(emitter, out)
            else:
                self._tiles_loop(emitter, out)
            return
        line = self._shared_columns()
        if line:
            _, most = devices.work_group_sizes(self.device.index)
            self.group, self.lines = line, most // line
            emitter.share_columns(self.group, self.lines)
            self._lines_loop(emitter, out)
            return
        width = self.width
        wide = emitter.columns(width)
        one = emitter.columns(1) if width > 1 else None
        tree, trees = self._trees()
        assert tree is not None
        p, t = tree.prefix, c_type(self.index_torch_dtype)
        columns, rest = f"{p}numel", "row"
        lines = []
        if self.line is not None:
            columns = f"({t})({self.kexpr(self.rename_indexing(self.line))})"
            count = f"({p}numel / {columns})"
            lines.append(f"const {t} line = row % {count} * {columns};")
            rest = f"(row / {count})"
        lines += self._declare_outer(emitter, trees, rest)
        exact = is_multiple(tree.numel if self.line is None else self.line, width)
        if self.is_gpu_form:
            out.writeline(f"const {t} row = get_global_id(1);")
            if trees:
                rows = " * ".join(f"{x.prefix}numel" for x in trees)
                out.writeline(f"if (row >= {rows}) return;")
            out.writelines(lines)
            out.writeline(f"{t} {p}index = ({t})get_global_id(0) * {width};")
            out.writeline(f"if ({p}index + {width - 1} < {p}numel) {{")
            with out.indent():
                out.splice(wide)
            out.writeline("}")
            if one is not None and not exact:
                out.writeline(f"else for (; {p}index < {p}numel; ++{p}index) {{")
                with out.indent():
                    out.splice(one)
                out.writeline("}")
            return
        out.writeline(f"const {t} first = get_global_id(0) * ({t})a.columns_each;")
        out.writeline(f"const {t} end = min(first + ({t})a.columns_each, {columns});")
        depth = bool(trees) or self.line is not None
        if depth:
            rows = [f"{x.prefix}numel" for x in trees]
            if self.line is not None:
                rows.append(f"{p}numel / {columns}")
            rows = " * ".join(rows)
            out.writeline(f"const {t} first_row = get_global_id(1) * ({t})a.rows_each;")
            out.writeline(f"const {t} end_row = min(first_row + ({t})a.rows_each, ({t})({rows}));")
            out.writeline(f"for ({t} row = first_row; row < end_row; ++row) {{")
        with out.indent(int(depth)):
            out.writelines(lines)
            start, stop = ("first", "end") if self.line is None else ("line + first", "line + end")
            out.writeline(f"{t} {p}index = {start};")
            out.writeline(f"for (; {p}index + {width - 1} < {stop}; {p}index += {width}) {{")
            with out.indent():
                out.splice(wide)
            out.writeline("}")
            for part in self._tail_widths(width):
                out.writeline(f"for (; {p}index + {part - 1} < {stop}; {p}index += {part}) {{")
                with out.indent():
                    out.splice(emitter.columns(part))
                out.writeline("}")
            if one is not None and not exact:
                out.writeline(f"for (; {p}index < {stop}; ++{p}index) {{")
                with out.indent():
                    out.splice(one)
                out.writeline("}")
        if depth:
            out.writeline("}")

    def _part(self: OclKernel, emitter: Emitter) -> str:
        """A function of the columns from `first` to `end`: a part of a combo kernel."""
        width = self.width
        wide = emitter.columns(width)
        one = emitter.columns(1) if width > 1 else None
        tree = self.lane_tree
        p, t = tree.prefix, c_type(self.index_torch_dtype)
        tensors, numbers = self.call_parameters()
        parameters = [f"global char* {inner}" for inner, _ in tensors]
        for number in numbers:
            kind = number_type(number, self.host_numbers, self.index_torch_dtype)
            parameters.append(f"const {kind} {number[0]}")
        parameters += [f"const {t} {name}" for name in ("first", "end", f"{p}numel")]
        out = IndentedBuffer()
        with emitter.block(f"static inline void PART_NAME({', '.join(parameters)})", out):
            out.writelines(dict.fromkeys(emitter.locals))
            out.writeline(f"{t} {p}index = first;")
            head = f"for (; {p}index + {width - 1} < end; {p}index += {width})"
            with emitter.block(head, out):
                out.splice(wide)
            if one is not None and not is_multiple(tree.numel, width):
                with emitter.block(f"for (; {p}index < end; ++{p}index)", out):
                    out.splice(one)
        return out.getvalue()

    def _tail_widths(self: OclKernel, width: int) -> list[int]:
        """Of vectors for what is left of a short line."""
        if not isinstance(self.line, sympy.Integer):
            return []
        rest, widths = int(self.line) % width, []
        while width > FEWEST_LANES:
            width //= 2
            if rest >= width:
                widths.append(width)
                rest -= width
        return widths

    def _assemble(self: OclKernel, name: str, emitter: Emitter, body: IndentedBuffer) -> str:
        """The struct of arguments, the head and what it declares, the body."""
        tensors, numbers = self.call_parameters()
        out = IndentedBuffer()
        out.writeline("typedef struct {")
        with out.indent():
            out.writelines(struct_members(tensors, numbers))
            for i in range(len(self.sites)):
                out.writeline(f"ulong site{i};")
            out.writeline("long columns_each, rows_each;")
        out.writeline(f"}} {name}_arguments;")
        out.writeline("")
        buffers = " ".join(f"BUFFER({inner})" for inner, _ in tensors)
        checks = ", global int* asserts" if self.sites else ""
        items = "ITEM_BY_ITEM " if self.is_cpu_form else ""
        out.writeline(f"kernel {items}void {name}({buffers} const {name}_arguments a{checks}) {{")
        with out.indent():
            index = self.index_torch_dtype
            out.writelines(declarations(tensors, numbers, self.host_numbers, index))
            t = c_type(index)
            for tree in self.range_trees:
                if isinstance(tree.numel, sympy.Integer):
                    out.writeline(f"const {t} {tree.prefix}numel = {tree.numel};")
            if self.is_gpu_form and self.lanes_in_rows:
                out.writeline("const int lid = get_local_id(0);")
            for line in dict.fromkeys(emitter.locals):
                out.writeline(line)
            out.splice(body)
        out.writeline("}")
        return out.getvalue()


Tensors = list[tuple[str, str]]
Numbers = list[tuple[str, Any, str]]


def struct_members(tensors: Tensors, numbers: Numbers) -> list[str]:
    """The members of a kernel's struct for its OclKernel.call_parameters()."""
    members = {"l": "long {0};", "d": "double {0};", "f": "float {0}, {0}_;"}
    return [
        *(f"ADDRESS({inner})" for inner, _ in tensors),
        *(members[kind].format(inner) for inner, _, kind in numbers),
    ]


def number_type(
    number: tuple[str, Any, str], host_numbers: dict[str, torch.dtype], index: torch.dtype
) -> str:
    """The C type that a number of the call is used as."""
    inner, outer, kind = number
    if inner.endswith("_number"):
        return c_type(compute_dtype(host_numbers[outer]))
    return c_type(index) if kind == "l" else "float"


def declarations(
    tensors: Tensors, numbers: Numbers, host_numbers: dict[str, torch.dtype], index: torch.dtype
) -> list[str]:
    """Declares what the struct `a` has, by its members' names."""
    lines = [f"global char* {inner} = POINTER({inner});" for inner, _ in tensors]
    for number in numbers:
        inner, t = number[0], number_type(number, host_numbers, index)
        lines.append(f"const {t} {inner} = ({t})a.{inner};")
    return lines


def _all_items(items: Any) -> Any:
    for item in items:
        yield item
        if isinstance(item, Value) and item.op == "masked":
            yield from _all_items(item.attrs["region"].items)


def _splits_into(entry: IterationRangesEntry, width: int) -> bool:
    if entry.divisor != 1 and not is_multiple(entry.divisor, width):
        return False
    whole = V.graph.sizevars.statically_known_equals(entry.divisor * entry.length, entry.root.numel)
    return whole or is_multiple(entry.length, width) or entry.divisor != 1
