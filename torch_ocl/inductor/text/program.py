"""A kernel's parameters, and the text around its body."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from torch_ocl.inductor.text.code import Code
from torch_ocl.inductor.types import c_type, compute_dtype


@dataclass(frozen=True)
class Number:
    """A number of the call.

    Attributes:
        name: The parameter.
        outer: The expression, or the name of a tensor of one element on the CPU.
        kind: How it is passed: 'l' long, 'd' double, 'f' float.
        dtype: The tensor's.
        used_as: The dtype that the kernel takes it as, where that is neither the tensor's nor that
            of indices or floats.
    """

    name: str
    outer: Any
    kind: str
    dtype: torch.dtype | None = None
    used_as: torch.dtype | None = None

    def c_type(self, index: torch.dtype) -> str:
        """The C type that it is used as."""
        dtype = self.used_as or self.dtype
        if dtype is not None:
            return c_type(compute_dtype(dtype))
        return c_type(index) if self.kind == "l" else "float"


# Stand for a kernel's name and that of a function until they have one.
KERNEL, FUNCTION = "KERNEL_NAME", "PART_NAME"
# Functions that a program has as they are called, and the prelude's macros that define them.
_HELPERS = {
    r"check_lanes_(\d+)_(int|long)": "DEFINE_CHECK({}, {})",
    r"check_one_(int|long)": "DEFINE_CHECK_ONE({})",
    r"gather_(\w+)_(\d+)_(int|long)": "DEFINE_GATHER({}, {}, {})",
    r"masked_read_(\w+)_(\d+)": "DEFINE_MASKED_READ({}, {})",
    r"scatter_(\w+)_(\d+)_(int|long)": "DEFINE_SCATTER({}, {}, {})",
    r"transpose_(\w+)_(\d+)": "DEFINE_TRANSPOSE({}, {})",
}
_MEMBERS = {"l": "long {0};", "d": "double {0};", "f": "float {0}, {0}_;"}


@dataclass(frozen=True)
class Parameters:
    """The tensors of a call, as pairs of the parameter and the buffer, and then its numbers."""

    tensors: tuple[tuple[str, str], ...]
    numbers: tuple[Number, ...]

    @property
    def kinds(self) -> str:
        """The numbers' kinds."""
        return "".join(number.kind for number in self.numbers)

    def places(self, sizes: Sequence[sympy.Expr]) -> tuple[tuple[bool, int], ...]:
        """Sizes as the launcher takes them: constants, or which number of the call."""
        known = {n.outer: i for i, n in enumerate(self.numbers) if n.kind == "l"}
        return tuple(
            (False, int(size)) if isinstance(size, sympy.Integer) else (True, known[size])
            for size in sizes
        )

    def members(self) -> list[str]:
        """The members of the kernel's struct."""
        return [
            *(f"ADDRESS({name})" for name, _ in self.tensors),
            *(_MEMBERS[number.kind].format(number.name) for number in self.numbers),
        ]

    def declarations(self, index: torch.dtype) -> list[str]:
        """Declares what the struct `a` has, by its members' names."""
        lines = [f"global char* {name} = POINTER({name});" for name, _ in self.tensors]
        for number in self.numbers:
            t = number.c_type(index)
            lines.append(f"const {t} {number.name} = ({t})a.{number.name};")
        return lines


def helpers_of(text: str) -> tuple[str, ...]:
    """The functions that a text calls and a program doesn't have by itself, as lines of macros."""
    found = {
        macro.format(*call.groups()): None
        for name, macro in _HELPERS.items()
        for call in re.finditer(rf"\b{name}\(", text)
    }
    return (*found,)


def kernel_text(
    parameters: Parameters, body: Code | str, *, index: torch.dtype, sites: int, on_cpu: bool
) -> str:
    """A kernel KERNEL: the struct of its arguments, its head, and the body.

    Args:
        parameters: What a call passes.
        body: Its statements.
        index: The type of indices.
        sites: How many places of it can report a failure.
        on_cpu: Whether work-items use vectors themselves.
    """
    out = Code()
    out.writeline("typedef struct {")
    with out.indent():
        out.writelines(parameters.members())
        out.writelines(f"ulong site{i};" for i in range(sites))
        out.writeline("long columns_each, rows_each;")
    out.writeline(f"}} {KERNEL}_arguments;")
    out.writeline("")
    buffers = " ".join(f"BUFFER({tensor})" for tensor, _ in parameters.tensors)
    checks = ", global int* asserts" if sites else ""
    items = "ITEM_BY_ITEM " if on_cpu else ""
    with out.block(f"kernel {items}void {KERNEL}({buffers} const {KERNEL}_arguments a{checks})"):
        out.writelines(parameters.declarations(index))
        out.writelines(f"const uint site{i} = (uint)a.site{i};" for i in range(sites))
        out.splice(body)
    return str(out.getvalue())


def function_text(
    parameters: Parameters, columns: str, body: str, *, index: torch.dtype, sites: int
) -> str:
    """A function FUNCTION of a kernel's parameters, of the places that can report a failure and
    their record, and of the first column, the end, and the number of `columns`."""
    t = c_type(index)
    words = [f"global char* {name}" for name, _ in parameters.tensors]
    words += [f"const {number.c_type(index)} {number.name}" for number in parameters.numbers]
    if sites:
        words += ["global int* asserts", *(f"const uint site{i}" for i in range(sites))]
    words += [f"const {t} {name}" for name in ("first", "end", columns)]
    out = Code()
    with out.block(f"static inline void {FUNCTION}({', '.join(words)})"):
        out.splice(body)
    return str(out.getvalue())
