"""Accumulators of reductions: how they begin, take a value, and are combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from torch_ocl.inductor.plan.sizes import combining_items
from torch_ocl.inductor.text.code import Code
from torch_ocl.inductor.text.render import Renderer
from torch_ocl.inductor.types import TAGS, as_mask, c_type, converted, literal, mask_for, widened
from torch_ocl.inductor.values import Item, Reduction

_COMBINED = {"sum": "+", "prod": "*", "any": "|", "all": "&", "xor_sum": "^"}


@dataclass(frozen=True)
class Part:
    """One of an accumulator's variables."""

    name: str
    dtype: torch.dtype
    start: str  # one value
    is_one: bool = False  # the same for all lanes


class Accumulator:
    """The variables of one reduction.

    Args:
        kind: Inductor's reduction_type, "any" and "all" for bools.
        number: Names its variables apart.
        dtype: What is accumulated in.
        index_dtype: Of places, where kind is argmax or argmin.
    """

    def __init__(
        self, kind: str, number: int, dtype: torch.dtype, index_dtype: torch.dtype
    ) -> None:
        self.kind, self.dtype, self.index_dtype = kind, dtype, index_dtype
        self.name = f"acc{number}"
        self.parts = self._parts()

    def _parts(self) -> list[Part]:
        d, name = self.dtype, self.name
        if self.kind in ("sum", "xor_sum"):
            return [Part(name, d, literal(0, d))]
        if self.kind == "prod":
            return [Part(name, d, literal(1, d))]
        if self.kind in ("any", "all"):
            return [Part(name, d, "0" if self.kind == "any" else "1")]
        if self.kind in ("max", "min"):
            limit = "LOWEST" if self.kind == "max" else "HIGHEST"
            return [Part(name, d, f"{limit}({TAGS[d]})")]
        if self.is_place:
            return [Part(name, d, literal(0, d)), Part(name + "_at", self.index_dtype, "-1")]
        if self.kind == "welford_reduce":
            return [
                Part(name + "_mean", d, literal(0, d)),
                Part(name + "_m2", d, literal(0, d)),
                Part(name + "_weight", d, literal(0, d), is_one=True),
            ]
        if self.kind == "welford_combine":
            return [Part(f"{name}_{p}", d, literal(0, d)) for p in ("mean", "m2", "weight")]
        raise NotImplementedError(f"inductor's reduction {self.kind} has no kernel on ocl")

    @property
    def is_place(self) -> bool:
        return self.kind.startswith("arg")

    def start_of(self, part: Part, width: int) -> str:
        if width == 1 or part.is_one:
            return part.start
        if part.dtype == torch.bool:
            return f"({c_type(part.dtype, width)})({'0' if part.start == '0' else '-1'})"
        return f"({c_type(part.dtype, width)})({part.start})"

    def update(self, at: list[str], values: list[str], width: int) -> list[str]:
        """Statements that take a value in: `at` are the variables."""
        if self.kind != "welford_reduce":
            return self.combine(at, values, width)
        mean, m2, weight = at
        t, one = c_type(self.dtype, width), c_type(self.dtype)
        return [
            f"{weight} += 1;",
            f"const {one} share_ = ({one})1 / {weight};",
            f"const {t} x_ = {values[0]}, off_ = x_ - {mean};",
            f"{mean} += off_ * ({t})(share_);",
            f"{m2} += off_ * (x_ - {mean});",
        ]

    def combine(self, at: list[str], other: list[str], width: int) -> list[str]:
        """Statements that add another accumulator of as many lanes."""
        a, b = at[0], other[0]
        t = c_type(self.dtype, width)
        if self.kind in _COMBINED:
            return [f"{a} = {a} {_COMBINED[self.kind]} {b};"]
        if self.kind in ("max", "min"):
            sign = ">" if self.kind == "max" else "<"
            keep = f"({a} {sign} b_)"
            if self.dtype.is_floating_point:
                keep = f"({keep} | ({a} != {a}))"  # a NaN stays
            return [f"const {t} b_ = {b};", f"{a} = {keep} ? {a} : b_;"]
        if self.is_place:
            return self._combine_places(at, other, width)
        return self._combine_moments(at, other, width)

    def _combine_places(self, at: list[str], other: list[str], width: int) -> list[str]:
        """The greater value; of equal ones, or NaNs, the earlier place. A place of -1 is none."""
        d, i = self.dtype, self.index_dtype
        sign = ">" if "max" in self.kind else "<"

        def of_value(condition: str) -> str:
            return as_mask(condition, d, width)

        def of_place(condition: str) -> str:
            return as_mask(condition, i, width)

        better, same = f"(v_ {sign} {at[0]})", f"(v_ == {at[0]})"
        if d.is_floating_point:
            better = f"({better} | ((v_ != v_) & ({at[0]} == {at[0]})))"
            same = f"({same} | ((v_ != v_) & ({at[0]} != {at[0]})))"
        none, earlier = f"({at[1]} < 0)", f"((i_ < {at[1]}) & (i_ >= 0))"
        some = "(i_ >= 0)"
        m = f"int{width if width > 1 else ''}"
        return [
            f"const {c_type(d, width)} v_ = {other[0]};",
            f"const {c_type(i, width)} i_ = {other[1]};",
            f"const {m} take_ = {of_place(some)} & ({of_place(none)} | {of_value(better)} | "
            f"({of_value(same)} & {of_place(earlier)}));",
            f"{at[0]} = {mask_for('take_', d, width)} ? v_ : {at[0]};",
            f"{at[1]} = {mask_for('take_', i, width)} ? i_ : {at[1]};",
        ]

    def _combine_moments(self, at: list[str], other: list[str], width: int) -> list[str]:
        """Chan's formula; of two empty ones nothing comes."""
        mean, m2, weight = at
        d = self.dtype
        t = c_type(d, width)
        none = mask_for(as_mask(f"total_ == ({t})(0)", d, width), d, width)
        return [
            f"const {t} mean_ = {other[0]}, m2_ = {other[1]}, weight_ = {other[2]};",
            f"const {t} total_ = {weight} + weight_, off_ = mean_ - {mean};",
            f"const {t} share_ = {none} ? ({t})(0) : weight_ / total_;",
            f"{mean} += off_ * share_;",
            f"{m2} += m2_ + off_ * off_ * {weight} * share_;",
            f"{weight} = total_;",
        ]


class Accumulators:
    """Those of a pass, as text.

    Args:
        items: What the pass computes.
        index_dtype: The type of places in a row.
        place: The name of the place in the row.
        in_rows: Whether lanes are neighbours in a row, rather than rows beside each other.
    """

    def __init__(
        self, items: Sequence[Item], index_dtype: torch.dtype, place: str, in_rows: bool
    ) -> None:
        self.of = {
            item: Accumulator(item.kind, item.number, item.dtype, index_dtype)
            for item in items
            if isinstance(item, Reduction)
        }
        self._place, self._in_rows = place, in_rows

    @property
    def parts(self) -> Iterator[Part]:
        """The variables of all of them."""
        return (part for accumulator in self.of.values() for part in accumulator.parts)

    def start(
        self, out: Code, width: int, end: str = "", turns: int = 1, rest: bool = False
    ) -> None:
        """Declares them: `turns` of them, and one more for the `rest` of a row."""
        for accumulator in self.of.values():
            for part in accumulator.parts:
                at = 1 if part.is_one else width
                t, start = c_type(part.dtype, at), accumulator.start_of(part, at)
                if turns > 1:
                    starts = ", ".join([start] * turns)
                    out.writeline(f"{t} {part.name}{end}[{turns}] = {{{starts}}};")
                else:
                    out.writeline(f"{t} {part.name}{end} = {start};")
                if rest:
                    out.writeline(f"{c_type(part.dtype)} {part.name}_rest = {part.start};")

    def take(self, r: Renderer, out: Code, end: str = "") -> None:
        """Takes the values that r wrote in; `end` follows the variables' names."""
        for reduction, accumulator in self.of.items():
            if accumulator.is_place:
                values = self._value_and_place(reduction, accumulator, r)
            else:
                values = [r.operand(value, r.width) for value in reduction.values]
            names = [part.name + end for part in accumulator.parts]
            with out.block():
                out.writelines(accumulator.update(names, values, r.width))

    def _value_and_place(
        self, reduction: Reduction, accumulator: Accumulator, r: Renderer
    ) -> list[str]:
        value = r.operand(reduction.values[0], r.width)
        t = r.index_type(r.width)
        if len(reduction.values) > 1:
            given = reduction.values[1]
            text = r.operand(given, r.width)
            if given.dtype != accumulator.index_dtype:
                text = f"convert_{t}({text})" if r.width > 1 else f"({t})({text})"
            return [value, text]
        if r.width == 1:
            return [value, self._place]
        if self._in_rows:
            return [value, f"(({t})({self._place}) + ({t})(LANE_NUMBERS_{r.width}))"]
        return [value, f"({t})({self._place})"]

    def results(self, r: Renderer, out: Code) -> None:
        """Declares the reductions' results, which are in the variables that have no end."""
        for reduction, accumulator in self.of.items():
            parts = accumulator.parts
            if accumulator.is_place:
                parts = parts[:1] if reduction.kind.endswith("_value") else parts[1:]
            for value, part in zip(reduction.results, parts, strict=True):
                width, text = r.width_of(value), part.name
                if part.is_one:
                    text = widened(text, part.dtype, width)
                if part.dtype == torch.bool and width == 1:
                    text = f"({text} != 0)"
                text = converted(text, part.dtype, value.dtype, width)
                out.writeline(f"const {c_type(value.dtype, width)} {value.name} = {text};")

    # --- from many to one
    def fold(self, out: Code, width: int, turns: int, rest: bool) -> None:
        """Makes one of the accumulators of a row's lanes, in variables without an end."""
        for accumulator in self.of.values():
            parts = accumulator.parts
            names = [f"{p.name}_[0]" if turns > 1 else f"{p.name}_" for p in parts]
            if turns > 1:
                with out.block(f"for (int u = 1; u < {turns}; ++u)"):
                    others = [f"{p.name}_[u]" for p in parts]
                    out.writelines(accumulator.combine(names, others, width))
            for part in parts:
                out.writeline(f"{c_type(part.dtype)} {part.name};")
            with out.block():
                _fold_lanes(accumulator, names, width, out)
            if rest:
                with out.block():
                    others = [f"{p.name}_rest" for p in parts]
                    out.writelines(accumulator.combine([p.name for p in parts], others, 1))

    def combine_group(self, out: Code, group: int) -> list[str]:
        """Combines those of a group's work-items: by a few of them, whose results all combine. A
        tree would meet at a barrier for each of its levels. Returns declarations of local memory.
        """
        if not self.of:
            return []
        side = combining_items(group)
        memory = []
        for part in self.parts:
            memory.append(f"local {c_type(part.dtype)} {part.name}_shared[{group}];")
            out.writeline(f"{part.name}_shared[lid] = {part.name};")

        def combine(start: str, end: int, step: int) -> None:
            with out.block(f"for (int i = {start}; i < {end}; i += {step})"):
                for accumulator in self.of.values():
                    mine = [part.name for part in accumulator.parts]
                    others = [f"{part.name}_shared[i]" for part in accumulator.parts]
                    with out.block():
                        out.writelines(accumulator.combine(mine, others, 1))

        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        with out.block(f"if (lid < {side})"):
            combine(f"lid + {side}", group, side)
            for part in self.parts:
                out.writeline(f"{part.name}_shared[lid] = {part.name};")
        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        for part in self.parts:
            out.writeline(f"{part.name} = {part.name}_shared[0];")
        combine("1", side, 1)
        return memory

    def combine_lines(self, out: Code, width: int, group: int, lines: int) -> list[str]:
        """Combines those of a group's lines; each has the result then. Returns declarations of
        local memory."""
        if not self.of:
            return []
        here, there = f"line * {group} + lane", f"(line + half_) * {group} + lane"
        memory = []
        for part in self.parts:
            t = c_type(part.dtype, width)
            memory.append(f"local {t} {part.name}_lines[{group * lines}];")
            text = f"({t})({part.name})" if part.is_one and width > 1 else part.name
            out.writeline(f"{part.name}_lines[{here}] = {text};")
        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        with out.block(f"for (int half_ = {lines // 2}; half_ > 0; half_ /= 2)"):
            with out.block("if (line < half_)"):
                for accumulator in self.of.values():
                    mine = [f"{part.name}_lines[{here}]" for part in accumulator.parts]
                    others = [f"{part.name}_lines[{there}]" for part in accumulator.parts]
                    with out.block():
                        out.writelines(accumulator.combine(mine, others, width))
            out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        for part in self.parts:
            one = ".s0" if part.is_one and width > 1 else ""
            out.writeline(f"{part.name} = {part.name}_lines[lane]{one};")
        return memory


def _fold_lanes(accumulator: Accumulator, names: list[str], width: int, out: Code) -> None:
    """Halves the lanes until one is left."""
    parts = accumulator.parts
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
        with out.block():
            halves = [f"{p.name}_{width}" for p in parts]
            out.writelines(accumulator.combine(halves, [f"{n}.hi" for n in names], width))
        names = halves
    for part, name in zip(parts, names, strict=True):
        out.writeline(f"{part.name} = {name};")
