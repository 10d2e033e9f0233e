"""How lanes lie in memory: what is one value for all of them, and what are neighbours."""

from __future__ import annotations

import sympy
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing


def is_multiple(expression: sympy.Expr | int, of: sympy.Expr | int) -> bool:
    """Whether it is for certain a multiple of `of`, whatever the sizes."""
    return of == 1 or V.graph.sizevars.statically_known_multiple_of(
        sympy.sympify(expression), sympy.sympify(of)
    )


class Lanes:
    """`width` lanes along one of a kernel's trees of loop indices, from a multiple of it on.

    Args:
        entries: The symbols of loop indices.
        tree: Along which the lanes run.
        width: How many they are.
        segment: A length such that they never cross a multiple of it, and begin at a multiple of
            width behind one: for lengths that width does not divide. None if they begin at
            multiples of width of the whole loop.
    """

    def __init__(
        self,
        entries: dict[sympy.Symbol, IterationRangesEntry],
        tree: IterationRangesRoot,
        width: int,
        segment: sympy.Expr | None = None,
    ) -> None:
        self.entries, self.tree, self.width, self.segment = entries, tree, width, segment
        self._unit = sympy.Integer(width) if segment is None else segment
        self._strides: dict[sympy.Expr, sympy.Expr | None] = {}

    def of_width(self, width: int) -> Lanes:
        """So many lanes along the same loop."""
        return Lanes(self.entries, self.tree, width, self.segment)

    def kind(self, symbol: sympy.Symbol) -> str:
        """A symbol's kind: "same" for all lanes, "step" by one, or "any"."""
        entry = self.entries.get(symbol)
        if entry is None or entry.root is not self.tree or self.width == 1:
            return "same"
        if entry.divisor != 1:
            return "same" if is_multiple(entry.divisor, self._unit) else "any"
        whole = V.graph.sizevars.statically_known_equals(entry.length, entry.root.numel)
        return "step" if whole or is_multiple(entry.length, self._unit) else "any"

    def _begins_at_a_multiple(self, symbol: sympy.Symbol) -> bool:
        """Whether it is a multiple of the width at the first lane."""
        return self.segment is None or self.entries[symbol].length == self.segment

    def _linear(self, index: sympy.Expr) -> sympy.Expr | None:
        """index with x // c and x % c replaced where that is known of neighbours."""
        replaced = {}
        for part in index.atoms(FloorDiv, ModularIndexing):
            if not any(self.kind(s) != "same" for s in part.free_symbols):
                continue
            base = part.args[0]
            if not (isinstance(base, sympy.Symbol) and self.kind(base) == "step"):
                return None
            if not self._begins_at_a_multiple(base):
                return None
            divisor = part.args[1]
            if isinstance(part, FloorDiv):
                if not is_multiple(divisor, self.width):
                    return None
                replaced[part] = sympy.Integer(0)
            elif divisor == 1:
                if not is_multiple(part.args[2], self.width):
                    return None
                replaced[part] = base
            elif is_multiple(divisor, self.width):
                replaced[part] = sympy.Integer(0)
            else:
                return None
        return index.xreplace(replaced)

    def stride(self, index: sympy.Expr) -> sympy.Expr | None:
        """By how much it grows from lane to lane; None if that isn't one number."""
        if index not in self._strides:
            self._strides[index] = self._stride(index)
        return self._strides[index]

    def _stride(self, index: sympy.Expr) -> sympy.Expr | None:
        symbols = [s for s in index.free_symbols if self.kind(s) != "same"]
        if not symbols or self.width == 1:
            return sympy.Integer(0)
        if any(self.kind(s) == "any" for s in symbols):
            return None
        linear = self._linear(index)
        if linear is None:
            return None
        after = linear.xreplace({s: s + 1 for s in symbols})
        step = sympy.expand(sympy.expand(after) - sympy.expand(linear))
        return None if step.free_symbols & set(symbols) else step

    def compares_alike(self, index: sympy.Expr, sign: str, bound: int) -> bool:
        """Whether a comparison of neighbours with a constant has one result for all lanes, since
        the constant is a multiple of their number."""
        if self.stride(index) != 1:
            return False
        linear = sympy.expand(self._linear(index))
        steps = [s for s in linear.free_symbols if self.kind(s) == "step"]
        if not all(map(self._begins_at_a_multiple, steps)):
            return False
        rest = linear.xreplace(dict.fromkeys(steps, sympy.Integer(0)))
        if sign in ("<=", ">"):
            bound += 1
        return is_multiple(bound - rest, self.width)
