"""Index expressions as OpenCL C, and the declarations of the loop indices that they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import sympy
import torch
from torch._inductor.codegen.simd import IterationRangesRoot

from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.text.printer import Printer, needs_one_value
from torch_ocl.inductor.types import c_type, widened


@dataclass(frozen=True)
class Names:
    """How the text of a kernel names memory and numbers.

    Attributes:
        index_dtype: int32 or int64.
        pointer_of: The parameter of a buffer.
        memory_of: A name that buffers have in common which are the same memory.
        rename: An expression with the sizes' parameters in it, by Kernel.rename_indexing.
    """

    index_dtype: torch.dtype
    pointer_of: Callable[[str], str]
    memory_of: Callable[[str], str]
    rename: Callable[[sympy.Expr], sympy.Expr]

    def text(self, expression: sympy.Expr, lanes: str | None = None) -> str:
        """An expression of loop indices and sizes; `lanes` is the type of a vector of it."""
        return str(Printer(self.index_dtype == torch.int64, lanes).doprint(self.rename(expression)))


@dataclass
class Indices:
    """Indices in one number of lanes.

    Attributes:
        lanes: The lanes.
        names: How the kernel's texts name things.
        used: The loop indices that are used and not declared yet, and whether as vectors.
    """

    lanes: Lanes
    names: Names
    used: dict[sympy.Symbol, bool] = field(default_factory=dict)

    def _use(self, index: sympy.Expr, wide: bool) -> list[sympy.Symbol]:
        """Notes an index's loop indices; returns those that are vectors in it."""
        vectors = []
        for symbol in index.free_symbols:
            if symbol in self.lanes.entries:
                is_vector = wide and self.lanes.kind(symbol) != "same"
                self.used[symbol] = self.used.get(symbol, False) or is_vector
                if is_vector:
                    vectors.append(symbol)
        return vectors

    def text(self, index: sympy.Expr, values: dict[sympy.Symbol, str], wide: bool) -> str:
        """An index, or another integer of loop indices.

        Args:
            index: The expression.
            values: The texts of the values in it, by their symbols.
            wide: Whether it is a vector. One of a function that isn't written for vectors is a
                list of its lanes.
        """
        if wide and needs_one_value(index):
            return self._by_lane(index, values)
        replaced = {s: sympy.Symbol(t, integer=True) for s, t in values.items()}
        vectors = self._use(index, wide)
        for symbol in vectors:
            name = f"{symbol}_lanes"
            replaced[symbol] = sympy.Symbol(name, integer=True, nonnegative=True)
        dtype, width = self.names.index_dtype, self.lanes.width
        text = self.names.text(index.xreplace(replaced), c_type(dtype, width) if wide else None)
        return widened(text, dtype, width) if wide and not vectors and not values else text

    def _by_lane(self, index: sympy.Expr, values: dict[sympy.Symbol, str]) -> str:
        parts = []
        vectors = self._use(index, True)
        for lane in range(self.lanes.width):
            replaced = {s: sympy.Symbol(f"{t}.s{lane:x}", integer=True) for s, t in values.items()}
            for symbol in vectors:
                name = f"{symbol}_lanes.s{lane:x}"
                replaced[symbol] = sympy.Symbol(name, integer=True, nonnegative=True)
            parts.append(self.names.text(index.xreplace(replaced)))
        return ", ".join(parts)

    def declare(
        self, loops: Sequence[IterationRangesRoot], more: Iterable[sympy.Symbol] = ()
    ) -> list[str]:
        """Declares the indices of some loops that were used, and `more` that other texts use."""
        lines = []
        for symbol in dict.fromkeys([*self.used, *more]):
            root = self.lanes.entries[symbol].root
            if any(root is loop for loop in loops):
                lines += self._declarations(symbol, self.used.pop(symbol, False))
        return lines

    def _declarations(self, symbol: sympy.Symbol, is_vector: bool) -> list[str]:
        entry, width = self.lanes.entries[symbol], self.lanes.width
        lanes = c_type(self.names.index_dtype, width)
        lines = [self.declaration(symbol)]
        numbers = f"({lanes})(LANE_NUMBERS_{width})"
        if is_vector and self.lanes.kind(symbol) == "step":
            lines.append(f"const {lanes} {symbol}_lanes = {symbol} + {numbers};")
        elif is_vector:
            root = sympy.Symbol("whole_", integer=True, nonnegative=True)
            expression = entry.expr.xreplace({entry.root.index_sym(): root})
            text = self.names.text(expression)
            text = text.replace("whole_", f"({entry.root.index_sym()} + {numbers})")
            lines.append(f"const {lanes} {symbol}_lanes = {text};")
        return lines

    def declaration(self, symbol: sympy.Symbol) -> str:
        """Declares one loop index, by its loop's counter."""
        text = self.names.text(self.lanes.entries[symbol].expr)
        return f"const {c_type(self.names.index_dtype)} {symbol} = {text};"
