"""Knowledge of the installed torch: its native functions, what CPU registers, its DispatchStubs."""

from __future__ import annotations

import functools
import importlib.metadata
import pathlib
from dataclasses import dataclass

import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import (
    BackendMetadata,
    DispatchKey,
    NativeFunction,
    NativeFunctionsGroup,
)

from codegen.errors import Problems
from codegen.optable import Entry

UPSTREAM = "at::native"
OURS = "ocl::native"


def torch_version() -> tuple[int, int]:
    """(major, minor) of the torch that is installed; torch itself is not imported."""
    major, minor, *_ = importlib.metadata.version("torch").split(".")
    return int(major), int(minor)


class Aten:
    """native_functions.yaml of the installed torch, as torchgen parses it."""

    def __init__(self):
        packaged = pathlib.Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
        parsed = parse_native_yaml(
            str(packaged / "native_functions.yaml"), str(packaged / "tags.yaml")
        )
        self.cpu = parsed.backend_indices[DispatchKey.CPU].index
        self.composite = parsed.backend_indices[DispatchKey.CompositeExplicitAutograd].index
        #: Functions that CPU and CUDA register for sparse layouts, by dispatch key.
        self.sparse = {
            key: index for key, index in parsed.backend_indices.items() if "Sparse" in key.name
        }
        self.functions = {str(f.func.name): f for f in parsed.native_functions}
        self.structured: dict[str, NativeFunctionsGroup] = {}  # by any member's name
        for group in get_grouped_native_functions(parsed.native_functions):
            if isinstance(group, NativeFunctionsGroup) and group.structured:
                for function in group.functions():
                    self.structured[str(function.func.name)] = group

    @staticmethod
    @functools.cache
    def installed() -> Aten:
        """The parsed yaml, read once per process (it takes seconds)."""
        return Aten()


@dataclass(frozen=True)
class Registered:
    """An entry with the ATen functions it registers and the kernel behind them."""

    entry: Entry
    target: NativeFunctionsGroup | NativeFunction
    kernel: BackendMetadata | None  # None: composite, only stubs are bound

    @property
    def functions(self) -> list[NativeFunction]:
        """The functions registered: functional, inplace and out of a structured group, or one."""
        if isinstance(self.target, NativeFunctionsGroup):
            return list(self.target.functions())
        return [self.target]

    @property
    def primary(self) -> NativeFunction:
        """The function whose BackendIndex entry torchgen looks up."""
        return self.target.out if isinstance(self.target, NativeFunctionsGroup) else self.target

    @property
    def root(self) -> str:
        """The name of the function's headers in ATen/ops."""
        return self.primary.root_name

    @property
    def cpp_name(self) -> str:
        """The kernel's qualified C++ name, for messages and the manifest."""
        if self.kernel is None:
            return ""
        prefix = "structured_" if self.kernel.structured else ""
        return f"{self.kernel.cpp_namespace}::{prefix}{self.kernel.kernel}"


def own_kernel_name(name: str, structured: bool) -> str:
    """The C++ name of an `impl: ours` kernel: the base name, then `_` and the overload in lower
    case; a structured group is named after its functional overload, with `_out`.

    fill_.Scalar -> fill__scalar, nonzero -> nonzero, mm -> mm_out, max.dim -> max_dim_out.
    """
    base, _, overload = name.partition(".")
    words = [base] + ([overload.lower()] if overload else []) + (["out"] if structured else [])
    return "_".join(words)


def resolve(entries: list[Entry], aten: Aten) -> list[Registered]:
    """Finds each entry's functions; throws TableError for names this torch does not know."""
    problems = Problems()
    resolved = []
    for entry in entries:
        function = aten.functions.get(entry.name)
        if function is None:
            problems.add(entry.where, f"{entry.name} is not in this torch's native_functions.yaml")
            continue
        group = aten.structured.get(entry.name)
        if group is not None and str(group.functional.func.name) != entry.name:
            problems.add(
                entry.where,
                f"{entry.name} is of a structured group: name it {group.functional.func.name}",
            )
            continue
        target = group or function
        primary = group.out if group else function
        cpu = aten.cpu.get(primary.func.name)
        if entry.composite:
            if cpu is not None or not function.has_composite_kernel:
                problems.add(entry.where, f"{entry.name} is not composite, it must be registered")
                continue
            resolved.append(Registered(entry, target, None))
            continue
        kernel = _kernel_of(entry, group is not None, cpu, function, problems)
        if kernel is not None:
            resolved.append(Registered(entry, target, kernel))
    problems.raise_if_any()
    return resolved


def _kernel_of(
    entry: Entry,
    structured: bool,
    cpu: BackendMetadata | None,
    function: NativeFunction,
    problems: Problems,
) -> BackendMetadata | None:
    if entry.kind == "impl":
        return BackendMetadata(own_kernel_name(entry.name, structured), structured, OURS)
    if entry.native is not None:
        return BackendMetadata(entry.native, structured, UPSTREAM)
    if cpu is None:
        hint = (
            "upstream's composite serves every device; to bind only its stubs say composite: true"
            if function.has_composite_kernel
            else "CPU registers no kernel for it, so only impl: ours can"
        )
        problems.add(entry.where, f"{entry.name} can't be {entry.kind}: {hint}")
        return None
    return BackendMetadata(cpu.kernel, cpu.structured, UPSTREAM)
