"""Expressions of Inductor's with floats in them: `v + 0.5` of an integer that changes."""

from __future__ import annotations

import sympy
from torch.utils._sympy.symbol import SymT, symbol_is_type

#: Numbers that a graph is called with, or computes of these, or reads from tensors.
GIVEN = (
    SymT.SIZE,
    SymT.UNBACKED_INT,
    SymT.PRECOMPUTED_SIZE,
    SymT.FLOAT,
    SymT.UNBACKED_FLOAT,
)


def is_condition(expression: sympy.Basic) -> bool:
    """Whether it is true or false. Symbols are neither, though sympy has them among Booleans."""
    return isinstance(expression, sympy.logic.boolalg.Boolean) and not isinstance(
        expression, sympy.Symbol
    )


def is_real(expression: sympy.Basic) -> bool:
    """Whether it stands for a float: sympy knows of all others that they are integers.

    It doesn't know that of bits, whose functions upstream leaves without that property.
    """
    if is_condition(expression):
        return False
    bits = {
        part: sympy.Dummy(integer=True)
        for part in expression.atoms(sympy.Function)
        if type(part).__name__.startswith("BitwiseFn")
    }
    return expression.xreplace(bits).is_integer is not True


def is_of_graph(expression: sympy.Basic) -> bool:
    """Whether it changes from call to call, but not within a kernel."""
    symbols = expression.free_symbols
    return bool(symbols) and all(symbol_is_type(s, GIVEN) for s in symbols)


def is_computed_before(expression: sympy.Basic) -> bool:
    """Whether the graph's code computes a number, and kernels take the result.

    Python's floats are doubles, which devices may not have, and `round` goes by their decimal
    digits.
    """
    if is_condition(expression) or not is_of_graph(expression):
        return False
    parts = sympy.preorder_traversal(expression)
    return any(isinstance(part, sympy.Expr) and is_real(part) for part in parts)
