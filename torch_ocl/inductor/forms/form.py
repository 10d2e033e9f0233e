"""This is what a form is given, and what it returns.

A form shares a kernel's elements out to work-items: a work-item of a CPU walks a run of columns, a
work-group of a GPU reduces a row. csrc/engine/generated/README.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sympy
from torch._inductor.codegen.simd import IterationRangesRoot

from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.plan.stages import Plan
from torch_ocl.inductor.text.code import Body, Code
from torch_ocl.inductor.text.indices import Names
from torch_ocl.inductor.types import c_type


@dataclass(frozen=True)
class Nest:
    """A kernel's loop nest.

    Attributes:
        row: The loop that is reduced, or None.
        around: The other loops, from the innermost one on.
        length: The elements of a row.
        lanes: The lanes, as many as are worth having.
        plan: What is computed in the loops.
        names: How texts name what is outside.
        device: The number of the device.
        on_cpu: Whether work-items walk many elements, as CPUs want it.
    """

    row: IterationRangesRoot | None
    around: tuple[IterationRangesRoot, ...]
    length: sympy.Expr
    lanes: Lanes
    plan: Plan
    names: Names
    device: int
    on_cpu: bool


@dataclass(frozen=True)
class Layout:
    """A kernel's text, and how it is launched.

    Attributes:
        form: The launcher's name of the form.
        width: Lanes.
        group: Work-items of a work-group along the columns.
        lines: Lines of so many work-items in a work-group.
        sizes: Columns, rows, and the length of a row. A launch is sized by them.
        work: Elementary operations for an element.
        head: Declarations in front of the text.
        text: The kernel's body.
    """

    form: str
    width: int
    group: int
    lines: int
    sizes: tuple[sympy.Expr, sympy.Expr, sympy.Expr]
    work: int
    head: tuple[str, ...]
    text: str


class Form:
    """How the elements of a nest are shared out.

    Attributes:
        name: The launcher's.
    """

    name = ""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.index_type = c_type(nest.names.index_dtype)

    def layout(self) -> Layout:
        """The text and the sizes of a launch."""
        raise NotImplementedError

    def laid_out(
        self,
        text: Code,
        sizes: Sequence[sympy.Expr | int],
        width: int,
        *,
        group: int = 1,
        lines: int = 1,
        head: Iterable[str] = (),
        bodies: Iterable[Body] = (),
    ) -> Layout:
        """A layout of this form; `bodies` are parts of the text."""
        bodies = [*bodies]
        columns, rows, length = map(sympy.sympify, sizes)
        return Layout(
            self.name,
            width,
            group,
            lines,
            (columns, rows, length),
            max(1, len(self.nest.plan.needed) // 8),
            (*dict.fromkeys([*head, *(line for body in bodies for line in body.memory)]),),
            str(text.getvalue()),
        )

    def counters(
        self, loops: Sequence[IterationRangesRoot], row: str, bodies: Iterable[Body] = ()
    ) -> list[str]:
        """Declares the counters of loops whose one counter is `row`, and those of their indices
        that bodies use."""
        t, lines, rest = self.index_type, [], row
        for i, loop in enumerate(loops):
            text = rest if i == len(loops) - 1 else f"{rest} % {loop.prefix}numel"
            lines.append(f"const {t} {loop.prefix}index = {text};")
            rest = f"({rest} / {loop.prefix}numel)"
        for symbol in dict.fromkeys(symbol for body in bodies for symbol in body.outer):
            entry = self.nest.lanes.entries[symbol]
            if entry.root in loops:
                lines.append(f"const {t} {symbol} = {self.nest.names.text(entry.expr)};")
        return lines


def numels(loops: Iterable[IterationRangesRoot]) -> list[str]:
    """The names of loops' lengths."""
    return [f"{loop.prefix}numel" for loop in loops]
