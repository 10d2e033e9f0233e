"""Forms that read squares of memory, and transpose them: tiles of columns and of the next loop.

A load whose neighbours in memory lie along the next loop is done along that loop. CPUs transpose a
tile in registers, and GPUs in local memory.
"""

from __future__ import annotations

import sympy
from torch.utils._sympy.functions import FloorDiv

from torch_ocl.inductor.forms.columns import Columns
from torch_ocl.inductor.forms.form import Layout, Nest, numels
from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.plan.sizes import FEWEST_LANES, TILE_LINES, TILE_SIDE
from torch_ocl.inductor.text.code import Body, Code
from torch_ocl.inductor.text.render import Renderer
from torch_ocl.inductor.types import c_type
from torch_ocl.inductor.values import Value


class _Tiles(Columns):
    """Tiles of `side` columns and as many places of the loop `across`, the next one."""

    def __init__(self, nest: Nest, transposed: list[Value], side: int) -> None:
        super().__init__(nest)
        self.transposed, self.side, self.across = transposed, side, self.outer[0]

    @property
    def blocks(self) -> str:
        """How many tiles cover the next loop."""
        return f"(({self.across.prefix}numel + {self.side - 1}) / {self.side})"

    def sizes(self) -> tuple[sympy.Expr | int, ...]:
        """A launch goes by columns and by tiles of the next loop."""
        blocks = FloorDiv(self.across.numel + self.side - 1, self.side)
        rows = sympy.prod([blocks, *(loop.numel for loop in self.outer[1:])])
        return self.tree.numel, rows, self.side

    def loads(self, width: int, place: str) -> Body:
        """Reads `width` of each transposed value into the place of its tile."""
        lanes = Lanes(self.nest.lanes.entries, self.across, width)
        r, reads = Renderer(lanes, self.nest.names), Code()
        for load in self.transposed:
            reads.writeline(f"tile_{load.name}[{place}] = {r.expression(load)};")
        return r.indices.body(reads, [self.tree, self.across])


class ItemTiles(_Tiles):
    """CPUs: squares of as many columns as there are lanes; the places that are left one by one."""

    name = "item_lanes"

    def __init__(self, nest: Nest, transposed: list[Value]) -> None:
        super().__init__(nest, transposed, nest.lanes.width)

    def layout(self) -> Layout:
        p, q, t, side = self.tree.prefix, self.across.prefix, self.index_type, self.side
        out, load = Code(), self._load()
        names = {value: f"tile_{value.name}[j]" for value in self.transposed}
        lanes, single = self.nest.lanes, self.nest.lanes.of_width(1)
        square = self.place(lanes, names, self.across)
        wide, one = self.place(lanes, None, self.across), self.place(single, None, self.across)
        bodies = [load, square, wide, one]
        out.writeline(f"const {t} first = get_global_id(0) * ({t})a.columns_each;")
        out.writeline(f"const {t} end = min(first + ({t})a.columns_each, {p}numel);")
        rows = " * ".join([self.blocks, *numels(self.outer[1:])])
        out.writeline(f"const {t} first_row = get_global_id(1) * ({t})a.rows_each;")
        out.writeline(f"const {t} end_row = min(first_row + ({t})a.rows_each, ({t})({rows}));")

        def each_row(body: Body, stop: str) -> None:
            head = f"for ({t} {q}index = {q}first; {q}index < {stop}; ++{q}index)"
            with out.block(head):
                out.splice(body.code)

        with out.block(f"for ({t} row = first_row; row < end_row; ++row)"):
            out.writeline(f"const {t} {q}first = row % {self.blocks} * {side};")
            row = f"(row / {self.blocks})"
            out.writelines(self.counters(self.outer[1:], row, bodies))
            out.writeline(f"{t} {p}first = first;")
            with out.block(f"for (; {p}first + {side - 1} < end; {p}first += {side})"):
                with out.block(f"if ({q}first + {side - 1} < {q}numel)"):
                    out.splice(load.code)
                    with out.block(f"for (int j = 0; j < {side}; ++j)"):
                        out.writeline(f"const {t} {p}index = {p}first, {q}index = {q}first + j;")
                        out.splice(square.code)
                    out.writeline("continue;")
                out.writeline(f"const {t} {p}index = {p}first;")
                each_row(wide, f"{q}numel")
            with out.block(f"for ({t} {p}index = {p}first; {p}index < end; ++{p}index)"):
                each_row(one, f"min({q}first + {side}, {q}numel)")
        return self.laid_out(out, self.sizes(), side, bodies=bodies)

    def _load(self) -> Body:
        """Fills the tiles: tile_<value>[j] then has the lanes at place j of the next loop."""
        p, q, t, side = self.tree.prefix, self.across.prefix, self.index_type, self.side
        reads, out = self.loads(side, "j"), Code()
        for load in self.transposed:
            out.writeline(f"{c_type(load.dtype, side)} tile_{load.name}[{side}];")
        with out.block(f"for (int j = 0; j < {side}; ++j)"):
            out.writeline(f"const {t} {p}index = {p}first + j, {q}index = {q}first;")
            out.splice(reads.code)
        for load in self.transposed:
            out.writeline(f"transpose_{c_type(load.dtype)}_{side}(tile_{load.name});")
        return Body(out, reads.outer)


class GroupTiles(_Tiles):
    """GPUs: a work-group's tile in local memory. What is read along the one loop and what is read
    along the other are then both read line by line."""

    name = "group_tiles"

    def __init__(self, nest: Nest, transposed: list[Value]) -> None:
        super().__init__(nest, transposed, TILE_SIDE)

    def layout(self) -> Layout:
        p, q, t, side = self.tree.prefix, self.across.prefix, self.index_type, self.side
        out, load = Code(), self.loads(1, f"j * {side + 1} + lane")
        names = {v: f"tile_{v.name}[lane * {side + 1} + j]" for v in self.transposed}
        body = self.place(self.nest.lanes.of_width(1), names, self.across)
        for value in self.transposed:
            size = side * (side + 1)
            out.writeline(f"local {c_type(value.dtype)} tile_{value.name}[{size}];")
        out.writeline("const int lane = get_local_id(0), line = get_local_id(1);")
        out.writeline(f"const {t} row = get_group_id(1);")
        out.writeline(f"const {t} {q}first = row % {self.blocks} * {side};")
        row = f"(row / {self.blocks})"
        out.writelines(self.counters(self.outer[1:], row, [load, body]))
        out.writeline(f"const {t} {p}first = get_group_id(0) * {side};")

        def lines(along: str, beside: str, inner: Code) -> None:
            with out.block(f"for (int j = line; j < {side}; j += {TILE_LINES})"):
                places = f"{along}index = {along}first + lane, {beside}index = {beside}first + j"
                out.writeline(f"const {t} {places};")
                with out.block(f"if ({p}index < {p}numel && {q}index < {q}numel)"):
                    out.splice(inner)

        lines(q, p, load.code)
        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        lines(p, q, body.code)
        return self.laid_out(
            out, self.sizes(), 1, group=side, lines=TILE_LINES, bodies=[load, body]
        )


def transposed_loads(nest: Nest) -> list[Value]:
    """Loads whose neighbours in memory lie along the next loop, rather than along the lanes."""
    lanes, around, plan = nest.lanes, nest.around, nest.plan
    if plan.count or len(around) < 2 or lanes.segment is not None:
        return []
    if lanes.width < FEWEST_LANES:
        return []
    other = Lanes(lanes.entries, around[1], lanes.width)
    return [
        item
        for item in dict.fromkeys(plan.outside[0])
        if isinstance(item, Value)
        and item.op == "load"
        and not item.args
        and lanes.stride(item.index) not in (0, 1)
        and other.stride(item.index) == 1
    ]
