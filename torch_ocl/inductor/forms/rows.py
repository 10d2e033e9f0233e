"""Forms whose lanes are neighbours in a row that is reduced: item_rows and group_rows.

A row is read in the passes of the plan. The elements behind the last whole vector come one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from torch_ocl.inductor.forms.form import Form, Layout, Nest, numels
from torch_ocl.inductor.plan.sizes import TURNS, row_group
from torch_ocl.inductor.text.accumulate import Accumulators
from torch_ocl.inductor.text.code import Body, Code
from torch_ocl.inductor.text.render import Renderer
from torch_ocl.inductor.types import c_type
from torch_ocl.inductor.values import Item, Reduction, Value


class Rows(Form):
    """A row by one work-item, or by the work-items of a group.

    Attributes:
        group: These work-items.
    """

    group = 1

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        assert nest.row is not None
        self.prefix, self.width = nest.row.prefix, nest.lanes.width
        self.row_loop, numel = nest.row, nest.row.numel
        self.length = int(numel) if isinstance(numel, sympy.Integer) else None

    def renderer(self, width: int, at_hand: dict[Value, str] | None = None) -> Renderer:
        """A writer of `width` lanes; `at_hand` are texts of values that are variables already."""
        return Renderer(self.nest.lanes.of_width(width), self.nest.names, at_hand)

    def sizes(self) -> tuple[sympy.Expr | int, ...]:
        """A launch has as many work-items or groups as rows."""
        rows = sympy.prod([loop.numel for loop in self.nest.around])
        return 1, rows, self.nest.length

    def row(self) -> Body:
        """This is done with one row."""
        plan, out, one = self.nest.plan, Code(), self.renderer(1)
        memory: list[str] = []
        for value in plan.kept:
            self._declare_kept(value, out)
        for stage in range(plan.count):
            self.once(plan.outside[stage], one, out)
            made = Accumulators(plan.passes[stage], one.index_dtype, f"{self.prefix}index", True)
            self._pass(stage, made, out)
            memory += self.combine(made, out)
            made.results(one, out)
        self.once(plan.outside[plan.count], one, out)
        return one.indices.body(out, self.nest.around, memory)

    def _pass(self, stage: int, made: Accumulators, out: Code) -> None:
        """One pass over the row."""
        length, width, turns = self.length, self.width, self.turns(stage)
        has_rest = width > 1 and (length is None or length % width != 0)
        made.start(out, width, "_", turns, has_rest)
        if width == 1 or length is None or length >= width:
            body = self._element(stage, made, width, "_[u]" if turns > 1 else "_")
            self.vectors(body, turns, out)
        if has_rest:
            self._rest(self._element(stage, made, 1, "_rest"), out)
        made.fold(out, width, turns, has_rest)

    def _element(self, stage: int, made: Accumulators, width: int, end: str) -> Code:
        """This is done with one vector, or with one element of the rest; `end` is that of the
        accumulators' names."""
        kept, lines = self.nest.plan.kept, Code()
        place = "_rest[k]" if end == "_rest" else "[k]"
        at_hand = {v: f"kept_{v.name}{place}" for v, at in kept.items() if at < stage}
        r = self.renderer(width, at_hand)
        r.statements(self.nest.plan.passes[stage], lines)
        made.take(r, lines, end)
        for value in (v for v, at in kept.items() if at == stage):
            lines.writeline(f"kept_{value.name}{place} = {value.name};")
        return r.indices.body(lines, [self.row_loop]).code

    def _rest(self, body: Code, out: Code) -> None:
        """The loop over the elements behind the last whole vector."""
        p, t = self.prefix, self.index_type
        start, step = self.first_and_step()
        first = f"{p}numel - {p}numel % {self.width}"
        head = f"for ({t} k = 0, {p}index = {first} + {start}; {p}index < {p}numel; "
        with out.block(head + f"++k, {p}index += {step})"):
            out.splice(body)

    @property
    def chunks(self) -> int:
        """The vectors of a row of known length that a work-item has."""
        assert self.length is not None
        return -(-(self.length // self.width) // self.group)

    def _declare_kept(self, value: Value, out: Code) -> None:
        assert self.length is not None
        wide, name = self.renderer(self.width).width_of(value), value.name
        if self.chunks:
            out.writeline(f"{c_type(value.dtype, wide)} kept_{name}[{self.chunks}];")
        rest = -(-(self.length % self.width) // self.group)
        if rest:
            out.writeline(f"{c_type(value.dtype)} kept_{name}_rest[{rest}];")

    # --- by whom
    def once(self, items: Sequence[Item], r: Renderer, out: Code) -> None:
        """Writes what is computed once a row."""
        raise NotImplementedError

    def turns(self, stage: int) -> int:
        """How many vectors have accumulators of their own."""
        raise NotImplementedError

    def vectors(self, body: Code, turns: int, out: Code) -> None:
        """Writes the loop over whole vectors."""
        raise NotImplementedError

    def first_and_step(self) -> tuple[str, str]:
        """The first of the elements that a work-item has, and from one to the next."""
        raise NotImplementedError

    def combine(self, made: Accumulators, out: Code) -> list[str]:
        """Combines the accumulators of all work-items of a row. Returns declarations of local
        memory."""
        raise NotImplementedError


class ItemRows(Rows):
    """CPUs: a work-item walks a run of rows."""

    name = "item_rows"

    def layout(self) -> Layout:
        row = self.row()
        out, t, loops = Code(), self.index_type, self.nest.around
        out.writeline(f"const {t} first = get_global_id(0) * ({t})a.rows_each;")
        rows = " * ".join(numels(loops)) or "1"
        out.writeline(f"const {t} end = min(first + ({t})a.rows_each, ({t})({rows}));")
        with out.block(f"for ({t} row = first; row < end; ++row)"):
            out.writelines(self.counters(loops, "row"))
            out.splice(row.code)
        return self.laid_out(out, self.sizes(), self.width, bodies=[row])

    def once(self, items: Sequence[Item], r: Renderer, out: Code) -> None:
        r.statements(items, out)

    def turns(self, stage: int) -> int:
        reductions = (i for i in self.nest.plan.passes[stage] if isinstance(i, Reduction))
        if self.length is not None and self.length // self.width < TURNS:
            return 1
        return 1 if any(red.kind.startswith(("welford", "arg")) for red in reductions) else TURNS

    def vectors(self, body: Code, turns: int, out: Code) -> None:
        p, t, width, length = self.prefix, self.index_type, self.width, self.length
        chunks = str(length // width) if length is not None else f"{p}numel / {width}"
        if turns == 1:
            with out.block(f"for ({t} k = 0; k < {chunks}; ++k)"):
                out.writeline(f"const {t} {p}index = k * {width};")
                out.splice(body)
            return
        with out.block(f"for ({t} k0 = 0; k0 + {turns - 1} < {chunks}; k0 += {turns})"):
            out.writeline("#pragma unroll")
            with out.block(f"for (int u = 0; u < {turns}; ++u)"):
                out.writeline(f"const {t} k = k0 + u, {p}index = k * {width};")
                out.splice(body)
        if length is None or length // width % turns != 0:
            start = f"{chunks} / {turns} * {turns}"
            with out.block(f"for ({t} k = {start}, u = 0; k < {chunks}; ++k)"):
                out.writeline(f"const {t} {p}index = k * {width};")
                out.splice(body)

    def first_and_step(self) -> tuple[str, str]:
        return "0", "1"

    def combine(self, made: Accumulators, out: Code) -> list[str]:
        return []


class GroupRows(Rows):
    """GPUs: a work-group has a row."""

    name = "group_rows"

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        assert nest.row is not None
        self.group = row_group(nest.device, nest.row.numel)

    def layout(self) -> Layout:
        row = self.row()
        out = Code()
        out.writeline(f"const {self.index_type} row = get_group_id(0);")
        out.writelines(self.counters(self.nest.around, "row"))
        out.splice(row.code)
        return self.laid_out(
            out,
            self.sizes(),
            self.width,
            group=self.group,
            head=["const int lid = get_local_id(0);"],
            bodies=[row],
        )

    def once(self, items: Sequence[Item], r: Renderer, out: Code) -> None:
        r.statements_of_one(items, "lid == 0", out)

    def turns(self, stage: int) -> int:
        return 1

    def vectors(self, body: Code, turns: int, out: Code) -> None:
        p, t, width, length = self.prefix, self.index_type, self.width, self.length
        whole = f"({p}numel - {p}numel % {width})" if width > 1 else f"{p}numel"
        step = self.group * width
        chunks = f"({whole} + {step - 1}) / {step}" if length is None else str(self.chunks)
        if self.nest.plan.kept:  # in registers, which have no index
            out.writeline("#pragma unroll")
        with out.block(f"for ({t} k = 0; k < {chunks}; ++k)"):
            out.writeline(f"const {t} {p}index = (k * {self.group} + lid) * {width};")
            if length is not None and length // width % self.group == 0:
                out.splice(body)
            else:
                with out.block(f"if ({p}index < {whole})"):
                    out.splice(body)

    def first_and_step(self) -> tuple[str, str]:
        return "lid", str(self.group)

    def combine(self, made: Accumulators, out: Code) -> list[str]:
        return made.combine_group(out, self.group)
