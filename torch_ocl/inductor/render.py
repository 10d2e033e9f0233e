"""A value as an expression of OpenCL C, of one element or of lanes."""

from __future__ import annotations

from collections.abc import Callable

import sympy
import torch
from torch._inductor.virtualized import V

from torch_ocl.inductor.access import Lanes, temporaries
from torch_ocl.inductor.printer import Printer, needs_one_value
from torch_ocl.inductor.types import TAGS, bits, c_type, compute_dtype, literal, suffix, value_tag
from torch_ocl.inductor.values import Region, Store, Value

_SIGNED = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_SHIFT_DTYPES = {"LEFT", "RIGHT"}


def as_mask(text: str, dtype: torch.dtype, width: int) -> str:
    """What a comparison of values of `dtype` gives, as a bool's value: an int."""
    if width == 1 or bits(dtype) == 32:
        return text
    return f"convert_int{width}({text})"


def mask_for(text: str, dtype: torch.dtype, width: int) -> str:
    """A bool's value for ?: between values of `dtype`."""
    if width == 1 or bits(dtype) == 32:
        return text
    return f"convert_{c_type(_SIGNED[bits(dtype)], width)}({text})"


class Renderer:
    """Expressions for one number of lanes.

    Args:
        lanes: What is known of them.
        index_dtype: int32 or int64.
        name_of: The name of a buffer's pointer, and of a number of the call.
        symbol_name: What an index's symbols are called, by Kernel.rename_indexing.

    Attributes:
        symbols: Loop indices that were used: they must be declared.
        lane_symbols: Of these, the ones used as vectors.
        helpers: Functions that the program needs, as lines of the prelude's macros.
    """

    def __init__(
        self,
        lanes: Lanes,
        index_dtype: torch.dtype,
        name_of: Callable[[str], str],
        rename: Callable[[sympy.Expr], sympy.Expr],
    ) -> None:
        self.lanes, self.width, self.index_dtype = lanes, lanes.width, index_dtype
        self._name_of, self._rename = name_of, rename
        self.symbols: dict[sympy.Symbol, None] = {}
        self.lane_symbols: dict[sympy.Symbol, None] = {}
        self.helpers: dict[str, None] = {}
        self.region: Region | None = None
        self.names: dict[Value, str] = {}

    # --- operands
    def varies(self, value: Value) -> bool:
        return self.lanes.varies(value)

    def width_of(self, value: Value) -> int:
        return self.width if self.varies(value) else 1

    def one(self, value: Value) -> str:
        """A value that does not vary."""
        if value.op == "constant":
            return literal(value.attrs["value"], value.dtype)
        return self.names.get(value, value.name)

    def widened(self, text: str, dtype: torch.dtype, width: int) -> str:
        """One value, in `width` lanes."""
        if width == 1:
            return text
        return f"({c_type(dtype, width)})({f'-({text})' if dtype == torch.bool else text})"

    def operand(self, value: Value, width: int) -> str:
        """A value in so many lanes: 1, or those of this renderer."""
        if self.varies(value):
            return self.names.get(value, value.name)
        text = self.one(value)
        if width == 1 and text.startswith("-"):
            return f"({text})"
        return self.widened(text, value.dtype, width)

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
        return self.widened(text, self.index_dtype, width) if at != width else f"({text})"

    def index(self, index: sympy.Expr, args: tuple[Value, ...], wide: bool) -> str:
        """An index, or any integer of loop indices; `wide`: in lanes."""
        width = self.width if wide else 1
        named = {s.name: s for s in temporaries(index)}
        texts = {s: self._temporary(s, width, args) for n, s in named.items()}
        long = self.index_dtype == torch.int64
        if width > 1 and needs_one_value(index):
            return self._by_lane(index, texts)
        replaced = {s: sympy.Symbol(t, integer=True) for s, t in texts.items()}
        for symbol in index.free_symbols:
            if symbol in self.lanes._entries:
                self.symbols[symbol] = None
                if width > 1 and self.lanes.kind(symbol) != "same":
                    self.lane_symbols[symbol] = None
                    name = f"{symbol}_lanes"
                    replaced[symbol] = sympy.Symbol(name, integer=True, nonnegative=True)
        lanes_type = self.index_type(width) if width > 1 else None
        text = Printer(long, lanes_type).doprint(self._rename(index.xreplace(replaced)))
        if width > 1 and not any(s in self.lane_symbols for s in index.free_symbols) and not texts:
            text = self.widened(text, self.index_dtype, width)
        return text

    def _by_lane(self, index: sympy.Expr, texts: dict[sympy.Symbol, str]) -> str:
        """Functions that aren't written for vectors, one lane at a time."""
        parts = []
        for lane in range(self.width):
            replaced = {s: sympy.Symbol(f"{t}.s{lane:x}", integer=True) for s, t in texts.items()}
            for symbol in index.free_symbols:
                if symbol in self.lanes._entries:
                    self.symbols[symbol] = None
                    if self.lanes.kind(symbol) != "same":
                        self.lane_symbols[symbol] = None
                        replaced[symbol] = sympy.Symbol(
                            f"{symbol}_lanes.s{lane:x}", integer=True, nonnegative=True
                        )
            long = self.index_dtype == torch.int64
            parts.append(Printer(long).doprint(self._rename(index.xreplace(replaced))))
        return ", ".join(parts)

    # --- values
    def expression(self, value: Value) -> str:
        """What a value is computed by, in its number of lanes."""
        method = getattr(self, f"_{value.op}", None) if value.op.isidentifier() else None
        width = self.width_of(value)
        if value.op.startswith("hidden_zero"):
            return f"{value.op[11:]}HIDDEN_ZERO({c_type(value.dtype)})"
        if method is not None:
            return method(value, width)
        dtype = value.args[0].dtype if value.args else value.dtype
        return value.op.format(
            *(self.operand(v, width) for v in value.args),
            T=c_type(dtype, width),
            S=c_type(dtype),
            n=suffix(width),
            tag=value_tag(dtype),
        )

    def _index(self, value: Value, width: int) -> str:
        text = self.index(value.index, value.args, width > 1)
        if width > 1 and needs_one_value(value.index):
            return f"({c_type(value.dtype, width)})({text})"
        if value.dtype != self.index_dtype and width == 1:
            return f"({c_type(value.dtype)})({text})"
        return text

    def _number(self, value: Value, width: int) -> str:
        return self._name_of(value.attrs["name"]) + "_number"

    def _cast(self, value: Value, width: int) -> str:
        (x,) = value.args
        return self.convert(self.operand(x, width), x.dtype, value.dtype, width)

    def convert(self, text: str, source: torch.dtype, to: torch.dtype, width: int) -> str:
        """A conversion between computed values."""
        if source == to:
            return text
        if to == torch.bool:
            zero = f"({c_type(source, width)})(0)"
            return as_mask(f"({text} != {zero})", source, width)
        if source == torch.bool:
            if width > 1:
                text = f"({text} & 1)"
            if to == torch.int32:
                return text
            return f"CONVERTV({TAGS[to]}, i32, {width}, {text})"
        return f"CONVERTV({TAGS[to]}, {TAGS[source]}, {width}, {text})"

    def _compare(self, value: Value, width: int) -> str:
        a, b = value.args
        sign = value.attrs["sign"]
        if width == 1 and self.varies(a):
            # Alike for all lanes: of the first one.
            while a.op == "cast":
                a = a.args[0]
            first = f"({c_type(a.dtype)})({self.index(a.index, a.args, False)})"
            return f"({first} {sign} {self.one(b)})"
        text = f"({self.operand(a, width)} {sign} {self.operand(b, width)})"
        return as_mask(text, a.dtype, width)

    def _signbit(self, value: Value, width: int) -> str:
        (x,) = value.args
        return as_mask(f"signbit({self.operand(x, width)})", x.dtype, width)

    def _where(self, value: Value, width: int) -> str:
        condition, a, b = value.args
        if not self.varies(condition):
            text = self.one(condition)
        else:
            text = mask_for(self.operand(condition, width), value.dtype, width)
        return f"({text} ? {self.operand(a, width)} : {self.operand(b, width)})"

    def _shift(self, value: Value, width: int) -> str:
        a, b = (self.operand(v, width) for v in value.args)
        sign = "SIGNED" if value.dtype.is_signed else "UNSIGNED"
        types = f"{c_type(value.dtype, width)}, {bits(value.dtype)}"
        return f"SHIFT_{value.attrs['name']}_{sign}({types}, {a}, {b})"

    def _pow(self, value: Value, width: int) -> str:
        a, b = (self.operand(v, width) for v in value.args)
        if value.dtype == torch.float32 and width > 1:
            return f"POWER({width}, {a}, {b})"
        return f"pow({a}, {b})"

    def _lanes(self, value: Value, width: int) -> str:
        return self._each(value, width, value.attrs["function"], value_tag(value.args[0].dtype))

    def _special(self, value: Value, width: int) -> str:
        return self._each(value, width, value.attrs["function"], None)

    def _each(self, value: Value, width: int, function: str, tag: str | None) -> str:
        first = f"{tag}, " if tag else ""
        to = c_type(value.dtype, width)
        args = [self.operand(v, width) for v in value.args]
        if width == 1:
            return f"({to})({function}({first}{', '.join(args)}))"
        calls = (
            f"{function}({first}{', '.join(f'{a}.s{lane:x}' for a in args)})"
            for lane in range(width)
        )
        return f"({to})({', '.join(calls)})"

    def _round(self, value: Value, width: int) -> str:
        tag = TAGS[value.attrs["to"]]
        text = self.operand(value.args[0], width)
        if tag.startswith("f8"):
            return f"decode_{tag}{suffix(width)}(encode_{tag}{suffix(width)}({text}))"
        return f"ROUND_{tag}({suffix(width)}, {text})"

    def _bitcast(self, value: Value, width: int) -> str:
        source, to = value.attrs["source"], value.attrs["to"]
        text = self.operand(value.args[0], width)
        if width == 1 and value.args[0].op == "constant":
            # A literal of a small type is an int.
            text = f"(({c_type(value.args[0].dtype, 1)})({text}))"
        n = suffix(width)
        if source == torch.bool:
            text = f"convert_uchar{n}({text}{' & 1' if width > 1 else ''})"
        elif source != compute_dtype(source):
            text = f"encode_{TAGS[source]}{n}({text})"
        if to == torch.bool:
            return self.convert(f"as_uchar{n}({text})", torch.uint8, torch.bool, width)
        if to != compute_dtype(to):
            kind = "ushort" if to.itemsize == 2 else "uchar"
            return f"decode_{TAGS[to]}{n}(as_{kind}{n}({text}))"
        return f"as_{c_type(to, width)}({text})"

    # --- memory
    def mask(self) -> Value | None:
        """Of the accesses under way, if lanes have masks of their own."""
        region = self.region
        while region is not None:
            if self.varies(region.mask):
                return self.region.full_mask
            region = region.parent
        return None

    def _load(self, value: Value, width: int) -> str:
        name = value.attrs["name"]
        dtype = V.graph.get_dtype(name)
        tag, pointer, index = TAGS[dtype], self._name_of(name), value.index
        mask = self.mask()
        if width == 1:
            text = f"LOAD({tag}, {pointer}, {self.index(index, value.args, False)})"
        elif self.lanes.stride(index) == 1 and not any(map(self.varies, value.args)):
            place = self.index(index, value.args, False)
            if mask is not None:
                self.helpers[f"DEFINE_MASKED_READ({tag}, {width})"] = None
                text = f"masked_read_{tag}_{width}({pointer}, {place}, {self.operand(mask, width)})"
            else:
                text = f"READ({tag}, {width}, {pointer}, {place})"
        else:
            places = self.index(index, value.args, True)
            if needs_one_value(index):
                places = f"({self.index_type(width)})({places})"
            if mask is not None:
                allowed = mask_for(self.operand(mask, width), self.index_dtype, width)
                places = f"({allowed} ? {places} : ({self.index_type(width)})(0))"
            size = "long" if self.index_dtype == torch.int64 else "int"
            self.helpers[f"DEFINE_GATHER({tag}, {width}, {size})"] = None
            text = f"gather_{tag}_{width}_{size}({pointer}, {places})"
        if dtype == torch.bool:
            return f"(-convert_int{width}({text}))" if width > 1 else text
        return text

    def stored(self, value: Value, dtype: torch.dtype, width: int) -> str:
        """A value as dtype.clh's stores take it."""
        text = self.operand(value, width)
        if dtype == torch.bool:
            text = self.convert(text, value.dtype, torch.bool, width)
            return f"convert_uchar{width}({text} & 1)" if width > 1 else f"(uchar)({text} != 0)"
        return self.convert(text, value.dtype, compute_dtype(dtype), width)

    def store(self, store: Store) -> list[str]:
        """The statements of a store."""
        dtype = V.graph.get_dtype(store.name)
        tag, pointer = TAGS[dtype], self._name_of(store.name)
        index = store.index
        varies = any(map(self.varies, (store.value, *store.args)))
        stride = self.lanes.stride(index)
        if store.mode == "atomic_add":
            return self._atomic(store, tag, pointer, varies or stride != 0)
        if self.width == 1 or (stride == 0 and not varies):
            place = self.index(index, store.args, False)
            return [f"STORE({tag}, {pointer}, {place}, {self.stored(store.value, dtype, 1)});"]
        text = self.stored(store.value, dtype, self.width)
        if stride == 1 and not any(map(self.varies, store.args)):
            place = self.index(index, store.args, False)
            return [f"WRITE({tag}, {self.width}, {pointer}, {place}, {text});"]
        if stride == 0 and not any(map(self.varies, store.args)):
            place = self.index(index, store.args, False)
            return [f"STORE({tag}, {pointer}, {place}, ({text}).s{self.width - 1:x});"]
        places = self.index(index, store.args, True)
        if needs_one_value(index):
            places = f"({self.index_type(self.width)})({places})"
        size = "long" if self.index_dtype == torch.int64 else "int"
        self.helpers[f"DEFINE_SCATTER({tag}, {self.width}, {size})"] = None
        return [f"scatter_{tag}_{self.width}_{size}({pointer}, {places}, {text});"]

    def _atomic(self, store: Store, tag: str, pointer: str, wide: bool) -> list[str]:
        def update(place: str, text: str) -> str:
            at = f"{pointer} + STORAGE_SIZE({tag}) * (ulong)({place})"
            return f"ATOMIC(add, {tag})({at}, {text});"

        dtype = V.graph.get_dtype(store.name)
        if self.width == 1 or not wide:
            place = self.index(store.index, store.args, False)
            return [update(place, self.stored(store.value, dtype, 1))]
        places = self.index(store.index, store.args, True)
        text = self.stored(store.value, dtype, self.width)
        lines = [f"const {self.index_type(self.width)} places_ = {places};"]
        kind = "uchar" if dtype == torch.bool else c_type(compute_dtype(dtype))
        lines.append(f"const {kind}{self.width} values_ = {text};")
        lines += [update(f"places_.s{i:x}", f"values_.s{i:x}") for i in range(self.width)]
        return ["{", *lines, "}"]
