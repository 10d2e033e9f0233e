"""Forms whose lanes lie along columns: item_lanes, group_lanes and group_columns.

A reduction has a result to a lane. A work-item walks the rows of its columns, or has a share of
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import sympy
from torch._inductor.codegen.simd import IterationRangesRoot
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv

from torch_ocl.inductor import device as devices
from torch_ocl.inductor.forms.form import Form, Layout, Nest, numels
from torch_ocl.inductor.plan.access import Lanes, is_multiple
from torch_ocl.inductor.plan.sizes import (
    BYTES_OF_A_LINE,
    ENOUGH_COLUMNS,
    FEWEST_LANES,
    LONGEST_LINE,
    ROWS_OF_A_LINE,
)
from torch_ocl.inductor.text.accumulate import Accumulators
from torch_ocl.inductor.text.code import Body, Code
from torch_ocl.inductor.text.render import Renderer
from torch_ocl.inductor.values import Item, Reduction, Value


class Columns(Form):
    """Forms with such lanes.

    Attributes:
        tree: The loop over columns.
        outer: The loops around it, from the innermost one on.
    """

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.tree, self.outer = nest.lanes.tree, nest.around[1:]

    def place(
        self,
        lanes: Lanes,
        at_hand: dict[Value, str] | None = None,
        inner: IterationRangesRoot | None = None,
    ) -> Body:
        """This is done at one place of the columns.

        Args:
            lanes: The lanes.
            at_hand: Values that are variables already.
            inner: A loop whose index is known there only.
        """
        plan, row, out = self.nest.plan, self.nest.row, Code()
        r = Renderer(lanes, self.nest.names, at_hand)
        memory: list[str] = []
        if not plan.count:
            r.statements(plan.outside[0], out)
        elif row is None:  # nothing is reduced: the one pass is not a loop
            for stage in range(plan.count):
                r.statements(plan.outside[stage] + plan.passes[stage], out)
            r.statements(plan.outside[plan.count], out)
        else:
            for stage in range(plan.count):
                if plan.outside[stage]:
                    self.once(plan.outside[stage], r, out)
                made = Accumulators(plan.passes[stage], r.index_dtype, f"{row.prefix}index", False)
                self._pass(stage, row, made, r, out)
                memory += self.combine(made, r.width, out)
                made.results(r, out)
            self.once(plan.outside[plan.count], r, out)
        return r.indices.body(out, [self.tree] if inner is None else [self.tree, inner], memory)

    def _pass(
        self, stage: int, row: IterationRangesRoot, made: Accumulators, r: Renderer, out: Code
    ) -> None:
        """One pass over the rows."""
        made.start(out, r.width)
        inner = Code()
        r.statements(self.nest.plan.passes[stage], inner)
        made.take(r, inner)
        with out.block(self.head_of_rows(row.prefix)):
            out.splice(r.indices.body(inner, [row]).code)

    # --- by whom
    def once(self, items: Sequence[Item], r: Renderer, out: Code) -> None:
        """Writes what is computed once, not for each row."""
        r.statements(items, out)

    def head_of_rows(self, p: str) -> str:
        """The head of the loop over rows."""
        return f"for ({self.index_type} {p}index = 0; {p}index < {p}numel; ++{p}index)"

    def combine(self, made: Accumulators, width: int, out: Code) -> list[str]:
        """Combines the accumulators of work-items that share the rows. Returns declarations of
        local memory."""
        return []


class OwnColumns(Columns):
    """Vectors of columns, and the columns behind the last one."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.width, self.segment = nest.lanes.width, nest.lanes.segment
        columns = self.tree.numel if self.segment is None else self.segment
        self.has_rest = self.width > 1 and not is_multiple(columns, self.width)

    def places(self) -> list[Body]:
        """This is done with a vector, and with one column where some are left."""
        lanes = self.nest.lanes
        one = [self.place(lanes.of_width(1))] if self.has_rest else []
        return [self.place(lanes), *one]

    def sizes(self) -> tuple[sympy.Expr, ...]:
        """A launch goes by the columns, or by the segments in the place of rows."""
        columns, rows = self.tree.numel, sympy.prod([loop.numel for loop in self.outer])
        if self.segment is not None:
            columns, rows = self.segment, rows * FloorDiv(columns, self.segment)
        return columns, rows, self.nest.length


class ItemLanes(OwnColumns):
    """CPUs: a work-item walks a run of columns in a run of rows. Vectors don't cross the ends of
    segments, where columns have such."""

    name = "item_lanes"

    def layout(self) -> Layout:
        places, out = self.places(), Code()
        p, t, width = self.tree.prefix, self.index_type, self.width
        columns, row, rows = f"{p}numel", "row", numels(self.outer)
        start, stop, declared = "first", "end", []
        if self.segment is not None:
            start, stop = "line + first", "line + end"
            columns = f"({t})({self.nest.names.text(self.segment)})"
            count = f"({p}numel / {columns})"
            declared.append(f"const {t} line = row % {count} * {columns};")
            row, rows = f"(row / {count})", [*rows, f"{p}numel / {columns}"]
        declared += self.counters(self.outer, row, places)
        tails = {n: self.place(self.nest.lanes.of_width(n)) for n in self._tail_widths()}
        out.writeline(f"const {t} first = get_global_id(0) * ({t})a.columns_each;")
        out.writeline(f"const {t} end = min(first + ({t})a.columns_each, {columns});")
        run = Code()
        run.writelines(declared)
        run.writeline(f"{t} {p}index = {start};")
        for n, body in {width: places[0], **tails}.items():
            with run.block(f"for (; {p}index + {n - 1} < {stop}; {p}index += {n})"):
                run.splice(body.code)
        if self.has_rest:
            with run.block(f"for (; {p}index < {stop}; ++{p}index)"):
                run.splice(places[1].code)
        if rows:
            every = " * ".join(rows)
            out.writeline(f"const {t} first_row = get_global_id(1) * ({t})a.rows_each;")
            out.writeline(f"const {t} end_row = min(first_row + ({t})a.rows_each, ({t})({every}));")
            with out.block(f"for ({t} row = first_row; row < end_row; ++row)"):
                out.splice(run)
        else:
            out.splice(run)
        return self.laid_out(out, self.sizes(), width, bodies=[*places, *tails.values()])

    def _tail_widths(self) -> list[int]:
        """The widths of vectors for the end of a short segment."""
        if not isinstance(self.segment, sympy.Integer):
            return []
        width, widths = self.width, []
        rest = int(self.segment) % width
        while width > FEWEST_LANES:
            width //= 2
            if rest >= width:
                widths.append(width)
                rest -= width
        return widths


class GroupLanes(OwnColumns):
    """GPUs: a work-item has one vector of columns."""

    name = "group_lanes"

    def layout(self) -> Layout:
        wide, *one = places = self.places()
        p, t, width, out = self.tree.prefix, self.index_type, self.width, Code()
        out.writeline(f"const {t} row = get_global_id(1);")
        if self.outer:
            out.writeline(f"if (row >= {' * '.join(numels(self.outer))}) return;")
        out.writelines(self.counters(self.outer, "row", places))
        out.writeline(f"{t} {p}index = ({t})get_global_id(0) * {width};")
        with out.block(f"if ({p}index + {width - 1} < {p}numel)"):
            out.splice(wide.code)
        if one:
            with out.block(f"else for (; {p}index < {p}numel; ++{p}index)"):
                out.splice(one[0].code)
        return self.laid_out(out, self.sizes(), width, group=group_of(self.nest), bodies=places)


class Part(OwnColumns):
    """A function of a combo kernel (combo.py): the columns from `first` to `end`, which are its
    parameters. The launch is that of the forms above."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.name = ItemLanes.name if nest.on_cpu else GroupLanes.name

    def layout(self) -> Layout:
        places, out = self.places(), Code()
        p, width = self.tree.prefix, self.width
        out.writeline(f"{self.index_type} {p}index = first;")
        with out.block(f"for (; {p}index + {width - 1} < end; {p}index += {width})"):
            out.splice(places[0].code)
        if self.has_rest:
            with out.block(f"for (; {p}index < end; ++{p}index)"):
                out.splice(places[1].code)
        return self.laid_out(out, self.sizes(), width, group=group_of(self.nest), bodies=places)


class GroupColumns(Columns):
    """GPUs: a work-group reduces the rows of a line of columns."""

    name = "group_columns"

    def __init__(self, nest: Nest, lanes: Lanes, group: int) -> None:
        super().__init__(nest)
        _, most = devices.work_group_sizes(nest.device)
        self.own, self.width = lanes, lanes.width
        self.group, self.lines = group, most // group

    def layout(self) -> Layout:
        body, out = self.place(self.own), Code()
        p, t = self.tree.prefix, self.index_type
        out.writeline(f"const {t} row = get_group_id(1);")
        out.writeline("const int lane = get_local_id(0), line = get_local_id(1);")
        out.writelines(self.counters(self.outer, "row", [body]))
        # Columns past the end meet the others at barriers, and store nothing.
        out.writeline(f"const {t} own = ({t})get_global_id(0) * {self.width};")
        out.writeline(f"const int inside = own < {p}numel;")
        out.writeline(f"const {t} {p}index = inside ? own : 0;")
        out.splice(body.code)
        rows = sympy.prod([loop.numel for loop in self.outer])
        return self.laid_out(
            out,
            (self.tree.numel, rows, self.nest.length),
            self.width,
            group=self.group,
            lines=self.lines,
            bodies=[body],
        )

    def once(self, items: Sequence[Item], r: Renderer, out: Code) -> None:
        # Another line may not have read yet what is stored over.
        wait = "barrier(CLK_GLOBAL_MEM_FENCE);"
        r.statements_of_one(items, "line == 0 && inside", out, wait)

    def head_of_rows(self, p: str) -> str:
        t, start = self.index_type, f"inside ? line : {p}numel"
        return f"for ({t} {p}index = {start}; {p}index < {p}numel; {p}index += {self.lines})"

    def combine(self, made: Accumulators, width: int, out: Code) -> list[str]:
        return made.combine_lines(out, width, self.group, self.lines)


def shared_columns(nest: Nest) -> tuple[Lanes, int] | None:
    """The lanes, and how many vectors of columns a work-group's lines share the rows of. None
    without a reduction, where columns are enough without that, and where rows are few."""
    reductions = [i for i in nest.plan.needed if isinstance(i, Reduction)]
    if not reductions:
        return None
    hint = V.graph.sizevars.optimization_hint
    lanes = _dividing(nest.lanes)
    parts = sum(len(i.results) * i.dtype.itemsize for i in reductions)
    vectors = -(-hint(nest.lanes.tree.numel) // lanes.width)
    others = math.prod(hint(loop.numel) for loop in nest.around[1:])
    if parts * lanes.width > BYTES_OF_A_LINE or vectors * others >= ENOUGH_COLUMNS:
        return None
    _, most = devices.work_group_sizes(nest.device)
    group = 1
    while group < LONGEST_LINE and group < vectors:
        group *= 2
    while group < most and hint(nest.length) * group < ROWS_OF_A_LINE * most:
        group *= 2
    return (lanes, group) if group < most else None


def _dividing(lanes: Lanes) -> Lanes:
    """The lanes; one where they don't divide the columns, of which the last would be missed."""
    return lanes if is_multiple(lanes.tree.numel, lanes.width) else lanes.of_width(1)


def group_of(nest: Nest) -> int:
    """The work-items of a work-group that share nothing."""
    return 1 if nest.on_cpu else devices.work_group_sizes(nest.device)[0]
