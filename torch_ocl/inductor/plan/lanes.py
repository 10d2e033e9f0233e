"""How many lanes a kernel has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
from torch._inductor.codegen.simd import IterationRangesEntry, IterationRangesRoot
from torch._inductor.virtualized import V

from torch_ocl.inductor.plan.access import Lanes, is_multiple
from torch_ocl.inductor.plan.sizes import CPU_LANES, FEWEST_LANES, GPU_LANES
from torch_ocl.inductor.values import Store, Value

Entries = dict[sympy.Symbol, IterationRangesEntry]


def lanes_of(
    items: Any, entries: Entries, tree: IterationRangesRoot, *, on_cpu: bool, in_rows: bool
) -> Lanes:
    """The lanes of a kernel: at most as many as divide what loop indices are split by.

    Args:
        items: The values and effects that are needed.
        entries: The symbols of loop indices.
        tree: The loop that the lanes run along.
        on_cpu: Whether the kernel is for a CPU.
        in_rows: Whether the loop is the reduction.
    """
    items = [*_all_items(items)]
    most = CPU_LANES if on_cpu else _gpu_lanes(items)
    if isinstance(tree.numel, sympy.Integer):
        while most > 1 and most > tree.numel:
            most //= 2
    used = {
        s
        for i in items
        if isinstance(i, Value | Store) and i.index is not None
        for s in i.index.free_symbols
        if s in entries and entries[s].root is tree
    }
    parts = [entries[s] for s in used]
    if on_cpu and not in_rows:
        segment = _segment(parts, tree, most)
        if segment is not None:
            return Lanes(entries, tree, most, segment)
    width = most
    while width > 1 and not all(_splits_into(part, width) for part in parts):
        width //= 2
    if width < min(FEWEST_LANES, most):
        width = most if _many_contiguous(items, Lanes(entries, tree, most)) else 1
    return Lanes(entries, tree, width)


def _gpu_lanes(items: list[Any]) -> int:
    """As many as have 16 bytes in memory; numbers of 8 bytes take twice the registers."""
    values = [i for i in items if isinstance(i, Value)]
    if any(v.dtype.itemsize == 8 for v in values):
        return GPU_LANES // 2
    buffers = {i.name for i in items if isinstance(i, Store)}
    buffers |= {v.attrs["name"] for v in values if v.op == "load"}
    small = all(V.graph.get_dtype(name).itemsize <= 2 for name in buffers)
    return 2 * GPU_LANES if small else GPU_LANES


def _segment(
    parts: list[IterationRangesEntry], tree: IterationRangesRoot, most: int
) -> sympy.Expr | None:
    """The length of segments whose ends lanes must not cross, if most lanes don't divide it."""
    sizes = V.graph.sizevars
    lengths = [
        e.length
        for e in parts
        if e.divisor == 1 and not sizes.statically_known_equals(e.length, e.root.numel)
    ]
    lengths += [e.divisor for e in parts if e.divisor != 1]
    if not lengths or all(is_multiple(n, most) for n in lengths):
        return None
    segment = min(lengths, key=lambda n: sizes.optimization_hint(n))
    if sizes.optimization_hint(segment) < most or not is_multiple(tree.numel, segment):
        return None
    return segment if all(is_multiple(n, segment) for n in lengths) else None


def _many_contiguous(items: list[Any], lanes: Lanes) -> bool:
    """Whether vectors pay although some indices differ from lane to lane."""
    places = [i for i in items if isinstance(i, Store) or (isinstance(i, Value) and i.op == "load")]
    near = sum(lanes.stride(i.index) in (0, 1) for i in places)
    return 2 * near >= len(places)


def _all_items(items: Any) -> Iterator[Any]:
    for item in items:
        yield item
        if isinstance(item, Value) and item.op == "masked":
            yield from _all_items(item.attrs["region"].items)


def _splits_into(part: IterationRangesEntry, width: int) -> bool:
    if part.divisor != 1 and not is_multiple(part.divisor, width):
        return False
    whole = V.graph.sizevars.statically_known_equals(part.divisor * part.length, part.root.numel)
    return whole or is_multiple(part.length, width) or part.divisor != 1
