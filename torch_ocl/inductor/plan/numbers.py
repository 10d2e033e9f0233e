"""Integers that a kernel computes from its loops and from numbers of the program."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._inductor.loop_body import MemoryUsageType
from torch._inductor.utils import expr_fits_within_32bit
from torch._inductor.virtualized import V
from torch.utils._sympy.symbol import symbol_is_type

from torch_ocl.inductor.reals import GIVEN, is_real

_MOST = torch.iinfo(torch.int32).max


def numbers_fit(features: Any) -> bool:
    """Whether 32 bits hold all of them, in all places of the loops; guards on it if so.

    Inductor asks this of tensors' sizes alone. A number that the program is called with may be a
    time in milliseconds, or a seed.
    """
    ends: set[sympy.Expr] = set()
    for node in features.scheduler_nodes():
        body = node._body
        last = {v: size - 1 for v, size in body.var_ranges.items()}
        exprs = {k: e for k, e in body.indexing_exprs.items() if not is_real(e)}
        for expr in exprs.values():
            # (2**31 + i) % 6 is small.
            ends |= expr.atoms(sympy.Integer, sympy.Symbol)
        for entry in body.memory_usage[MemoryUsageType.INDEX_EXPR]:
            for expr in _integers(exprs.get(entry.index_name, sympy.S.Zero)):
                ends |= {expr.xreplace(dict.fromkeys(last, sympy.S.Zero)), expr.xreplace(last)}
    # Indices that are read have no other bound than their tensor's.
    ends = {e for e in ends if all(symbol_is_type(s, GIVEN) for s in e.free_symbols)}
    # A symbol that stands for an expression of others has no hint of its own.
    ends = {V.graph.sizevars.remove_precomputed_replacements(e) for e in ends}
    if not all(expr_fits_within_32bit(e) and expr_fits_within_32bit(-e) for e in ends):
        return False
    for end in ends:
        V.graph.sizevars.check_leq(end, _MOST)
        V.graph.sizevars.check_leq(-end, _MOST)
    return True


def _integers(expr: sympy.Basic) -> set[sympy.Expr]:
    """The expression; of a condition, such as a number above another, what it compares."""
    if isinstance(expr, sympy.Expr):
        return {expr}
    return {
        side for relation in expr.atoms(sympy.core.relational.Relational) for side in relation.args
    }
