"""The functors of kernels/pointwise/ops/*.clh: which exist, and what their macros say of them."""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass

FUNCTOR_DIR = pathlib.Path(__file__).parents[1] / "kernels" / "pointwise" / "ops"

FLAG_HEADER = pathlib.Path(__file__).parents[1] / "csrc" / "engine" / "pointwise" / "pointwise.h"

# op_<name>: real; cop_<name>: complex; vcop_<name>: vectors of complex numbers; op2_<name>: two
# results.
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(op|cop|vcop|op2)_(\w+)", re.MULTILINE)

_FLAG = re.compile(r"^inline constexpr uint32_t (\w+) = 1u << \d+;", re.MULTILINE)


@dataclass(frozen=True)
class Functor:
    """A functor's name and the engine flags that follow from where and how it is defined."""

    name: str
    flags: tuple[str, ...]


def find_functors(directory: pathlib.Path = FUNCTOR_DIR) -> dict[str, Functor]:
    """Every functor defined in directory/*.clh, by name."""
    prefixes: dict[str, set[str]] = {}
    files: dict[str, set[str]] = {}
    for path in sorted(pathlib.Path(directory).glob("*.clh")):
        for prefix, name in _MACRO.findall(path.read_text()):
            prefixes.setdefault(name, set()).add(prefix)
            files.setdefault(name, set()).add(path.stem)
    found = {}
    for name in sorted(prefixes):
        flags = []
        if "special" in files[name]:
            flags.append("special")
        if "special_float" in files[name]:
            flags.append("special_float")
        if "op2" in prefixes[name]:
            flags.append("two_outputs")
        if "vcop" in prefixes[name]:
            flags.append("complex_vectors")
        if "cop" not in prefixes[name]:
            flags.append("no_complex")
        found[name] = Functor(name, tuple(flags))
    return found


def known_flags(header: pathlib.Path = FLAG_HEADER) -> set[str]:
    """The names in ocl::pointwise::flag."""
    return set(_FLAG.findall(header.read_text()))
