"""Ops as values: promotion, casts, constants, and makers of ops from templates.

A template is OpenCL C over the operands {0}, {1}: {T} is the type of one operand, {n} its suffix
("16", or nothing for one value), {S} its scalar type, {tag} its tag in dtype.clh.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import CSEVariable
from torch._inductor.virtualized import OpsValue, V

from torch_ocl.inductor.types import compute_dtype
from torch_ocl.inductor.values import Value

Operand = Any  # a Value, or a Python number
SMALL = {torch.int8, torch.int16, torch.uint8, torch.uint16}


def unwrap(x: Operand) -> Operand:
    """The value that stands in an OpsValue."""
    return x.value if isinstance(x, OpsValue) else x


def dtype_of(x: Operand) -> torch.dtype:
    if isinstance(x, CSEVariable):
        assert x.dtype is not None
        return x.dtype
    if isinstance(x, bool):
        return torch.bool
    return torch.int64 if isinstance(x, int | sympy.Integer) else torch.float32


def promote(*operands: Operand) -> torch.dtype:
    """The dtype that an op computes in: constants take that of the others, if they can."""
    operands = tuple(map(unwrap, operands))
    dtypes = [dtype_of(x) for x in operands if isinstance(x, Value) and x.op != "constant"]
    constants = [dtype_of(x) for x in operands if not isinstance(x, Value) or x.op == "constant"]
    if not dtypes:
        return compute_dtype(functools.reduce(torch.promote_types, constants))
    result = functools.reduce(torch.promote_types, dtypes)
    for dtype in constants:
        if dtype.is_floating_point and not result.is_floating_point:
            result = dtype
        elif result == torch.bool and dtype != torch.bool:
            result = dtype
    return compute_dtype(result)


def emit(op: str, dtype: torch.dtype, *args: Value, **attrs: Any) -> Value:
    return V.kernel.emit(op, dtype, *args, **attrs)


def constant(value: float | bool, dtype: torch.dtype) -> Value:
    """A constant of a computed dtype."""
    if isinstance(value, sympy.Integer):
        value = int(value)
    elif isinstance(value, sympy.Float):
        value = float(value)
    if dtype == torch.bool:
        value = bool(value)
    # 0.0 == -0.0 and 1 == 1.0 would be the same key; NaN is no key at all.
    key = (value, math.copysign(1, value), type(value).__name__) if value == value else "nan"
    return V.kernel.emit("constant", dtype, value=value, key=key)


def cast(x: Operand, dtype: torch.dtype) -> Value:
    """x as a value of the computed dtype."""
    x, dtype = unwrap(x), compute_dtype(dtype)
    if not isinstance(x, Value):
        return constant(x, dtype)
    if x.dtype == dtype:
        return x
    if x.op == "constant" and not (x.attrs["value"] != x.attrs["value"]):
        value = x.attrs["value"]
        integral = dtype != torch.bool and not dtype.is_floating_point
        if not (integral and isinstance(value, float) and math.isinf(value)):
            return constant(int(value) if integral else value, dtype)
    return emit("cast", dtype, x)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.float32


def unary(template: str, real: bool = True, double: str | None = None) -> Any:
    """An op of one operand; `double` is the template for doubles where it differs."""

    def op(x: Operand) -> Value:
        dtype = promote(x)
        if real:
            dtype = real_dtype(dtype)
        text = double if double is not None and dtype == torch.float64 else template
        return emit(text, dtype, cast(x, dtype))

    return staticmethod(op)


def fold_constants(
    function: Callable[..., torch.Tensor], dtype: torch.dtype, *args: Value
) -> Value | None:
    """The constant that an op of constants is: compilers have 0 / 0 = 0."""
    if not dtype.is_floating_point or any(x.op != "constant" for x in args):
        return None
    tensors = (torch.tensor(x.attrs["value"], dtype=dtype) for x in args)
    return constant(function(*tensors).item(), dtype)


def hidden(x: Value) -> Value:
    """A 0 that compilers can't see: one that they can times NaN is 0 for them."""
    if x.op == "constant" and x.dtype.is_floating_point and x.attrs["value"] == 0:
        sign = "-" if math.copysign(1, x.attrs["value"]) < 0 else ""
        return emit(f"hidden_zero{sign}", x.dtype)
    return x


def arithmetic(
    template: str, bool_op: str | None = None, fold: Callable[..., torch.Tensor] = torch.add
) -> Any:
    """An op of two operands of any dtype; of bools, `bool_op`."""

    def op(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        folded = fold_constants(fold, dtype, cast(a, dtype), cast(b, dtype))
        if folded is not None:
            return folded
        if fold is torch.mul and dtype.is_floating_point:
            a, b = hidden(cast(a, dtype)), hidden(cast(b, dtype))
        if dtype == torch.bool:
            if bool_op is not None:
                return emit(bool_op, dtype, cast(a, dtype), cast(b, dtype))
            dtype = torch.int64
        text = f"({{T}})({template})" if dtype in SMALL else template
        return emit(text, dtype, cast(a, dtype), cast(b, dtype))

    return staticmethod(op)


def binary_real(template: str, fold: Callable[..., torch.Tensor] | None = None) -> Any:
    def op(a: Operand, b: Operand) -> Value:
        dtype = real_dtype(promote(a, b))
        if fold is not None:
            folded = fold_constants(fold, dtype, cast(a, dtype), cast(b, dtype))
            if folded is not None:
                return folded
            a, b = hidden(cast(a, dtype)), hidden(cast(b, dtype))
        return emit(template, dtype, cast(a, dtype), cast(b, dtype))

    return staticmethod(op)


def compare(sign: str) -> Any:
    def op(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        if dtype == torch.bool and sign not in ("==", "!="):
            dtype = torch.int32  # in a vector true is -1
        return emit("compare", torch.bool, cast(a, dtype), cast(b, dtype), sign=sign)

    return staticmethod(op)


def bitwise(sign: str) -> Any:
    def op(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        text = f"({{0}} {sign} {{1}})"
        if dtype in SMALL:
            text = f"({{T}}){text}"
        return emit(text, dtype, cast(a, dtype), cast(b, dtype))

    return staticmethod(op)


def logical(sign: str) -> Any:
    def op(a: Operand, b: Operand) -> Value:
        return emit(f"({{0}} {sign} {{1}})", torch.bool, cast(a, torch.bool), cast(b, torch.bool))

    return staticmethod(op)


def special(function: str, operands: int = 1) -> Any:
    """A function of math/special.clh, one element at a time."""

    def op(*args: Operand) -> Value:
        assert len(args) == operands, function
        dtype = real_dtype(promote(*args))
        return emit("special", dtype, *(cast(x, dtype) for x in args), function=function)

    return staticmethod(op)


def rounding(function: str) -> Any:
    def op(x: Operand) -> Value:
        dtype = promote(x)
        return emit(f"{function}({{0}})", dtype, cast(x, dtype)) if dtype.is_floating_point else x

    return staticmethod(op)


def to_int(function: str) -> Any:
    def op(x: Operand, dtype: torch.dtype) -> Value:
        source = promote(x)
        if source.is_floating_point and function:
            x = emit(f"{function}({{0}})", source, cast(x, source))
        return cast(x, dtype)

    return staticmethod(op)


def is_constant(x: Operand, value: float, digits: float = 0.0) -> bool:
    x = unwrap(x)
    if isinstance(x, Value):
        if x.op != "constant":
            return False
        x = x.attrs["value"]
    return isinstance(x, int | float) and abs(x - value) <= digits


def is_nonpositive(x: Value) -> bool:
    """Known from how it is computed, NaN apart."""
    return bool(x.attrs.get("nonpositive"))
