"""Inductor's ops, as values of a kernel (values.py).

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
from torch._inductor.codegen.common import CSEVariable, OpOverrides
from torch._inductor.ops_handler import OpsHandler
from torch._inductor.virtualized import OpsValue, V, ops

from torch_ocl.inductor.types import compute_dtype
from torch_ocl.inductor.values import Value

Operand = Any  # a Value, or a Python number
_SMALL = {torch.int8, torch.int16, torch.uint8, torch.uint16}


def unwrap(x: Operand) -> Operand:
    """What stands in an OpsValue."""
    return x.value if isinstance(x, OpsValue) else x


def _dtype_of(x: Operand) -> torch.dtype:
    if isinstance(x, CSEVariable):
        assert x.dtype is not None
        return x.dtype
    if isinstance(x, bool):
        return torch.bool
    return torch.int64 if isinstance(x, int | sympy.Integer) else torch.float32


def promote(*operands: Operand) -> torch.dtype:
    """The dtype that an op computes in: constants take that of the others, if they can."""
    operands = tuple(map(unwrap, operands))
    dtypes = [_dtype_of(x) for x in operands if isinstance(x, Value) and x.op != "constant"]
    constants = [_dtype_of(x) for x in operands if not isinstance(x, Value) or x.op == "constant"]
    if not dtypes:
        return compute_dtype(functools.reduce(torch.promote_types, constants))
    result = functools.reduce(torch.promote_types, dtypes)
    for dtype in constants:
        if dtype.is_floating_point and not result.is_floating_point:
            result = dtype
        elif result == torch.bool and dtype != torch.bool:
            result = dtype
    return compute_dtype(result)


def _emit(op: str, dtype: torch.dtype, *args: Value, **attrs: Any) -> Value:
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
    return _emit("cast", dtype, x)


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.float32


def _unary(template: str, real: bool = True, double: str | None = None) -> Any:
    """An op of one operand; `double` is the template for doubles where it differs."""

    def op(x: Operand) -> Value:
        dtype = promote(x)
        if real:
            dtype = _real(dtype)
        text = double if double is not None and dtype == torch.float64 else template
        return _emit(text, dtype, cast(x, dtype))

    return staticmethod(op)


def _folded(
    function: Callable[..., torch.Tensor], dtype: torch.dtype, *args: Value
) -> Value | None:
    """The constant that an op of constants is: compilers have 0 / 0 = 0."""
    if not dtype.is_floating_point or any(x.op != "constant" for x in args):
        return None
    tensors = (torch.tensor(x.attrs["value"], dtype=dtype) for x in args)
    return constant(function(*tensors).item(), dtype)


def _hidden(x: Value) -> Value:
    """A 0 that compilers can't see: the product of one that they can and NaN is 0 for them."""
    if x.op == "constant" and x.dtype.is_floating_point and x.attrs["value"] == 0:
        sign = "-" if math.copysign(1, x.attrs["value"]) < 0 else ""
        return _emit(f"hidden_zero{sign}", x.dtype)
    return x


def _arithmetic(
    template: str, bool_op: str | None = None, fold: Callable[..., torch.Tensor] = torch.add
) -> Any:
    """An op of two operands of any dtype; of bools, `bool_op`."""

    def op(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        folded = _folded(fold, dtype, cast(a, dtype), cast(b, dtype))
        if folded is not None:
            return folded
        if fold is torch.mul and dtype.is_floating_point:
            a, b = _hidden(cast(a, dtype)), _hidden(cast(b, dtype))
        if dtype == torch.bool:
            if bool_op is not None:
                return _emit(bool_op, dtype, cast(a, dtype), cast(b, dtype))
            dtype = torch.int64
        text = f"({{T}})({template})" if dtype in _SMALL else template
        return _emit(text, dtype, cast(a, dtype), cast(b, dtype))

    return staticmethod(op)


def _binary_real(template: str, fold: Callable[..., torch.Tensor] | None = None) -> Any:
    def op(a: Operand, b: Operand) -> Value:
        dtype = _real(promote(a, b))
        if fold is not None:
            folded = _folded(fold, dtype, cast(a, dtype), cast(b, dtype))
            if folded is not None:
                return folded
            a, b = _hidden(cast(a, dtype)), _hidden(cast(b, dtype))
        return _emit(template, dtype, cast(a, dtype), cast(b, dtype))

    return staticmethod(op)


def _compare(sign: str) -> Any:
    def op(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        return _emit("compare", torch.bool, cast(a, dtype), cast(b, dtype), sign=sign)

    return staticmethod(op)


def _bitwise(sign: str) -> Any:
    def op(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        text = f"({{0}} {sign} {{1}})"
        if dtype in _SMALL:
            text = f"({{T}}){text}"
        return _emit(text, dtype, cast(a, dtype), cast(b, dtype))

    return staticmethod(op)


def _logical(sign: str) -> Any:
    def op(a: Operand, b: Operand) -> Value:
        return _emit(f"({{0}} {sign} {{1}})", torch.bool, cast(a, torch.bool), cast(b, torch.bool))

    return staticmethod(op)


def _special(function: str, operands: int = 1) -> Any:
    """A function of math/special.clh, one element at a time."""

    def op(*args: Operand) -> Value:
        assert len(args) == operands, function
        dtype = _real(promote(*args))
        return _emit("special", dtype, *(cast(x, dtype) for x in args), function=function)

    return staticmethod(op)


def _rounding(function: str) -> Any:
    def op(x: Operand) -> Value:
        dtype = promote(x)
        return _emit(f"{function}({{0}})", dtype, cast(x, dtype)) if dtype.is_floating_point else x

    return staticmethod(op)


def _to_int(function: str) -> Any:
    def op(x: Operand, dtype: torch.dtype) -> Value:
        source = promote(x)
        if source.is_floating_point and function:
            x = _emit(f"{function}({{0}})", source, cast(x, source))
        return cast(x, dtype)

    return staticmethod(op)


def _is_constant(x: Operand, value: float, digits: float = 0.0) -> bool:
    x = unwrap(x)
    if isinstance(x, Value):
        if x.op != "constant":
            return False
        x = x.attrs["value"]
    return isinstance(x, int | float) and abs(x - value) <= digits


def _is_nonpositive(x: Value) -> bool:
    """Known from how it is computed, NaN apart."""
    return bool(x.attrs.get("nonpositive"))


class Overrides(OpOverrides):
    """One method for each of OpsHandler's ops."""

    @staticmethod
    def constant(value: float | bool, dtype: torch.dtype) -> Value:
        return constant(value, compute_dtype(dtype))

    @staticmethod
    def add(a: Operand, b: Operand) -> Value:
        for x, one in ((unwrap(a), b), (unwrap(b), a)):
            # 1 + erf(x / sqrt(2)) is twice the normal distribution, which is faster than erf.
            if isinstance(x, Value) and "normal" in x.attrs and _is_constant(one, 1.0):
                text = "(({T})(2) * NORMAL_CDF({S}, {n}, {0}))"
                return _emit(text, torch.float32, x.attrs["normal"])
        return Overrides._add(a, b)

    _add = _arithmetic("{0} + {1}", "({0} | {1})")

    @staticmethod
    def sub(a: Operand, b: Operand) -> Value:
        result = Overrides._sub(a, b)
        a, b = unwrap(a), unwrap(b)
        if isinstance(b, Value) and b.attrs.get("maximum_of") is a:
            result.attrs["nonpositive"] = True
        return result

    _sub = _arithmetic("{0} - {1}", fold=torch.sub)
    mul = _arithmetic("{0} * {1}", "({0} & {1})", fold=torch.mul)
    mul_rn = mul
    _truediv = _binary_real("({0} / {1})", fold=torch.div)
    int_truediv = _truediv
    div_rn = _truediv

    @staticmethod
    def truediv(a: Operand, b: Operand) -> Value:
        x, total = unwrap(a), unwrap(b)
        # A division takes as long as the rest of a softmax. Exponentials of what is 0 at most have
        # a sum of 1 at least: its reciprocal is a number.
        if isinstance(x, Value) and isinstance(total, Value) and x.attrs.get("below_1"):
            if total.attrs.get("sum_of") is x and x.dtype == torch.float32:
                share = _emit("(({T})(1) / {0})", torch.float32, total)
                return Overrides.mul(x, share)
        return Overrides._truediv(a, b)

    lt, le, gt, ge = _compare("<"), _compare("<="), _compare(">"), _compare(">=")
    eq, ne = _compare("=="), _compare("!=")

    @staticmethod
    def exp(x: Operand) -> Value:
        dtype = _real(promote(x))
        value = cast(x, dtype)
        name = "EXP_BELOW" if _is_nonpositive(value) else "EXP"
        result = _emit(f"{name}({{S}}, {{n}}, {{0}})", dtype, value)
        if name == "EXP_BELOW":
            result.attrs["below_1"] = True
        return result

    @staticmethod
    def erf(x: Operand) -> Value:
        dtype = _real(promote(x))
        value = cast(x, dtype)
        result = _emit("erf({0})", dtype, value)
        root = value.attrs.get("times_root_half")
        if root is not None:
            result.attrs["normal"] = root
        return result

    @staticmethod
    def neg(x: Operand) -> Value:
        dtype = promote(x)
        return _emit("({T})(-{0})" if dtype in _SMALL else "(-{0})", dtype, cast(x, dtype))

    exp2, expm1 = _unary("exp2({0})"), _unary("expm1({0})")
    log, log2, log10 = _unary("log({0})"), _unary("log2({0})"), _unary("log10({0})")
    log1p = _unary("log1p({0})")
    sqrt, rsqrt = _unary("sqrt({0})"), _unary("rsqrt({0})")
    reciprocal = _unary("(({T})(1) / {0})")
    square = _unary("({0} * {0})", real=False)
    sin, cos, tan = _unary("sin({0})"), _unary("cos({0})"), _unary("tan({0})")
    asin, acos, atan = _unary("asin({0})"), _unary("acos({0})"), _unary("atan({0})")
    sinh, cosh = _unary("sinh({0})"), _unary("cosh({0})")
    tanh = _unary("TANH({S}, {n}, {0})")
    asinh, acosh, atanh = _unary("asinh({0})"), _unary("acosh({0})"), _unary("atanh({0})")
    erfc = _unary("erfc({0})")
    sigmoid = _unary(
        "(({T})(0.5f) / (({T})(0.5f) + HALVED_EXP({S}, {n}, -{0})))",
        double="(({T})(1) / (({T})(1) + exp(-{0})))",
    )
    atan2, hypot = _binary_real("atan2({0}, {1})"), _binary_real("hypot({0}, {1})")
    copysign = _binary_real("copysign({0}, {1})")
    floor, ceil, trunc = _rounding("floor"), _rounding("ceil"), _rounding("trunc")
    round = _rounding("rint")
    floor_to_int, ceil_to_int = _to_int("floor"), _to_int("ceil")
    trunc_to_int, round_to_int = _to_int(""), _to_int("rint")

    @staticmethod
    def nextafter(a: Operand, b: Operand) -> Value:
        dtype = _real(promote(a, b))
        return _emit("nextafter({0}, {1})", dtype, cast(a, dtype), cast(b, dtype))

    @staticmethod
    def abs(x: Operand) -> Value:
        dtype = promote(x)
        if dtype == torch.bool or not dtype.is_signed:
            return cast(x, dtype)
        if dtype.is_floating_point:
            return _emit("fabs({0})", dtype, cast(x, dtype))
        text = "({0} < ({T})(0) ? ({T})(-{0}) : {0})"
        return _emit(text, dtype, cast(x, dtype))

    @staticmethod
    def relu(x: Operand) -> Value:
        dtype = promote(x)
        return _emit("({0} < ({T})(0) ? ({T})(0) : {0})", dtype, cast(x, dtype))

    @staticmethod
    def sign(x: Operand) -> Value:
        dtype = promote(x)
        if dtype == torch.bool:
            return cast(x, dtype)
        text = "({0} > ({T})(0) ? ({T})(1) : {0} < ({T})(0) ? ({T})(-1) : ({T})(0))"
        if dtype.is_floating_point or not dtype.is_signed:
            text = "({0} > ({T})(0) ? ({T})(1) : {0} < ({T})(0) ? ({T})(-1) : {0})"
            if not dtype.is_signed:
                text = "({0} > ({T})(0) ? ({T})(1) : ({T})(0))"
            else:
                # Of NaN 0, as of CPU torch.
                text = "({0} > ({T})(0) ? ({T})(1) : {0} < ({T})(0) ? ({T})(-1) : ({T})(0))"
        return _emit(text, dtype, cast(x, dtype))

    @staticmethod
    def signbit(x: Operand) -> Value:
        dtype = promote(x)
        if dtype.is_floating_point:
            return _emit("signbit", torch.bool, cast(x, dtype))
        return Overrides.lt(x, 0) if dtype.is_signed else constant(False, torch.bool)

    @staticmethod
    def isnan(x: Operand) -> Value:
        dtype = promote(x)
        if not dtype.is_floating_point:
            return constant(False, torch.bool)
        value = cast(x, dtype)
        return _emit("compare", torch.bool, value, value, sign="!=")

    @staticmethod
    def isinf(x: Operand) -> Value:
        dtype = promote(x)
        if not dtype.is_floating_point:
            return constant(False, torch.bool)
        magnitude = _emit("fabs({0})", dtype, cast(x, dtype))
        return _emit("compare", torch.bool, magnitude, constant(math.inf, dtype), sign="==")

    @staticmethod
    def _extreme(a: Operand, b: Operand, sign: str) -> Value:
        dtype = promote(a, b)
        if dtype == torch.bool:
            text = "({0} | {1})" if sign == ">" else "({0} & {1})"
        elif dtype.is_floating_point:
            # A NaN of either goes on.
            text = f"((({{0}} {sign} {{1}}) | ({{0}} != {{0}})) ? {{0}} : {{1}})"
        else:
            text = f"(({{0}} {sign} {{1}}) ? {{0}} : {{1}})"
        return _emit(text, dtype, cast(a, dtype), cast(b, dtype))

    @staticmethod
    def maximum(a: Operand, b: Operand) -> Value:
        return Overrides._extreme(a, b, ">")

    @staticmethod
    def minimum(a: Operand, b: Operand) -> Value:
        return Overrides._extreme(a, b, "<")

    @staticmethod
    def pow(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        if dtype.is_floating_point:
            return _emit("pow", dtype, cast(a, dtype), cast(b, dtype))
        return _emit("lanes", dtype, cast(a, dtype), cast(b, dtype), function="INTEGER_POWER")

    @staticmethod
    def fma(a: Operand, b: Operand, c: Operand) -> Value:
        dtype = promote(a, b, c)
        operands = (cast(a, dtype), cast(b, dtype), cast(c, dtype))
        if not dtype.is_floating_point:
            return _emit("{0} * {1} + {2}", dtype, *operands)
        return _emit("fma({0}, {1}, {2})", dtype, *operands)

    @staticmethod
    def logical_not(x: Operand) -> Value:
        return _emit("(!{0})", torch.bool, cast(x, torch.bool))

    logical_and, logical_or = _logical("&"), _logical("|")
    logical_xor = _logical("^")
    bitwise_and, bitwise_or, bitwise_xor = _bitwise("&"), _bitwise("|"), _bitwise("^")
    and_, or_, xor = bitwise_and, bitwise_or, bitwise_xor

    @staticmethod
    def bitwise_not(x: Operand) -> Value:
        dtype = promote(x)
        if dtype == torch.bool:
            return Overrides.logical_not(x)
        return _emit("({T})(~{0})" if dtype in _SMALL else "(~{0})", dtype, cast(x, dtype))

    @staticmethod
    def _shift(a: Operand, b: Operand, name: str) -> Value:
        dtype = promote(a, b)
        return _emit("shift", dtype, cast(a, dtype), cast(b, dtype), name=name)

    @staticmethod
    def bitwise_left_shift(a: Operand, b: Operand) -> Value:
        return Overrides._shift(a, b, "LEFT")

    @staticmethod
    def bitwise_right_shift(a: Operand, b: Operand) -> Value:
        return Overrides._shift(a, b, "RIGHT")

    lshift, rshift = bitwise_left_shift, bitwise_right_shift

    @staticmethod
    def _quotient(a: Operand, b: Operand, name: str) -> Value:
        dtype = promote(a, b)
        if dtype == torch.bool:
            dtype = torch.int32
        x, y = cast(a, dtype), cast(b, dtype)
        if y.op == "constant" and y.attrs["value"] not in (0, -1):
            return _emit(f"{name}({{T}}, {{0}}, {{1}})", dtype, x, y)
        # A processor may stop at a division by 0, or of the lowest number by -1.
        sign = "SIGNED" if dtype.is_signed else "UNSIGNED"
        return _emit(f"{name}_{sign}({{T}}, {{0}}, {{1}})", dtype, x, y)

    @staticmethod
    def truncdiv(a: Operand, b: Operand) -> Value:
        return Overrides._quotient(a, b, "QUOTIENT")

    @staticmethod
    def floordiv(a: Operand, b: Operand) -> Value:
        if not promote(a, b).is_signed:
            return Overrides._quotient(a, b, "QUOTIENT")
        q = Overrides._quotient(a, b, "QUOTIENT")
        r = Overrides._quotient(a, b, "MODULUS")
        text = "({0} - FLOOR_STEP({T}, {1}, {2}))"
        if q.dtype in _SMALL:
            text = f"({{T}}){text}"
        return _emit(text, q.dtype, q, r, cast(b, q.dtype))

    @staticmethod
    def mod(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        if dtype.is_floating_point:
            return _emit("fmod({0}, {1})", dtype, cast(a, dtype), cast(b, dtype))
        return Overrides._quotient(a, b, "MODULUS")

    fmod = mod

    @staticmethod
    def remainder(a: Operand, b: Operand) -> Value:
        r = Overrides.mod(a, b)
        dtype = r.dtype
        if not dtype.is_signed:
            return r
        divisor = cast(b, dtype)
        text = "({0} + (REMAINDER_STEP({T}, {0}, {1}) ? {1} : ({T})(0)))"
        if dtype in _SMALL:
            text = f"({{T}}){text}"
        return _emit(text, dtype, r, divisor)

    @staticmethod
    def where(condition: Operand, a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        return _emit("where", dtype, cast(condition, torch.bool), cast(a, dtype), cast(b, dtype))

    @staticmethod
    def ldexp(x: Operand, n: Operand) -> Value:
        dtype = _real(promote(x))
        return _emit("ldexp({0}, {1})", dtype, cast(x, dtype), cast(n, torch.int32))

    @staticmethod
    def frexp(x: Operand) -> tuple[Value, Value]:
        dtype = _real(promote(x))
        value = cast(x, dtype)
        return (
            _emit("lanes", dtype, value, function="MANTISSA"),
            _emit("lanes", torch.int32, value, function="EXPONENT"),
        )

    @staticmethod
    def to_dtype(
        x: Operand,
        dtype: torch.dtype,
        src_dtype: torch.dtype | None = None,
        use_compute_types: bool = True,
    ) -> Value:
        source = unwrap(x)
        value = cast(source, dtype)
        if use_compute_types or dtype == compute_dtype(dtype) or src_dtype == dtype:
            return value
        return _emit("round", value.dtype, value, to=dtype)

    @staticmethod
    def to_dtype_bitcast(x: Operand, dtype: torch.dtype, src_dtype: torch.dtype) -> Value:
        return _emit(
            "bitcast", compute_dtype(dtype), cast(x, src_dtype), source=src_dtype, to=dtype
        )

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> Value:
        return V.kernel.index_value(expr, compute_dtype(dtype))

    value_expr = index_expr

    @staticmethod
    def identity(x: Operand) -> Operand:
        return x

    @staticmethod
    def masked(mask: Operand, body: Callable[[], Operand], other: Operand) -> Value:
        return V.kernel.masked(cast(mask, torch.bool), body, other)

    @staticmethod
    def load_seed(name: str, offset: Operand) -> Value:
        return ops.load(name, sympy.Integer(offset)).value

    @staticmethod
    def _random(kind: str, dtype: torch.dtype, *args: Value) -> Value:
        V.kernel.parts.add("random")
        return _emit(f"{kind}({{n}}, {{0}}, {{1}})", dtype, *args)

    @staticmethod
    def rand(seed: Operand, offset: Operand) -> Value:
        words = (cast(seed, torch.int64), cast(offset, torch.int32))
        return Overrides._random("RANDOM_UNIFORM", torch.float32, *words)

    @staticmethod
    def randn(seed: Operand, offset: Operand) -> Value:
        words = (cast(seed, torch.int64), cast(offset, torch.int32))
        return Overrides._random("RANDOM_NORMAL", torch.float32, *words)

    @staticmethod
    def randint64(seed: Operand, offset: Operand, low: Operand, high: Operand) -> Value:
        words = (cast(seed, torch.int64), cast(offset, torch.int32))
        bits = Overrides._random("RANDOM_BITS", torch.uint64, *words)
        low, high = cast(low, torch.int64), cast(high, torch.int64)
        size = Overrides.to_dtype(Overrides.sub(high, low), torch.uint64)
        return Overrides.add(cast(Overrides.mod(bits, size), torch.int64), low)

    @staticmethod
    def halide_clamp(value: Operand, size: sympy.Expr, check: bool) -> Operand:
        raise NotImplementedError("halide_clamp is for Halide only")

    airy_ai, digamma, erfcx = _special("airy_ai"), _special("digamma"), _special("erfcx")
    erfinv, lgamma = _special("ERFINV"), _special("LOG_GAMMA")
    bessel_j0, bessel_j1 = _special("bessel_j0"), _special("bessel_j1")
    bessel_y0, bessel_y1 = _special("bessel_y0"), _special("bessel_y1")
    igamma, igammac = _special("igamma", 2), _special("igammac", 2)
    gammainc, gammaincc = igamma, igammac
    i0, i0e = _special("bessel_i0"), _special("scaled_bessel_i0")
    i1, i1e = _special("bessel_i1"), _special("scaled_bessel_i1")
    log_ndtr, ndtri = _special("log_ndtr"), _special("ndtri")
    modified_bessel_i0, modified_bessel_i1 = i0, i1
    modified_bessel_k0, modified_bessel_k1 = _special("BESSEL_K0"), _special("BESSEL_K1")
    scaled_modified_bessel_k0 = _special("SCALED_BESSEL_K0")
    scaled_modified_bessel_k1 = _special("SCALED_BESSEL_K1")
    spherical_bessel_j0 = _special("spherical_bessel_j0")
    ndtr = _unary("(({T})(0.5f) * erfc({0} * ({T})(-0.70710678118654752440f)))")
    polygamma, zeta = _special("polygamma", 2), _special("zeta", 2)
    chebyshev_polynomial_t = _special("CHEBYSHEV_T", 2)
    chebyshev_polynomial_u = _special("CHEBYSHEV_U", 2)
    chebyshev_polynomial_v = _special("CHEBYSHEV_V", 2)
    chebyshev_polynomial_w = _special("CHEBYSHEV_W", 2)
    shifted_chebyshev_polynomial_t = _special("SHIFTED_CHEBYSHEV_T", 2)
    shifted_chebyshev_polynomial_u = _special("SHIFTED_CHEBYSHEV_U", 2)
    shifted_chebyshev_polynomial_v = _special("SHIFTED_CHEBYSHEV_V", 2)
    shifted_chebyshev_polynomial_w = _special("SHIFTED_CHEBYSHEV_W", 2)
    legendre_polynomial_p = _special("legendre_p", 2)
    hermite_polynomial_h = _special("hermite_h", 2)
    hermite_polynomial_he = _special("hermite_he", 2)
    laguerre_polynomial_l = _special("laguerre_l", 2)


def _mul(a: Operand, b: Operand) -> Value:
    result = _plain_mul(a, b)
    if result.dtype == torch.float32:
        for x, root in ((a, b), (b, a)):
            if _is_constant(root, math.sqrt(0.5), 1e-7):
                result.attrs["times_root_half"] = cast(x, torch.float32)
    return result


_plain_mul = Overrides.mul
Overrides.mul = staticmethod(_mul)


# Ops that kernels of this backend are never given: what the reason is.
NOT_GIVEN = {
    "inline_asm_elementwise": "of NVIDIA's language",
    "rand_eager": "of CUDA's numbering of random numbers",
    "dot": "of triton's products",
    "scan": "BackendFeature.SCAN",
    "sort": "BackendFeature.SORT",
    "bucketize": "BackendFeature.BUCKETIZE",
    "partial_accumulate": "of triton's reductions in mixed orders",
    "placeholder": "of graphs",
    "output": "of graphs",
}


def missing_ops() -> list[str]:
    """OpsHandler's ops that have no method here, nor in the kernel, nor a reason."""
    kernel = {
        "load",
        "store",
        "store_reduction",
        "reduction",
        "check_bounds",
        "device_assert_async",
        "indirect_indexing",
    }
    mine = {name for c in (Overrides,) for name in vars(c)}
    return [
        name
        for name, attribute in vars(OpsHandler).items()
        if not name.startswith("_")
        and callable(attribute)
        and name not in mine | kernel | set(NOT_GIVEN)
    ]
