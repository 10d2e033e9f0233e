"""A graph is compiled as if it were the first one.

A lowering that calls the eager op puts it on a list: fallback_handler() in
torch/_inductor/lowering.py. Passes over later graphs take its results for memory
(is_node_realized() in fx_utils.py), and write them in place. So a program with a dtype view of
another size, or with a custom op, was another program from its second compilation on. Here what
other graphs have put there is forgotten before a graph on ocl. PyTorch 2.11 and 2.13 need it.
"""

from __future__ import annotations

import functools
from typing import Any

from torch_ocl.upstream.compile.replacement import replace

#: Ops that lowerings have called, and those that had no lowering, since a graph on ocl began.
_called: set[Any] = set()
_made: set[Any] = set()


def install() -> None:
    """Applies the changes, once."""
    from torch._inductor import graph, lowering
    from torch._inductor.virtualized import V

    handler, make = lowering.fallback_handler, graph.make_fallback

    @functools.wraps(handler)
    def fallback_handler(kernel: Any, add_to_fallback_set: bool = True) -> Any:
        is_new = add_to_fallback_set and kernel not in lowering.fallbacks
        if is_new and isinstance(V.graph, graph.GraphLowering):
            _called.add(kernel)
        return handler(kernel, add_to_fallback_set)

    @functools.wraps(make)
    def make_fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
        _made.add(op)
        return make(op, *args, **kwargs)

    replace("fallback_handler", handler, fallback_handler)
    graph.make_fallback = make_fallback


def forget() -> None:
    """Takes back what graphs have left behind (graph_passes.py calls it for each)."""
    from torch._inductor import lowering

    for op in _made:
        lowering.lowerings.pop(op, None)
        lowering._maybe_layout_constraints.pop(op, None)
        lowering.needs_realized_inputs.discard(op)
    for op in _called | _made:
        lowering.fallbacks.discard(op)
    _called.clear()
    _made.clear()
