"""Accumulators of reductions: how they begin, take a value, and are combined."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torch_ocl.inductor.render import as_mask, mask_for
from torch_ocl.inductor.types import TAGS, c_type, literal

_COMBINED = {"sum": "+", "prod": "*", "any": "|", "all": "&", "xor_sum": "^"}


@dataclass(frozen=True)
class Part:
    """One of an accumulator's variables."""

    name: str
    dtype: torch.dtype
    start: str  # one value
    is_one: bool = False  # the same for all lanes


class Accumulator:
    """Of one reduction.

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
