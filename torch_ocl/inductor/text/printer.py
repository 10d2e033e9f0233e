"""Index expressions as OpenCL C."""

import functools

import sympy
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.printers import ExprPrinter

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
