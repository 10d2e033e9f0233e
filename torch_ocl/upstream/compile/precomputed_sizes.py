"""Sizes that a graph's code computes for its kernels have a range, as a graph's own symbols do.

A change of torch, for graphs on ocl alone. PyTorch 2.13 needs it.
"""

from __future__ import annotations

import functools
from typing import Any


def install() -> None:
    """Has a new symbol known to the graph's ShapeEnv: lookup_precomputed_size() in
    torch/_inductor/sizevars.py. Indices with it are simplified, and of a maximum in them ShapeEnv
    asks for the ranges of its symbols. It raised for one that it hadn't made. The range is the one
    that _simplify_with_ranges() takes for such symbols."""
    from torch._inductor.sizevars import SizeVarAllocator
    from torch._inductor.virtualized import V
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    upstream = SizeVarAllocator.lookup_precomputed_size

    @functools.wraps(upstream)
    def lookup_precomputed_size(self: Any, expr: Any) -> Any:
        known = len(self.precomputed_replacements)
        size = upstream(self, expr)
        if len(self.precomputed_replacements) > known and "ocl" in V.graph.device_types:
            self.shape_env.var_to_range.setdefault(size, ValueRanges(0, int_oo))
        return size

    SizeVarAllocator.lookup_precomputed_size = lookup_precomputed_size
