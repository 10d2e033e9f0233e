"""A kernel's values as operands of expressions: in how many lanes, and under which names."""

from __future__ import annotations

import sympy

from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.text.indices import Indices, Names
from torch_ocl.inductor.types import c_type, literal, widened
from torch_ocl.inductor.values import Region, Value, temporaries


class Operands:
    """Names values in one number of lanes.

    Args:
        lanes: The lanes.
        names: How the kernel's texts name things.
        at_hand: Texts of values that are variables already.
    """

    def __init__(self, lanes: Lanes, names: Names, at_hand: dict[Value, str] | None = None) -> None:
        self.lanes, self.width, self.index_dtype = lanes, lanes.width, names.index_dtype
        self.indices = Indices(lanes, names)
        self.names, self._at_hand = names, at_hand or {}
        self._helpers: dict[str, None] = {}
        self._varies: dict[Value, bool] = {}
        #: The masked region that is being written.
        self.region: Region | None = None

    @property
    def helpers(self) -> tuple[str, ...]:
        """The functions that the program needs."""
        return (*self._helpers,)

    def need(self, helper: str) -> None:
        """Adds a function that the program needs."""
        self._helpers[helper] = None

    def varies(self, value: Value) -> bool:
        """Whether lanes have values of their own."""
        if self.width == 1:
            return False
        if value not in self._varies:
            self._varies[value] = self._value_varies(value)
        return self._varies[value]

    def _value_varies(self, value: Value) -> bool:
        if value.op in ("result", "parameter"):
            return bool(value.attrs["lanes"])
        if value.op in ("constant", "number"):
            return False
        if value.op == "compare" and self._compares_alike(value):
            return False
        if any(map(self.varies, value.args)):
            return True
        if value.op == "masked":
            return self.varies(value.attrs["result"])
        return value.index is not None and self.lanes.stride(value.index) != 0

    def _compares_alike(self, value: Value) -> bool:
        a, b = value.args
        while a.op == "cast" and not a.dtype.is_floating_point:
            a = a.args[0]
        if a.op != "index" or b.op != "constant" or a.dtype.is_floating_point or a.args:
            return False
        sign, bound = value.attrs["sign"], b.attrs["value"]
        if not isinstance(bound, int) or sign not in ("<", "<=", ">", ">="):
            return False
        return self.lanes.compares_alike(a.index, sign, bound)

    def width_of(self, value: Value) -> int:
        return self.width if self.varies(value) else 1

    def one(self, value: Value) -> str:
        """A value that does not vary."""
        if value.op == "constant":
            return literal(value.attrs["value"], value.dtype)
        return self._at_hand.get(value, value.name)

    def operand(self, value: Value, width: int) -> str:
        """A value in so many lanes: 1, or those of this renderer."""
        if self.varies(value):
            return self._at_hand.get(value, value.name)
        text = self.one(value)
        if width == 1 and text.startswith("-"):
            return f"({text})"
        return widened(text, value.dtype, width)

    # --- indices
    def index_type(self, width: int) -> str:
        return c_type(self.index_dtype, width)

    def _temporary(self, symbol: sympy.Symbol, width: int, args: tuple[Value, ...]) -> str:
        value = next(v for v in args if v.name == symbol.name)
        at = self.width if self.varies(value) else 1
        text = self.operand(value, at)
        if value.dtype != self.index_dtype:
            to = self.index_type(at)
            text = f"convert_{to}({text})" if at > 1 else f"({to})({text})"
        return widened(text, self.index_dtype, width) if at != width else f"({text})"

    def index(self, index: sympy.Expr, args: tuple[Value, ...], wide: bool) -> str:
        """An index, or any integer of loop indices; `wide`: in lanes."""
        width = self.width if wide else 1
        texts = {s: self._temporary(s, width, args) for s in temporaries(index)}
        return self.indices.text(index, texts, wide)

    def mask(self) -> Value | None:
        """The mask of the accesses under way, if lanes have masks of their own."""
        region = self.region
        while region is not None:
            if self.varies(region.mask):
                return self.region.full_mask
            region = region.parent
        return None
