"""A kernel's computation, as Inductor's ops hand it over: values, and their effects on memory.

Nothing is text yet: how many lanes a value has, in which pass over a row it is computed and how
often is decided when the kernel is complete (plan/, forms/).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges


class Value(CSEVariable):
    """The result of an operation.

    Attributes:
        op: What it is: "constant", "load", "index", "masked" or the name of a function of
            text/render.py; else a template of OpenCL C over the operands {0}, {1}, the type {T},
            its suffix {n}, its scalar type {S} and its tag {tag}.
        args: Its operands, of the dtypes that op takes.
        attrs: What else op needs.
        index: The index in memory, or an integer that is computed of loop indices; None for
            others.
    """

    def __init__(
        self,
        name: str,
        dtype: torch.dtype,
        op: str,
        args: tuple[Value, ...] = (),
        attrs: dict[str, Any] | None = None,
        index: sympy.Expr | None = None,
    ) -> None:
        super().__init__(name, ValueRanges.unknown(), dtype, ())
        self.op = op
        self.args = args
        self.attrs = attrs or {}
        self.index = index
        self.region: Region | None = None

    def __repr__(self) -> str:
        return f"{self.name} = {self.op}({', '.join(map(str, self.args))})"


@dataclass(eq=False)
class Store:
    """A store of `value` into buffer `name`."""

    name: str
    index: sympy.Expr
    value: Value
    args: tuple[Value, ...]  # indices that are values, too
    # "": each element once; "atomic_add"; "result": one for each row, of a reduction.
    mode: str = ""
    memory_dtype: torch.dtype | None = None  # None: the buffer's


@dataclass(eq=False)
class Assert:
    """The failure of `condition` is reported."""

    condition: Value
    site: int


@dataclass(eq=False)
class Region:
    """Values that are computed where a mask is true only."""

    mask: Value
    parent: Region | None = None
    full_mask: Value | None = None  # with those of the parents
    items: list[Value | Store | Assert] = field(default_factory=list)
    known: dict[Any, Value] = field(default_factory=dict)


@dataclass(eq=False)
class Reduction:
    """Accumulates `values` over the row; `results` are its values afterwards."""

    kind: str
    number: int
    dtype: torch.dtype  # of the accumulators
    values: tuple[Value, ...]
    results: tuple[Value, ...] = ()


Item = Value | Store | Assert | Reduction


def needed_items(region: Region, result: Value) -> list[Value | Store | Assert]:
    """Those of a region's items that one of its results, or an effect, needs."""
    needed: set[Any] = set()
    work: list[Any] = [result, *(i for i in region.items if not isinstance(i, Value))]
    while work:
        item = work.pop()
        if item not in needed:
            needed.add(item)
            work.extend(operands_of(item))
            if isinstance(item, Value) and item.op == "masked":
                work.append(item.attrs["region"].full_mask)  # its loads are guarded by that
    return [i for i in region.items if i in needed]


def operands_of(item: Value | Store | Assert) -> tuple[Value, ...]:
    """All values that an item needs, those of a masked one's region included."""
    if isinstance(item, Store):
        return (item.value, *item.args)
    if isinstance(item, Assert):
        return (item.condition,)
    if item.op != "masked":
        return item.args
    region = item.attrs["region"]
    inside = set(region.items)
    needed = dict.fromkeys(item.args)
    for inner in needed_items(region, item.attrs["result"]):
        needed.update(dict.fromkeys(v for v in operands_of(inner) if v not in inside))
    return tuple(v for v in needed if v not in inside)


def loads_of(item: Item) -> list[str]:
    """Names of the buffers that an item itself reads."""
    if not isinstance(item, Value):
        return []
    if item.op == "load":
        return [item.attrs["name"]]
    if item.op == "masked":
        inside = needed_items(item.attrs["region"], item.attrs["result"])
        return [name for inner in inside for name in loads_of(inner)]
    return []


def temporaries(index: sympy.Expr) -> list[sympy.Symbol]:
    """The symbols in an index that stand for values."""
    return sorted((s for s in index.free_symbols if symbol_is_type(s, SymT.TMP)), key=str)
