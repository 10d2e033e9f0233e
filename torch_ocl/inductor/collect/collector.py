"""Takes Inductor's ops, and collects what they compute as values (values.py)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSE, CSEVariable
from torch._inductor.codegen.triton_utils import should_unwrap_unspec_arg
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import Identity

from torch_ocl.inductor import device as devices
from torch_ocl.inductor.collect.expressions import cast, constant, promote, real_dtype, unwrap
from torch_ocl.inductor.collect.moves import moved_bits
from torch_ocl.inductor.collect.ops import Overrides
from torch_ocl.inductor.reals import is_computed_before, is_condition, is_real
from torch_ocl.inductor.types import FLOAT8, TAGS, compute_dtype
from torch_ocl.inductor.values import Assert, Region, Store, Value, temporaries

# The part of a program (call/runtime.py) that has a function, by the function's name.
_PART_OF = {
    name: part
    for part, names in {
        "arcs": ("ASIN", "ACOS", "ATAN", "ATAN2"),
        "error_function": ("ERF", "ERFC"),
        "exponential": ("EXP", "EXP_BELOW", "HALVED_EXP"),
        "hyperbolic": ("SINH", "COSH", "TANH"),
        "normal": ("NORMAL_CDF",),
        "trigonometric": ("SIN", "COS", "TAN"),
    }.items()
    for name in names
}


class _Values(CSE):
    """Values need no text: what is handed over is one already."""

    def generate(self, buffer: Any, expr: Any, **kwargs: Any) -> CSEVariable:
        expr = unwrap(expr)
        if not isinstance(expr, CSEVariable):
            expr = constant(expr, promote(expr))
        bounds = kwargs.get("bounds")
        if bounds is not None:
            expr.bounds = expr.bounds.tighten(bounds)
        expr.use_count += 1
        return expr


class Collector:
    """A mixin of Inductor's Kernel: values, in the order of their ops, and memory.

    Attributes:
        items: Values and effects of the function.
        parts: Headers that the text needs; see runtime.py.
        sites: Texts of what is checked, and whether they are messages.
    """

    overrides = Overrides
    device: torch.device
    index_torch_dtype: torch.dtype
    args: Any
    prepare_indexing: Callable[[sympy.Expr], sympy.Expr]

    def start(self) -> None:
        """Has no value yet."""
        self.cse = _Values()
        self.items: list[Any] = []
        self.known: dict[Any, Value] = {}
        self.region: Region | None = None
        self.parts: set[str] = set()
        self.sites: list[tuple[str, bool]] = []
        self.checked: dict[str, Value] = {}

    # --- values
    def emit(
        self,
        op: str,
        dtype: torch.dtype,
        *args: Value,
        index: sympy.Expr | None = None,
        **attrs: Any,
    ) -> Value:
        """The value of an operation; the same one for the same operation."""
        key = (op, dtype, args, index, tuple(attrs.items()))
        region, inside = self.region, self.region
        if op == "constant":  # it is the same wherever
            region = inside = None
        while True:
            found = (region.known if region else self.known).get(key)
            if found is not None:
                return found
            if region is None:
                break
            region = region.parent
        self._need(dtype, op)
        value = self._new(Value, dtype, op, args, attrs, index)
        (inside.known if inside else self.known)[key] = value
        (inside.items if inside else self.items).append(value)
        return value

    def _new(self, make: type, dtype: torch.dtype, *rest: Any) -> Value:
        name = f"tmp{next(self.cse.iter_buffer_ids)}"
        value = make(name, dtype, *rest)
        value.region = self.region
        self.cse.varname_map[name] = value
        return value

    def _items(self) -> list[Any]:
        return self.region.items if self.region else self.items

    def _need(self, dtype: torch.dtype, op: str) -> None:
        if dtype == torch.float64:
            devices.require_fp64(self.device.index)
        self.parts.update(
            _PART_OF[name] for name in re.findall(r"\w+(?=\()", op) if name in _PART_OF
        )
        if op == "special":
            self.parts.add(f"special_{TAGS[dtype]}")
        elif op in ("pow", "lanes"):
            self.parts.add("power")

    def _resolved(self, index: sympy.Expr) -> tuple[sympy.Expr, tuple[Value, ...]]:
        """An index with the checked ones of its values, and these."""
        values = {s: self.cse.varname_map[s.name] for s in temporaries(index)}
        replaced = {
            s: sympy.Symbol(self.checked[v.name].name, integer=True)
            for s, v in values.items()
            if v.name in self.checked
        }
        if replaced:
            index = index.xreplace(replaced)
            values = {s: self.cse.varname_map[s.name] for s in temporaries(index)}
        return index, tuple(values.values())

    def index_value(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        """A number computed of loop indices and sizes."""
        expr = _plain(self.prepare_indexing(sympy.sympify(expr)))
        if expr.is_number and not expr.has(sympy.Function) and (expr.is_Integer or expr.is_Float):
            return constant(int(expr) if expr.is_Integer else float(expr), dtype)
        if is_computed_before(expr):
            return cast(self.computed_before(expr, dtype), dtype)
        return cast(self.computed_here(expr, dtype), dtype)

    def computed_here(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        """A number that the kernel computes, to be converted to a dtype."""
        expr, values = self._resolved(expr)
        own = self.index_torch_dtype
        if is_condition(expr):
            own = torch.bool
        elif is_real(expr):
            own = real_dtype(dtype)
        return self.emit("index", own, *values, index=expr)

    def computed_before(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        """A number that the graph's code can compute for the kernel."""
        return self.computed_here(expr, dtype)

    def masked(self, mask: Value, body: Callable[[], Any], other: Any) -> Value:
        """Gives what body computes where the mask is true, else `other`."""
        parent = self.region
        region = Region(mask, parent)
        if parent is not None and parent.full_mask is not None:
            region.full_mask = Overrides.logical_and(parent.full_mask, mask)
        else:
            region.full_mask = mask
        with self.inside(region):
            result = unwrap(body())
            dtype = result.dtype if isinstance(result, Value) else promote(result, other)
            result = cast(result, dtype)
        other = cast(other, dtype)
        if all(isinstance(i, Value) and i.op == "constant" for i in region.items):
            return self.emit("where", dtype, mask, result, other)
        return self.emit_masked(region, other, result, (mask, other, _shape_of(region, result)))

    @contextlib.contextmanager
    def inside(self, region: Region) -> Iterator[None]:
        """Has values emitted in a region."""
        before, self.region = self.region, region
        try:
            yield
        finally:
            self.region = before

    def emit_masked(self, region: Region, other: Value, result: Value, key: Any) -> Value:
        """A region's result where its mask is true, else `other`; known by `key`."""
        known = self.region.known if self.region else self.known
        key = ("masked", key)
        if key not in known:
            args = (region.mask, other, *(() if result in region.items else (result,)))
            attrs = {"region": region, "result": result}
            known[key] = self._new(Value, result.dtype, "masked", args, attrs)
            self._items().append(known[key])
        return known[key]

    # --- memory
    def memory_of(self, name: str) -> str:
        """Names of buffers that are the same memory have one."""
        if V.graph.scheduler:
            name = V.graph.scheduler.mutation_real_name.get(name, name)
        return self.args.arg_name(name) or name

    def pointer_of(self, name: str) -> str:
        """A buffer's parameter."""
        return self.memory_of(name)

    def load(self, name: str, index: sympy.Expr) -> Value:
        dtype = V.graph.get_dtype(name)
        self._check_dtype(dtype, name)
        if name in V.graph.zero_dim_cpu_tensor_list or should_unwrap_unspec_arg(name):
            return self.host_number(name)
        self.args.input(name)
        index, values = self._resolved(_plain(self.prepare_indexing(index)))
        return self.emit("load", compute_dtype(dtype), *values, index=index, name=name)

    def host_number(self, name: str) -> Value:
        """The one element of a tensor on the CPU."""
        raise NotImplementedError

    def _check_dtype(self, dtype: torch.dtype, name: str) -> None:
        if dtype not in TAGS:
            raise NotImplementedError(f"inductor's kernels on ocl have no {dtype} (buffer {name})")
        if dtype in FLOAT8:
            self.parts.add("float8")
        if dtype == torch.float64:
            devices.require_fp64(self.device.index)

    def store(self, name: str, index: sympy.Expr, value: CSEVariable, mode: Any = None) -> None:
        dtype = V.graph.get_dtype(name)
        self._check_dtype(dtype, name)
        self.args.output(name)
        index, values = self._resolved(_plain(self.prepare_indexing(index)))
        if mode == "atomic_add":
            self.parts.add("atomics")
        stored = cast(value, compute_dtype(dtype))
        bits = None if mode else moved_bits(stored, dtype)
        if bits is not None:
            self._items().append(Store(name, index, bits, values, memory_dtype=bits.dtype))
        else:
            self._items().append(Store(name, index, stored, values, mode or ""))

    def _site(self, text: str, is_message: bool) -> int:
        if (text, is_message) not in self.sites:
            self.sites.append((text, is_message))
        return self.sites.index((text, is_message))

    def device_assert_async(self, cond: CSEVariable, msg: str) -> None:
        self.parts.add("check")
        self._items().append(Assert(cast(cond, torch.bool), self._site(msg, True)))


def _plain(index: sympy.Expr) -> sympy.Expr:
    """Without the marks that keep sympy from expanding parts of it."""
    return index.replace(Identity, lambda x: x) if index.has(Identity) else index


def _shape_of(region: Region, result: Value) -> tuple[Any, ...]:
    """Finds what two regions that compute the same have in common."""
    number = {item: i for i, item in enumerate(region.items)}

    def name(value: Value) -> Any:
        return number.get(value, value.name)

    parts = []
    for item in region.items:
        if not isinstance(item, Value) or item.op == "masked":
            return (id(region),)
        index = item.index
        if index is not None:
            places = {s: name(v) for s in temporaries(index) for v in item.args if v.name == s.name}
            index = str(index.xreplace({s: sympy.Symbol(f"at{p}") for s, p in places.items()}))
        plain = str | int | float | tuple
        attrs = tuple((k, v) for k, v in item.attrs.items() if isinstance(v, plain))
        parts.append((item.op, item.dtype, tuple(map(name, item.args)), index, attrs))
    return (*parts, name(result))
