"""Index expressions as OpenCL C, and the declarations of the loop indices that they use."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import sympy
import torch
from torch._inductor.codegen.simd import IterationRangesRoot
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.printers import ExprPrinter

from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.text.code import Body, Code
from torch_ocl.inductor.types import c_type, widened

# Operators can't express what these make of integers in vectors.
SCALAR_FUNCTIONS = (
    "ToFloat",
    "IntTrueDiv",
    "FloorToInt",
    "CeilToInt",
    "TruncToInt",
    "TruncToFloat",
    "RoundToInt",
    "RoundDecimal",
    "PowByNatural",
    "FloatPow",
    "FloatTrueDiv",
    "OpaqueUnaryFn_log2",
    "OpaqueUnaryFn_sqrt",
    "Abs",
)


class Printer(ExprPrinter):
    """Prints for one element, or for lanes, where `splat` widens what is one value.

    Args:
        long: Whether indices have 64 bits.
        lanes: The C type of a vector of indices; None for one element.
    """

    def __init__(self, long: bool = False, lanes: str | None = None) -> None:
        super().__init__()
        self._integer = "long" if long else "int"
        self._lanes = lanes

    def _wide(self, text: str) -> str:
        return f"({self._lanes})({text})" if self._lanes else f"({text})"

    def _print_Integer(self, e: sympy.Integer) -> str:
        value = int(e)
        return f"{value}l" if self._integer == "long" or abs(value) > 2**31 - 1 else str(value)

    def _print_FloorDiv(self, e: sympy.Expr) -> str:
        a, b = map(self.doprint, e.args)
        if e.args[0].is_nonnegative and e.args[1].is_positive:
            return f"(({a}) / ({b}))"
        return f"FLOOR_DIVIDE({self._wide(a)}, {self._wide(b)})"

    def _print_ModularIndexing(self, e: sympy.Expr) -> str:
        x, divisor, modulus = e.args
        if divisor != 1:
            x = FloorDiv(x, divisor)
        text, m = self.doprint(x), self.doprint(modulus)
        if e.args[0].is_nonnegative:
            return f"(({text}) % ({m}))"
        return f"FLOOR_MODULO({self._wide(text)}, {self._wide(m)})"

    def _print_PythonMod(self, e: sympy.Expr) -> str:
        a, b = map(self.doprint, e.args)
        if e.args[0].is_nonnegative and e.args[1].is_positive:
            return f"(({a}) % ({b}))"
        return f"FLOOR_MODULO({self._wide(a)}, {self._wide(b)})"

    _print_Mod = _print_PythonMod

    def _extreme(self, sign: str, e: sympy.Expr) -> str:
        parts = [self._wide(self.doprint(a)) for a in e.args]
        return functools.reduce(lambda a, b: f"({a} {sign} {b} ? {a} : {b})", parts)

    def _print_Min(self, e: sympy.Expr) -> str:
        return self._extreme("<", e)

    def _print_Max(self, e: sympy.Expr) -> str:
        return self._extreme(">", e)

    def _print_Where(self, e: sympy.Expr) -> str:
        c, p, q = map(self.doprint, e.args)
        return f"(({c}) ? {self._wide(p)} : {self._wide(q)})"

    def _print_And(self, e: sympy.Expr) -> str:
        return "(" + " & ".join(f"({self.doprint(a)})" for a in e.args) + ")"

    def _print_Or(self, e: sympy.Expr) -> str:
        return "(" + " | ".join(f"({self.doprint(a)})" for a in e.args) + ")"

    def _print_Not(self, e: sympy.Expr) -> str:
        return f"(!({self.doprint(e.args[0])}))"

    def _print_Relational(self, e: sympy.Expr) -> str:
        return f"({self.doprint(e.lhs)} {e.rel_op} {self.doprint(e.rhs)})"

    # The functions that follow are for one value only.
    def _real(self, e: sympy.Expr) -> str:
        return f"(REAL)({self.doprint(e)})"

    def _print_Float(self, e: sympy.Expr) -> str:
        return f"((REAL){float(e)!r})"

    def _print_ToFloat(self, e: sympy.Expr) -> str:
        return f"({self._real(e.args[0])})"

    def _print_IntTrueDiv(self, e: sympy.Expr) -> str:
        return f"({self._real(e.args[0])} / {self._real(e.args[1])})"

    _print_FloatTrueDiv = _print_IntTrueDiv

    def _rounded(self, function: str, e: sympy.Expr) -> str:
        return f"(({self._integer}){function}({self._real(e.args[0])}))"

    def _print_FloorToInt(self, e: sympy.Expr) -> str:
        return self._rounded("floor", e)

    _print_floor = _print_FloorToInt

    def _print_CeilToInt(self, e: sympy.Expr) -> str:
        return self._rounded("ceil", e)

    _print_ceiling = _print_CeilToInt

    def _print_TruncToInt(self, e: sympy.Expr) -> str:
        return self._rounded("trunc", e)

    def _print_RoundToInt(self, e: sympy.Expr) -> str:
        return self._rounded("rint", e)

    def _print_TruncToFloat(self, e: sympy.Expr) -> str:
        return f"trunc({self._real(e.args[0])})"

    def _print_RoundDecimal(self, e: sympy.Expr) -> str:
        number, digits = e.args
        scale = f"((REAL)1e{int(digits)})"
        return f"(rint({self._real(number)} * {scale}) / {scale})"

    def _print_PowByNatural(self, e: sympy.Expr) -> str:
        base, exponent = e.args
        if isinstance(exponent, sympy.Integer) and 0 <= int(exponent) <= 8:
            part = f"({self.doprint(base)})"
            return "(" + " * ".join([part] * int(exponent) or ["1"]) + ")"
        return f"(({self._integer})pow({self._real(base)}, {self._real(exponent)}))"

    def _print_FloatPow(self, e: sympy.Expr) -> str:
        return f"pow({self._real(e.args[0])}, {self._real(e.args[1])})"

    def _print_Abs(self, e: sympy.Expr) -> str:
        a = self.doprint(e.args[0])
        return f"(({a}) < 0 ? -({a}) : ({a}))"

    def _print_OpaqueUnaryFn_log2(self, e: sympy.Expr) -> str:
        return f"log2({self._real(e.args[0])})"

    def _print_OpaqueUnaryFn_sqrt(self, e: sympy.Expr) -> str:
        return f"sqrt({self._real(e.args[0])})"

    def _print_Infinity(self, e: sympy.Expr) -> str:
        return "INFINITY"

    def _print_NegativeInfinity(self, e: sympy.Expr) -> str:
        return "(-INFINITY)"

    def _print_BooleanTrue(self, e: sympy.Expr) -> str:
        return "1"

    def _print_BooleanFalse(self, e: sympy.Expr) -> str:
        return "0"


def needs_one_value(expression: sympy.Expr) -> bool:
    """Whether it has functions that Printer writes for one value only."""
    return any(
        type(part).__name__ in SCALAR_FUNCTIONS or part.is_Float
        for part in sympy.preorder_traversal(expression)
    )


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


@dataclass(frozen=True)
class Indices:
    """Indices in one number of lanes.

    Attributes:
        lanes: The lanes.
        names: How the kernel's texts name things.
    """

    lanes: Lanes
    names: Names

    def _vectors(self, index: sympy.Expr) -> list[sympy.Symbol]:
        """An index's loop indices that differ from lane to lane."""
        entries = self.lanes.entries
        return [s for s in index.free_symbols if s in entries and self.lanes.kind(s) != "same"]

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
        vectors = self._vectors(index) if wide else []
        for symbol in vectors:
            name = f"{symbol}_lanes"
            replaced[symbol] = sympy.Symbol(name, integer=True, nonnegative=True)
        dtype, width = self.names.index_dtype, self.lanes.width
        text = self.names.text(index.xreplace(replaced), c_type(dtype, width) if wide else None)
        return widened(text, dtype, width) if wide and not vectors and not values else text

    def _by_lane(self, index: sympy.Expr, values: dict[sympy.Symbol, str]) -> str:
        parts = []
        vectors = self._vectors(index)
        for lane in range(self.lanes.width):
            replaced = {s: sympy.Symbol(f"{t}.s{lane:x}", integer=True) for s, t in values.items()}
            for symbol in vectors:
                name = f"{symbol}_lanes.s{lane:x}"
                replaced[symbol] = sympy.Symbol(name, integer=True, nonnegative=True)
            parts.append(self.names.text(index.xreplace(replaced)))
        return ", ".join(parts)

    def body(
        self, code: Code, loops: Sequence[IterationRangesRoot], memory: Iterable[str] = ()
    ) -> Body:
        """Statements behind declarations of the indices of `loops` that they use."""
        whole, outer = Code(), []
        for symbol, is_vector in self._free(str(code.getvalue())).items():
            root = self.lanes.entries[symbol].root
            if any(root is loop for loop in loops):
                whole.writelines(self._declarations(symbol, is_vector))
            else:
                outer.append(symbol)
        whole.splice(code)
        return Body(whole, (*outer,), (*memory,))

    def _free(self, text: str) -> dict[sympy.Symbol, bool]:
        """The loop indices that a text uses and doesn't declare, and whether as vectors."""
        words = dict.fromkeys(re.findall(r"\w+", text))
        declared = {*re.findall(r"const (?:int|long) (\w+) =", text)}
        known = {s.name: s for s in self.lanes.entries if s.name not in declared}
        names = dict.fromkeys(word.removesuffix("_lanes") for word in words)
        return {known[name]: f"{name}_lanes" in words for name in names if name in known}

    def _declarations(self, symbol: sympy.Symbol, is_vector: bool) -> list[str]:
        entry, width = self.lanes.entries[symbol], self.lanes.width
        lanes = c_type(self.names.index_dtype, width)
        text = self.names.text(entry.expr)
        lines = [f"const {c_type(self.names.index_dtype)} {symbol} = {text};"]
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
