"""A kernel's arguments become bytes of a value, or an address and what lies behind it."""

import operator
import re
import reprlib
import struct
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torch_ocl.source_kernels.signature import Parameter

#: OpenCL's scalar types as the struct module names them.
_FORMATS = {
    "char": "b",
    "uchar": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "half": "e",
    "float": "f",
    "double": "d",
}
_FLOAT8 = {getattr(torch, name) for name in dir(torch) if name.startswith("float8_")}
#: The dtypes whose elements each type reads as they are. Integers are of that width, signed or not:
#: PyTorch has few ops on unsigned ones. OpenCL has no bool, bfloat16 or float8.
_DTYPES = {
    "char": {torch.int8, torch.uint8, torch.bool},
    "uchar": {torch.uint8, torch.int8, torch.bool, *_FLOAT8},
    "short": {torch.int16, torch.uint16},
    "ushort": {torch.uint16, torch.int16, torch.bfloat16},
    "int": {torch.int32, torch.uint32},
    "uint": {torch.uint32, torch.int32},
    "long": {torch.int64, torch.uint64},
    "ulong": {torch.uint64, torch.int64},
    "half": {torch.float16},
    "float": {torch.float32},
    "double": {torch.float64},
}
#: Types that pointers alone may point to: no argument has such a type (6.9 k of OpenCL C 1.2).
#: Devices have 64 bits here.
_POINTED = {"bool": "char", "size_t": "ulong", "uintptr_t": "ulong", "ptrdiff_t": "long"}
_POINTED["intptr_t"] = "long"
#: And those of vectors: a complex number is a pair.
_PAIRS = {"half": torch.complex32, "float": torch.complex64, "double": torch.complex128}


def _shown(value: Any) -> str:
    """A wrong argument as messages show it: it may be long."""
    text = reprlib.repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


class LocalMemory:
    """The argument for a `local` pointer; see torch.ocl.local_memory()."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = operator.index(nbytes)
        if self.nbytes <= 0:
            raise ValueError(f"local memory must have a positive number of bytes, got {nbytes}")

    def __repr__(self) -> str:
        return f"torch.ocl.local_memory({self.nbytes})"


def _vector(type_: str) -> tuple[str, int]:
    """("float", 4) of float4, ("float", 1) of float."""
    type_ = type_.removeprefix("atomic_")
    base, lanes = re.fullmatch(r"(.*?)(2|3|4|8|16)?", type_).groups()
    return (base, int(lanes)) if lanes and base in _FORMATS else (type_, 1)


def _stored_lanes(lanes: int) -> int:
    return 4 if lanes == 3 else lanes  # OpenCL C 1.2, 6.1.5


def _buffer_argument(p: Parameter) -> Callable[[Any], tuple[int, int]]:
    """Makes a tensor the address of its first element and the bytes to its storage's end."""
    base, lanes = _vector(p.type)
    base = _POINTED.get(base, base)
    dtypes = {torch.bool} if p.type == "bool" else _DTYPES.get(base)
    if dtypes is not None and lanes % 2 == 0 and base in _PAIRS:
        dtypes = dtypes | {_PAIRS[base]}
    element = struct.calcsize(_FORMATS[base]) * _stored_lanes(lanes) if dtypes else 1

    def convert(value: Any) -> tuple[int, int]:
        _check_tensor(value)
        if dtypes is not None and value.dtype not in dtypes:
            takes = " or ".join(sorted(map(str, dtypes - _FLOAT8)))
            raise TypeError(f"a {p.type} pointer takes {takes}, got {value.dtype}")
        try:
            address = value.data_ptr()
        except RuntimeError:
            raise TypeError(
                "the tensor has no memory of its own, as inside torch.vmap and other transforms of "
                "torch.func: make an op of the kernel by torch.library.custom_op, with "
                "register_vmap"
            ) from None
        if address == 0:
            if value.numel() > 0:
                if type(value) in (torch.Tensor, torch.nn.Parameter):
                    raise TypeError("the tensor has no memory: its storage was resized to 0")
                raise TypeError(
                    f"a {type(value).__name__} has no memory of its own: pass the tensor within it "
                    "(to_local() of a DTensor)"
                )
            return 0, 0
        if address % element:
            raise ValueError(
                f"the tensor's first element is not aligned to the {element} bytes of {p.type}"
            )
        storage = value.untyped_storage()
        return address, storage.data_ptr() + storage.nbytes() - address

    return convert


def _check_tensor(value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"it takes a tensor, got {_shown(value)}")
    if hasattr(value, "fake_mode"):
        raise TypeError(
            "the tensor has no memory, it is there for tracing: call kernels in the body of a "
            "torch.library.custom_op that has a register_fake"
        )
    if value.layout != torch.strided or value.is_nested:
        raise TypeError(f"it takes a strided tensor, got one with layout {value.layout}")
    if value.device.type != "ocl":
        raise ValueError(f"it takes a tensor on an ocl device, got one on {value.device}")
    if value.is_conj() or value.is_neg():
        raise ValueError(
            "the tensor is a lazy conjugate or negative: resolve_conj(), resolve_neg()"
        )


def _number(value: Any, base: str) -> int | float:
    if isinstance(value, torch.Tensor):
        raise TypeError(f"it takes a number ({base}), got a tensor: item() gives its value")
    if base in ("half", "float", "double"):
        if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
            if not hasattr(value, "__index__"):
                raise TypeError(f"it takes a number ({base}), got {_shown(value)}")
        return float(value)
    # NumPy's bool has no __index__.
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return int(value)
    if not hasattr(value, "__index__"):
        raise TypeError(f"it takes an integer ({base}), got {_shown(value)}")
    return operator.index(value)


def _value_argument(p: Parameter) -> Callable[[Any], bytes]:
    """Makes a Python number the bytes of the parameter's type."""
    base, lanes = _vector(p.type)
    if base not in _FORMATS:
        return _raw_argument(p)
    packed = struct.Struct(f"={_stored_lanes(lanes)}{_FORMATS[base]}").pack
    padding = [0] * (_stored_lanes(lanes) - lanes)

    def convert(value: Any) -> bytes:
        values = [value]
        if lanes > 1:
            if isinstance(value, complex) and lanes == 2:
                value = (value.real, value.imag)
            if isinstance(value, torch.Tensor):
                raise TypeError(
                    f"it takes a sequence of {lanes} numbers ({p.type}), got a tensor: tolist() "
                    "gives its values"
                )
            # NumPy's arrays, too, which are no Sequence.
            ordered = hasattr(value, "__len__") and hasattr(value, "__getitem__")
            if not ordered or isinstance(value, str | bytes | Mapping):
                raise TypeError(
                    f"it takes a sequence of {lanes} numbers ({p.type}), got {_shown(value)}"
                )
            if len(value) != lanes:
                raise TypeError(f"it takes {lanes} numbers ({p.type}), got {len(value)}")
            values = list(value)
        numbers = [_number(v, base) for v in values]
        try:
            return packed(*numbers, *padding)
        except (struct.error, OverflowError):
            raise OverflowError(f"{_shown(value)} is out of the range of {p.type}") from None

    return convert


def is_struct(p: Parameter) -> bool:
    """Whether the argument is bytes whose number the type's name does not tell."""
    return not (p.is_pointer or p.is_opaque) and _vector(p.type)[0] not in _FORMATS


def _raw_argument(p: Parameter) -> Callable[[Any], bytes]:
    """A struct: anything that has bytes."""

    def convert(value: Any) -> bytes:
        try:
            return bytes(memoryview(value))
        except TypeError:
            raise TypeError(
                f"it takes the bytes of a {p.type} (bytes, a ctypes.Structure), got {_shown(value)}"
            ) from None

    return convert


def _local_argument(value: Any) -> int:
    if not isinstance(value, LocalMemory):
        raise TypeError(f"it takes torch.ocl.local_memory(bytes), got {_shown(value)}")
    return value.nbytes


def converter(p: Parameter) -> Callable[[Any], tuple[int, int] | int | bytes]:
    """A function that turns an argument for `p` into what _C.SourceKernel.launch takes.

    It raises TypeError, ValueError or OverflowError for what does not fit; so does this function if
    nothing can fit.
    """
    if p.is_opaque:
        raise TypeError(f"a kernel can't be given a {p.type}: only buffers, numbers and structs")
    if "long long" in p.type or p.type == "ulong long":
        raise TypeError("OpenCL C has no `long long` (6.1.4 of 1.2): a long has 64 bits")
    if p.is_local:
        return _local_argument
    return _buffer_argument(p) if p.is_buffer else _value_argument(p)
