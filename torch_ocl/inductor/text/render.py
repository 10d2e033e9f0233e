"""Values and effects as OpenCL C: expressions of one element or of lanes, and statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch._inductor.codegen.simd import IterationRangesRoot

from torch_ocl.inductor.plan.access import Lanes
from torch_ocl.inductor.text.code import Body, Code
from torch_ocl.inductor.text.indices import Names, needs_one_value
from torch_ocl.inductor.text.memory import Memory
from torch_ocl.inductor.text.operands import Operands
from torch_ocl.inductor.types import (
    TAGS,
    as_mask,
    bits,
    c_type,
    compute_dtype,
    converted,
    mask_for,
    suffix,
    value_tag,
)
from torch_ocl.inductor.values import (
    Assert,
    Item,
    Reduction,
    Store,
    Value,
    loads_of,
    needed_items,
)


class Renderer(Operands):
    """Writes values and effects in one number of lanes.

    Args:
        lanes: The lanes.
        names: How the kernel's texts name things.
        at_hand: Texts of values that are variables already.
    """

    def __init__(self, lanes: Lanes, names: Names, at_hand: dict[Value, str] | None = None) -> None:
        super().__init__(lanes, names, at_hand)
        self.memory = Memory(self)

    def body(
        self,
        code: Code,
        loops: Sequence[IterationRangesRoot],
        memory: Iterable[str] = (),
        parts: Sequence[Body] = (),
    ) -> Body:
        """Statements that this renderer wrote, behind declarations of the indices of `loops` that
        they use. `parts` are bodies in them that others wrote."""
        outer = [symbol for part in parts for symbol in part.outer]
        helpers = [helper for part in parts for helper in part.helpers]
        whole = Code()
        whole.writelines(self.indices.declare(loops, outer))
        whole.splice(code)
        return Body(whole, (*self.indices.used,), (*helpers, *self.helpers), (*memory,))

    # --- statements
    def statements(self, items: Sequence[Item], out: Code) -> None:
        """Values and effects in order; stores into memory that is read here come last."""
        memory_of = self.names.memory_of
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

    def _statement(self, item: Item, out: Code) -> None:
        if isinstance(item, Reduction) or item in self._at_hand:
            return
        if isinstance(item, Store):
            out.writelines(self.memory.store(item))
        elif isinstance(item, Assert):
            self._assert(item, out)
        elif item.op == "masked":
            self._masked(item, out)
        elif item.op == "checked_index":
            self._checked(item, out)
        elif item.op not in ("constant", "result"):
            t = c_type(item.dtype, self.width_of(item))
            out.writeline(f"const {t} {item.name} = {self.expression(item)};")

    def _masked(self, value: Value, out: Code) -> None:
        mask, other = value.args[:2]
        region, result = value.attrs["region"], value.attrs["result"]
        width = self.width_of(value)
        t = c_type(value.dtype, width)
        out.writeline(f"{t} {value.name} = {self.operand(other, width)};")
        wide = self.varies(mask)
        condition = f"any({self.operand(mask, self.width)})" if wide else self.one(mask)
        before, self.region = self.region, region
        with out.block(f"if ({condition})"):
            for item in needed_items(region, result):
                self._statement(item, out)
            text = self.operand(result, width)
            if wide:
                chosen = mask_for(self.operand(mask, width), value.dtype, width)
                text = f"{chosen} ? {text} : {value.name}"
            out.writeline(f"{value.name} = {text};")
        self.region = before

    def _checked(self, value: Value, out: Code) -> None:
        """An index; 0 in its place where it is out of range, which is reported."""
        index, size = value.args
        width, mask = self.width_of(value), self.mask()
        long = "long" if value.dtype == torch.int64 else "int"
        if width > 1:
            all_lanes = f"({c_type(torch.bool, width)})(-1)"
            allowed = all_lanes if mask is None else self.operand(mask, width)
            name = f"check_lanes_{width}_{long}"
            self.need(f"DEFINE_CHECK({width}, {long})")
        else:
            allowed, name = "1", f"check_one_{long}"
            self.need(f"DEFINE_CHECK_ONE({long})")
        low, high = (1 if value.attrs[end] else 0 for end in ("lower", "upper"))
        site = f"a.site{value.attrs['site']}"
        checked = f"{self.operand(index, width)}, {self.operand(size, 1)}, {allowed}, {low}, {high}"
        t = c_type(value.dtype, width)
        out.writeline(f"const {t} {value.name} = {name}({checked}, asserts, (uint){site});")

    def _assert(self, item: Assert, out: Code) -> None:
        condition = item.condition
        wide, mask = self.varies(condition), self.mask()
        text = f"!{self.operand(condition, self.width if wide else 1)}"
        if wide:
            if mask is not None:
                text = f"({text}) & {self.operand(mask, self.width)}"
            text = f"any({text})"
        out.writeline(f"if ({text}) record_failure(0, 0, asserts, (uint)a.site{item.site});")

    # --- values
    def expression(self, value: Value) -> str:
        """The expression that computes a value, in its number of lanes."""
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
        return self.names.pointer_of(value.attrs["name"]) + "_number"

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

    def _load(self, value: Value, width: int) -> str:
        return self.memory.load(value, width)
