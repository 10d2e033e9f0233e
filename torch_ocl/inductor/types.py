"""Dtypes in generated OpenCL C: names, literals, conversions, what is computed in what.

A value is one, or a vector of them. Half types are computed in float, as everywhere in this
project. A bool is an int: 0 or 1 as one value, 0 or -1 in a vector, as OpenCL's comparisons give.
"""

import math

import torch

# A dtype's tag in kernels/include/dtype.clh.
TAGS = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "b8",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3uz",
    torch.float8_e5m2fnuz: "f8e5m2uz",
}
FLOAT8 = frozenset(d for d, tag in TAGS.items() if tag.startswith("f8"))
# C types of computed values. A bool is an int.
_NAMES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int8: "char",
    torch.int16: "short",
    torch.int32: "int",
    torch.int64: "long",
    torch.uint8: "uchar",
    torch.uint16: "ushort",
    torch.uint32: "uint",
    torch.uint64: "ulong",
    torch.bool: "int",
}


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that values of a dtype are computed in: float for those of 16 bits and 8 bits."""
    if dtype.is_floating_point and dtype != torch.float64:
        return torch.float32
    return dtype


def value_tag(dtype: torch.dtype) -> str:
    """The tag of a computed value: a bool's is an int's."""
    return "i32" if dtype == torch.bool else TAGS[dtype]


def suffix(width: int) -> str:
    """As in `float4`; nothing for one."""
    return "" if width == 1 else str(width)


def c_type(dtype: torch.dtype, width: int = 1) -> str:
    """The C type of `width` computed values."""
    return _NAMES[dtype] + suffix(width)


def bits(dtype: torch.dtype) -> int:
    """Bits of a computed value."""
    return 32 if dtype == torch.bool else dtype.itemsize * 8


_SIGNED = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def as_mask(text: str, dtype: torch.dtype, width: int) -> str:
    """The result of a comparison of values of `dtype` as a bool's value: an int."""
    if width == 1 or bits(dtype) == 32:
        return text
    return f"convert_int{width}({text})"


def mask_for(text: str, dtype: torch.dtype, width: int) -> str:
    """A bool's value for ?: between values of `dtype`."""
    if width == 1 or bits(dtype) == 32:
        return text
    return f"convert_{c_type(_SIGNED[bits(dtype)], width)}({text})"


def widened(text: str, dtype: torch.dtype, width: int) -> str:
    """One value, in `width` lanes."""
    if width == 1:
        return text
    return f"({c_type(dtype, width)})({f'-({text})' if dtype == torch.bool else text})"


def converted(text: str, source: torch.dtype, to: torch.dtype, width: int) -> str:
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


def literal(value: float | bool, dtype: torch.dtype) -> str:
    """A constant of a computed dtype, one value."""
    if dtype == torch.bool:
        return "1" if value else "0"
    if dtype.is_floating_point:
        return _real(float(value), dtype)
    if isinstance(value, float) and not math.isfinite(value):
        # As x86's conversion has it, which eager's constants go through.
        value = torch.iinfo(dtype).min
    number = int(value)
    info = torch.iinfo(dtype)
    number = (number - info.min) % (info.max - info.min + 1) + info.min
    if dtype == torch.int64:
        return "LONG_MIN" if number == info.min else f"{number}l"
    if dtype == torch.int32:
        return "INT_MIN" if number == info.min else str(number)
    return str(number) + {torch.uint64: "ul", torch.uint32: "u"}.get(dtype, "")


def _real(value: float, dtype: torch.dtype) -> str:
    end = "f" if dtype == torch.float32 else ""
    if dtype == torch.float32:
        # Rounded as torch does, or the compiler would see another number of 53 bits.
        value = torch.tensor(value, dtype=torch.float64).to(torch.float32).item()
    if math.isnan(value):
        return "NAN" if end else "((double)NAN)"
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return f"{sign}INFINITY" if end else f"({sign}(double)INFINITY)"
    text = repr(value)
    if "." not in text and "e" not in text:
        text += ".0"
    return text + end
