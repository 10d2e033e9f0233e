"""Values and effects as OpenCL C: expressions of one element or of lanes, and statements."""

from __future__ import annotations

from collections.abc import Sequence

import sympy
import torch
from torch._inductor.virtualized import V

from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.text.code import Code
from torch_ocl.inductor.text.indices import Indices, Names, needs_one_value
from torch_ocl.inductor.types import (
    TAGS,
    as_mask,
    bits,
    c_type,
    compute_dtype,
    converted,
    literal,
    mask_for,
    suffix,
    value_tag,
    widened,
)
from torch_ocl.inductor.values import (
    Assert,
    Item,
    Reduction,
    Region,
    Store,
    Value,
    loads_of,
    needed_items,
    temporaries,
)


class Renderer:
    """Writes values and effects in one number of lanes.

    Args:
        lanes: The lanes.
        names: How the kernel's texts name things.
        at_hand: Texts of values that are variables already.
    """

    def __init__(self, lanes: Lanes, names: Names, at_hand: dict[Value, str] | None = None) -> None:
        self.lanes, self.width, self.index_dtype = lanes, lanes.width, names.index_dtype
        self.indices = Indices(lanes, names)
        self._names, self._at_hand = names, at_hand or {}
        self._varies: dict[Value, bool] = {}

    # --- statements
    def statements(self, items: Sequence[Item], out: Code) -> None:
        """Values and effects in order; stores into memory that is read here come last."""
        memory_of = self._names.memory_of
        read = {memory_of(name) for item in items for name in loads_of(item)}
        last: list[Item] = []
        for item in items:
            if isinstance(item, Store) and memory_of(item.name) in read:
                last.append(item)
            else:
                self._statement(item, out)
        for item in last:
            self._statement(item, out)

    def statements_of_one(self, items: Sequence[Item], who: str, out: Code, wait: str = "") -> None:
        """Has all work-items of a group compute values, and the one that `who` holds for store
        them, behind the line `wait`."""
        effects = [i for i in items if isinstance(i, Store | Assert)]
        self.statements([i for i in items if i not in effects], out)
        if effects:
            if wait:
                out.writeline(wait)
            with out.block(f"if ({who})"):
                self.statements(effects, out)

    def _statement(self, item: Item, out: Code, region: Region | None = None) -> None:
        if isinstance(item, Reduction) or item in self._at_hand:
            return
        if isinstance(item, Store):
            out.writelines(self.store(item))
        elif isinstance(item, Assert):
            self._assert(item, out, region)
        elif item.op == "masked":
            self._masked(item, out)
        elif item.op == "checked_index":
            self._checked(item, out, region)
        elif item.op not in ("constant", "result"):
            t = c_type(item.dtype, self.width_of(item))
            out.writeline(f"const {t} {item.name} = {self.expression(item, region)};")

    def _masked(self, value: Value, out: Code) -> None:
        mask, other = value.args[:2]
        region, result = value.attrs["region"], value.attrs["result"]
        width = self.width_of(value)
        t = c_type(value.dtype, width)
        out.writeline(f"{t} {value.name} = {self.operand(other, width)};")
        wide = self.varies(mask)
        condition = f"any({self.operand(mask, self.width)})" if wide else self.one(mask)
        with out.block(f"if ({condition})"):
            for item in needed_items(region, result):
                self._statement(item, out, region)
            text = self.operand(result, width)
            if wide:
                chosen = mask_for(self.operand(mask, width), value.dtype, width)
                text = f"{chosen} ? {text} : {value.name}"
            out.writeline(f"{value.name} = {text};")

    def _checked(self, value: Value, out: Code, region: Region | None) -> None:
        """An index; 0 in its place where it is out of range, which is reported."""
        index, size = value.args
        width, mask = self.width_of(value), self.mask(region)
        long = "long" if value.dtype == torch.int64 else "int"
        if width > 1:
            all_lanes = f"({c_type(torch.bool, width)})(-1)"
            allowed = all_lanes if mask is None else self.operand(mask, width)
            name = f"check_lanes_{width}_{long}"
        else:
            allowed, name = "1", f"check_one_{long}"
        low, high = (1 if value.attrs[end] else 0 for end in ("lower", "upper"))
        site = f"site{value.attrs['site']}"
        checked = f"{self.operand(index, width)}, {self.operand(size, 1)}, {allowed}, {low}, {high}"
        t = c_type(value.dtype, width)
        out.writeline(f"const {t} {value.name} = {name}({checked}, asserts, {site});")

    def _assert(self, item: Assert, out: Code, region: Region | None) -> None:
        condition = item.condition
        wide, mask = self.varies(condition), self.mask(region)
        text = f"!{self.operand(condition, self.width if wide else 1)}"
        if wide:
            if mask is not None:
                text = f"({text}) & {self.operand(mask, self.width)}"
            text = f"any({text})"
        out.writeline(f"if ({text}) record_failure(0, 0, asserts, site{item.site});")

    # --- operands
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

    # --- values
    def expression(self, value: Value, region: Region | None = None) -> str:
        """The expression that computes a value, in its number of lanes and under the masks of a
        region."""
        method = getattr(self, f"_{value.op}", None) if value.op.isidentifier() else None
        width = self.width_of(value)
        if value.op == "load":
            return self.load(value, width, self.mask(region))
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
        return self._names.pointer_of(value.attrs["name"]) + "_number"

    def _parameter(self, value: Value, width: int) -> str:
        return str(value.attrs["name"])

    def _cast(self, value: Value, width: int) -> str:
        (x,) = value.args
        return converted(self.operand(x, width), x.dtype, value.dtype, width)

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

    _called = _special

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
            return converted(f"as_uchar{n}({text})", torch.uint8, torch.bool, width)
        if to != compute_dtype(to):
            kind = "ushort" if to.itemsize == 2 else "uchar"
            return f"decode_{TAGS[to]}{n}(as_{kind}{n}({text}))"
        return f"as_{c_type(to, width)}({text})"

    # --- memory
    def mask(self, region: Region | None) -> Value | None:
        """The mask of accesses in a region, if lanes have masks of their own."""
        around = region
        while around is not None:
            if self.varies(around.mask):
                return region.full_mask
            around = around.parent
        return None

    def load(self, value: Value, width: int, mask: Value | None) -> str:
        """The expression of a load."""
        name = value.attrs["name"]
        dtype = value.attrs.get("memory_dtype") or V.graph.get_dtype(name)
        tag, pointer, index = TAGS[dtype], self._names.pointer_of(name), value.index
        if width == 1:
            text = f"LOAD({tag}, {pointer}, {self.index(index, value.args, False)})"
        elif self.lanes.stride(index) == 1 and not any(map(self.varies, value.args)):
            place = self.index(index, value.args, False)
            if mask is not None:
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
            text = f"gather_{tag}_{width}_{size}({pointer}, {places})"
        if dtype == torch.bool:
            return f"(-convert_int{width}({text}))" if width > 1 else text
        return text

    def stored(self, value: Value, dtype: torch.dtype, width: int) -> str:
        """A value as dtype.clh's stores take it."""
        text = self.operand(value, width)
        if dtype == torch.bool:
            text = converted(text, value.dtype, torch.bool, width)
            return f"convert_uchar{width}({text} & 1)" if width > 1 else f"(uchar)({text} != 0)"
        return converted(text, value.dtype, compute_dtype(dtype), width)

    def store(self, store: Store) -> list[str]:
        """The statements of a store."""
        dtype = store.memory_dtype or V.graph.get_dtype(store.name)
        tag, pointer = TAGS[dtype], self._names.pointer_of(store.name)
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
