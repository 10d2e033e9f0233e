"""Inductor's ops, as values of a kernel (values.py, expressions.py)."""

from __future__ import annotations

import math
from collections.abc import Callable

import sympy
import torch
from torch._inductor.codegen.common import OpOverrides
from torch._inductor.virtualized import V, ops

from torch_ocl.inductor.collect.expressions import (
    SMALL,
    Operand,
    arithmetic,
    binary_real,
    bitwise,
    cast,
    compare,
    constant,
    emit,
    is_constant,
    is_nonpositive,
    logical,
    promote,
    real_dtype,
    rounding,
    special,
    to_int,
    unary,
    unwrap,
)
from torch_ocl.inductor.collect.moves import moved_bits
from torch_ocl.inductor.types import FLOAT8, compute_dtype
from torch_ocl.inductor.values import Value


class Overrides(OpOverrides):
    """One method for each of OpsHandler's ops."""

    @staticmethod
    def constant(value: float | bool, dtype: torch.dtype) -> Value:
        return constant(value, compute_dtype(dtype))

    @staticmethod
    def add(a: Operand, b: Operand) -> Value:
        for x, one in ((unwrap(a), b), (unwrap(b), a)):
            # 1 + erf(x / sqrt(2)) is twice the normal distribution, which is faster than erf.
            if isinstance(x, Value) and "normal" in x.attrs and is_constant(one, 1.0):
                text = "(({T})(2) * NORMAL_CDF({S}, {n}, {0}))"
                return emit(text, torch.float32, x.attrs["normal"])
        return Overrides._add(a, b)

    _add = arithmetic("{0} + {1}", "({0} | {1})")

    @staticmethod
    def sub(a: Operand, b: Operand) -> Value:
        x = unwrap(b)
        if isinstance(x, Value) and "square_of" in x.attrs and is_constant(a, 1.0):
            # Near 1 a rounded square has lost most digits: the gradient of tanh.
            return emit("fma(-{0}, {0}, ({T})(1))", x.dtype, x.attrs["square_of"])
        result = Overrides._sub(a, b)
        a, b = unwrap(a), unwrap(b)
        if isinstance(b, Value) and b.attrs.get("maximum_of") is a:
            result.attrs["nonpositive"] = True
        return result

    _sub = arithmetic("{0} - {1}", fold=torch.sub)

    @staticmethod
    def mul(a: Operand, b: Operand) -> Value:
        result = Overrides._mul(a, b)
        x = unwrap(a)
        if isinstance(x, Value) and x is unwrap(b) and x.dtype == result.dtype:
            if x.dtype.is_floating_point:
                result.attrs["square_of"] = x
        return result

    _mul = arithmetic("{0} * {1}", "({0} & {1})", fold=torch.mul)
    mul_rn = mul
    _truediv = binary_real("({0} / {1})", fold=torch.div)
    int_truediv = _truediv
    div_rn = _truediv

    @staticmethod
    def truediv(a: Operand, b: Operand) -> Value:
        x, total = unwrap(a), unwrap(b)
        # A division takes as long as the rest of a softmax. Exponentials of what is 0 at most have
        # a sum of 1 at least: its reciprocal is a number.
        if isinstance(x, Value) and isinstance(total, Value) and x.attrs.get("below_1"):
            if total.attrs.get("sum_of") is x and x.dtype == torch.float32:
                share = emit("(({T})(1) / {0})", torch.float32, total)
                return Overrides.mul(x, share)
        return Overrides._truediv(a, b)

    lt, le, gt, ge = compare("<"), compare("<="), compare(">"), compare(">=")
    eq, ne = compare("=="), compare("!=")

    @staticmethod
    def exp(x: Operand) -> Value:
        dtype = real_dtype(promote(x))
        value = cast(x, dtype)
        name = "EXP_BELOW" if is_nonpositive(value) else "EXP"
        result = emit(f"{name}({{S}}, {{n}}, {{0}})", dtype, value)
        if name == "EXP_BELOW":
            result.attrs["below_1"] = True
        return result

    @staticmethod
    def erf(x: Operand) -> Value:
        dtype = real_dtype(promote(x))
        value = cast(x, dtype)
        result = emit("ERF({S}, {n}, {0})", dtype, value)
        root = value.attrs.get("times_root_half")
        if root is not None:
            result.attrs["normal"] = root
        return result

    @staticmethod
    def neg(x: Operand) -> Value:
        dtype = promote(x)
        return emit("({T})(-{0})" if dtype in SMALL else "(-{0})", dtype, cast(x, dtype))

    exp2, expm1 = unary("exp2({0})"), unary("expm1({0})")
    log, log2, log10 = unary("log({0})"), unary("log2({0})"), unary("log10({0})")
    log1p = unary("log1p({0})")
    sqrt, rsqrt = unary("sqrt({0})"), unary("rsqrt({0})")
    reciprocal = unary("(({T})(1) / {0})")
    square = unary("({0} * {0})", real=False)
    sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, erfc = (
        unary(f"{name}({{S}}, {{n}}, {{0}})")
        for name in ("SIN", "COS", "TAN", "ASIN", "ACOS", "ATAN", "SINH", "COSH", "TANH", "ERFC")
    )
    asinh, acosh, atanh = unary("asinh({0})"), unary("acosh({0})"), unary("atanh({0})")
    sigmoid = unary(
        "(({T})(0.5f) / (({T})(0.5f) + HALVED_EXP({S}, {n}, -{0})))",
        double="(({T})(1) / (({T})(1) + exp(-{0})))",
    )
    atan2, hypot = binary_real("ATAN2({S}, {n}, {0}, {1})"), binary_real("hypot({0}, {1})")
    copysign = binary_real("copysign({0}, {1})")
    floor, ceil, trunc = rounding("floor"), rounding("ceil"), rounding("trunc")
    round = rounding("rint")
    floor_to_int, ceil_to_int = to_int("floor"), to_int("ceil")
    trunc_to_int, round_to_int = to_int(""), to_int("rint")

    @staticmethod
    def nextafter(a: Operand, b: Operand) -> Value:
        dtype = real_dtype(promote(a, b))
        return emit("nextafter({0}, {1})", dtype, cast(a, dtype), cast(b, dtype))

    @staticmethod
    def abs(x: Operand) -> Value:
        dtype = promote(x)
        if dtype == torch.bool or not dtype.is_signed:
            return cast(x, dtype)
        if dtype.is_floating_point:
            return emit("fabs({0})", dtype, cast(x, dtype))
        text = "({0} < ({T})(0) ? ({T})(-{0}) : {0})"
        return emit(text, dtype, cast(x, dtype))

    @staticmethod
    def relu(x: Operand) -> Value:
        dtype = promote(x)
        return emit("({0} < ({T})(0) ? ({T})(0) : {0})", dtype, cast(x, dtype))

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
                # NaN becomes 0, as with CPU torch.
                text = "({0} > ({T})(0) ? ({T})(1) : {0} < ({T})(0) ? ({T})(-1) : ({T})(0))"
        return emit(text, dtype, cast(x, dtype))

    @staticmethod
    def signbit(x: Operand) -> Value:
        dtype = promote(x)
        if dtype.is_floating_point:
            return emit("signbit", torch.bool, cast(x, dtype))
        return Overrides.lt(x, 0) if dtype.is_signed else constant(False, torch.bool)

    @staticmethod
    def isnan(x: Operand) -> Value:
        dtype = promote(x)
        if not dtype.is_floating_point:
            return constant(False, torch.bool)
        value = cast(x, dtype)
        return emit("compare", torch.bool, value, value, sign="!=")

    @staticmethod
    def isinf(x: Operand) -> Value:
        dtype = promote(x)
        if not dtype.is_floating_point:
            return constant(False, torch.bool)
        magnitude = emit("fabs({0})", dtype, cast(x, dtype))
        return emit("compare", torch.bool, magnitude, constant(math.inf, dtype), sign="==")

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
        return emit(text, dtype, cast(a, dtype), cast(b, dtype))

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
            return emit("pow", dtype, cast(a, dtype), cast(b, dtype))
        return emit("lanes", dtype, cast(a, dtype), cast(b, dtype), function="INTEGER_POWER")

    @staticmethod
    def fma(a: Operand, b: Operand, c: Operand) -> Value:
        dtype = promote(a, b, c)
        operands = (cast(a, dtype), cast(b, dtype), cast(c, dtype))
        if not dtype.is_floating_point:
            return emit("{0} * {1} + {2}", dtype, *operands)
        return emit("fma({0}, {1}, {2})", dtype, *operands)

    @staticmethod
    def logical_not(x: Operand) -> Value:
        return emit("(!{0})", torch.bool, cast(x, torch.bool))

    logical_and, logical_or = logical("&"), logical("|")
    logical_xor = logical("^")
    bitwise_and, bitwise_or, bitwise_xor = bitwise("&"), bitwise("|"), bitwise("^")
    and_, or_, xor = bitwise_and, bitwise_or, bitwise_xor

    @staticmethod
    def bitwise_not(x: Operand) -> Value:
        dtype = promote(x)
        if dtype == torch.bool:
            return Overrides.logical_not(x)
        return emit("({T})(~{0})" if dtype in SMALL else "(~{0})", dtype, cast(x, dtype))

    @staticmethod
    def _shift(a: Operand, b: Operand, name: str) -> Value:
        dtype = promote(a, b)
        return emit("shift", dtype, cast(a, dtype), cast(b, dtype), name=name)

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
            return emit(f"{name}({{T}}, {{0}}, {{1}})", dtype, x, y)
        # A processor may stop at a division by 0, or of the lowest number by -1.
        sign = "SIGNED" if dtype.is_signed else "UNSIGNED"
        return emit(f"{name}_{sign}({{T}}, {{0}}, {{1}})", dtype, x, y)

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
        if q.dtype in SMALL:
            text = f"({{T}}){text}"
        return emit(text, q.dtype, q, r, cast(b, q.dtype))

    @staticmethod
    def mod(a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        if dtype == torch.float64:  # PoCL 3.1's fmod of double vectors is wrong
            return emit("called", dtype, cast(a, dtype), cast(b, dtype), function="fmod")
        if dtype.is_floating_point:
            return emit("fmod({0}, {1})", dtype, cast(a, dtype), cast(b, dtype))
        return Overrides._quotient(a, b, "MODULUS")

    fmod = mod

    @staticmethod
    def remainder(a: Operand, b: Operand) -> Value:
        r = Overrides.mod(a, b)
        dtype = r.dtype
        if not dtype.is_signed:
            return r
        divisor = cast(b, dtype)
        text = "(REMAINDER_STEP({T}, {0}, {1}) ? {0} + {1} : {0})"
        if dtype in SMALL:
            text = f"({{T}}){text}"
        return emit(text, dtype, r, divisor)

    @staticmethod
    def where(condition: Operand, a: Operand, b: Operand) -> Value:
        dtype = promote(a, b)
        return emit("where", dtype, cast(condition, torch.bool), cast(a, dtype), cast(b, dtype))

    @staticmethod
    def ldexp(x: Operand, n: Operand) -> Value:
        dtype = real_dtype(promote(x))
        return emit("ldexp({0}, {1})", dtype, cast(x, dtype), cast(n, torch.int32))

    @staticmethod
    def frexp(x: Operand) -> tuple[Value, Value]:
        dtype = real_dtype(promote(x))
        value = cast(x, dtype)
        return (
            emit("lanes", dtype, value, function="MANTISSA"),
            emit("lanes", torch.int32, value, function="EXPONENT"),
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
        if dtype == compute_dtype(dtype) or src_dtype == dtype:
            return value
        # Types of 8 bits are there to be rounded to; others are where upstream asks for it.
        if dtype in FLOAT8:
            V.kernel.parts.add("float8")
        elif use_compute_types:
            return value
        return emit("round", value.dtype, value, to=dtype)

    @staticmethod
    def to_dtype_bitcast(x: Operand, dtype: torch.dtype, src_dtype: torch.dtype) -> Value:
        x = cast(x, src_dtype)
        if (bits := moved_bits(x, src_dtype)) is not None:
            x, src_dtype = bits, bits.dtype
        return emit("bitcast", compute_dtype(dtype), x, source=src_dtype, to=dtype)

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
        return emit(f"{kind}({{n}}, {{0}}, {{1}})", dtype, *args)

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

    airy_ai, digamma, erfcx = special("airy_ai"), special("digamma"), special("erfcx")
    erfinv, lgamma = special("ERFINV"), special("LOG_GAMMA")
    bessel_j0, bessel_j1 = special("bessel_j0"), special("bessel_j1")
    bessel_y0, bessel_y1 = special("bessel_y0"), special("bessel_y1")
    igamma, igammac = special("igamma", 2), special("igammac", 2)
    gammainc, gammaincc = igamma, igammac
    i0, i0e = special("bessel_i0"), special("scaled_bessel_i0")
    i1, i1e = special("bessel_i1"), special("scaled_bessel_i1")
    log_ndtr, ndtri = special("log_ndtr"), special("ndtri")
    modified_bessel_i0, modified_bessel_i1 = i0, i1
    modified_bessel_k0, modified_bessel_k1 = special("BESSEL_K0"), special("BESSEL_K1")
    scaled_modified_bessel_k0 = special("SCALED_BESSEL_K0")
    scaled_modified_bessel_k1 = special("SCALED_BESSEL_K1")
    spherical_bessel_j0 = special("spherical_bessel_j0")
    ndtr = unary("(({T})(0.5f) * ERFC({S}, {n}, {0} * ({T})(-0.70710678118654752440f)))")
    polygamma, zeta = special("polygamma", 2), special("zeta", 2)
    chebyshev_polynomial_t = special("CHEBYSHEV_T", 2)
    chebyshev_polynomial_u = special("CHEBYSHEV_U", 2)
    chebyshev_polynomial_v = special("CHEBYSHEV_V", 2)
    chebyshev_polynomial_w = special("CHEBYSHEV_W", 2)
    shifted_chebyshev_polynomial_t = special("SHIFTED_CHEBYSHEV_T", 2)
    shifted_chebyshev_polynomial_u = special("SHIFTED_CHEBYSHEV_U", 2)
    shifted_chebyshev_polynomial_v = special("SHIFTED_CHEBYSHEV_V", 2)
    shifted_chebyshev_polynomial_w = special("SHIFTED_CHEBYSHEV_W", 2)
    legendre_polynomial_p = special("legendre_p", 2)
    hermite_polynomial_h = special("hermite_h", 2)
    hermite_polynomial_he = special("hermite_he", 2)
    laguerre_polynomial_l = special("laguerre_l", 2)


def _mul(a: Operand, b: Operand) -> Value:
    result = _plain_mul(a, b)
    if result.dtype == torch.float32:
        for x, root in ((a, b), (b, a)):
            if is_constant(root, math.sqrt(0.5), 1e-7):
                result.attrs["times_root_half"] = cast(x, torch.float32)
    return result


_plain_mul = Overrides.mul
Overrides.mul = staticmethod(_mul)
