"""DispatchStubs and what is bound to them."""

from __future__ import annotations

import importlib.util
import pathlib
import re
from dataclasses import dataclass

from codegen.errors import Problems
from codegen.functors import Functor, known_flags
from codegen.optable import Entry

# The name stands last; its type may hold commas, parentheses and line ends.
_DECLARE = re.compile(r"^\s*DECLARE_DISPATCH\([^;]*?,\s*(\w+)\s*\)\s*;?\s*?$", re.MULTILINE)
_ALIAS = re.compile(r"^\s*using\s+(\w+)\s*=\s*([^;]+);", re.MULTILINE)


def torch_include_dir() -> pathlib.Path:
    """The include directory of the installed torch; torch itself is not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("torch is not installed beside this python")
    return pathlib.Path(spec.submodule_search_locations[0]) / "include"


def declared_stubs(include_dir: pathlib.Path | None = None) -> dict[str, str]:
    """Every DispatchStub that torch's headers declare, with the header to include."""
    include_dir = include_dir or torch_include_dir()
    found = {}
    for path in sorted((include_dir / "ATen" / "native").rglob("*.h")):
        if path.name == "DispatchStub.h":
            continue
        for match in _DECLARE.finditer(path.read_text(errors="replace")):
            found[match.group(1)] = str(path.relative_to(include_dir))
    return found


def clashing_aliases(
    headers: list[str], include_dir: pathlib.Path | None = None
) -> dict[str, list[str]]:
    """Per header, the type aliases that another of these headers gives another meaning.

    layer_norm.h and group_norm.h, say, both have a `forward_fn` in at::native: to include both in
    one file, these names must be renamed around the includes (only their header uses them).
    """
    include_dir = include_dir or torch_include_dir()
    meanings: dict[str, dict[str, str]] = {}
    for header in headers:
        for name, meaning in _ALIAS.findall((include_dir / header).read_text(errors="replace")):
            meanings.setdefault(name, {})[header] = "".join(meaning.split())
    clashing = {name: by for name, by in meanings.items() if len(set(by.values())) > 1}
    return {header: sorted(n for n, by in clashing.items() if header in by) for header in headers}


@dataclass(frozen=True)
class Binding:
    """One stub and what runs behind it."""

    stub: str
    header: str
    kind: str  # "pointwise" or "kernel"
    target: str  # functor, or function of ocl::native


@dataclass(frozen=True)
class PointwiseOp:
    """One functor as the engine's Op: its flags are those of all entries that name it."""

    functor: str
    flags: tuple[str, ...]
    scalars: int | None


def bind(entries: list[Entry], declared: dict[str, str]) -> list[Binding]:
    """The bindings of the table, sorted by stub.

    Throws TableError for a stub that torch does not declare and for two bindings of one stub.
    """
    problems = Problems()
    bindings: dict[str, tuple[Binding, Entry]] = {}
    for entry in entries:
        for stub, target in entry.stubs:
            if stub not in declared:
                problems.add(entry.where, f"{entry.name}: no header of this torch declares {stub}")
                continue
            binding = Binding(stub, declared[stub], entry.kind, target)
            earlier, owner = bindings.setdefault(stub, (binding, entry))
            if earlier != binding:
                problems.add(
                    entry.where,
                    f"{entry.name}: {stub} is bound to {earlier.target} at {owner.where}, "
                    f"not to {target}",
                )
    problems.raise_if_any()
    return [bindings[stub][0] for stub in sorted(bindings)]


def pointwise_ops(entries: list[Entry], functors: dict[str, Functor]) -> list[PointwiseOp]:
    """Every functor of the table, sorted by name.

    Throws TableError for a functor without a macro, for a flag that the engine doesn't have and for
    entries that disagree on its scalars.
    """
    problems = Problems()
    known = known_flags()
    flags: dict[str, set[str]] = {}
    scalars: dict[str, tuple[int, Entry]] = {}
    missing = set()
    for entry in entries:
        for flag in entry.flags:
            if flag not in known:
                problems.add(
                    entry.where,
                    f"{entry.name}: csrc/engine/pointwise/pointwise.h has no flag {flag}",
                )
        for _, name in entry.stubs if entry.kind == "pointwise" else ():
            if name not in functors:
                if name not in missing:
                    problems.add(
                        entry.where,
                        f"{entry.name}: functor {name} is missing, define op_{name}(...) in "
                        "kernels/pointwise/ops/*.clh",
                    )
                missing.add(name)
                continue
            flags.setdefault(name, set(functors[name].flags)).update(entry.flags)
            if entry.scalars is not None:
                count, owner = scalars.setdefault(name, (entry.scalars, entry))
                if count != entry.scalars:
                    problems.add(
                        entry.where, f"{entry.name}: {owner.where} gives {name} {count} scalars"
                    )
    problems.raise_if_any()
    return [
        PointwiseOp(name, tuple(sorted(flags[name])), scalars[name][0] if name in scalars else None)
        for name in sorted(flags)
    ]
