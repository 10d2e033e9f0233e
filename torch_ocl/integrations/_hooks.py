"""Runs a function once a module has been loaded: before anybody else sees the module.

A finder, the first of sys.meta_path, finds no module itself. It asks the others, and marks the spec
of a module that somebody waits for. Loaders, metadata and the module stay as they are: importlib
says by the spec's `_initializing` when a module is loaded, and the mark hears it. The same serves
the modules that are halfway loaded when `import torch` comes, since a library mostly imports torch.

Some modules choose their device while they are loaded. Their functions are changed as the module
defines them, so that its own calls reach the changed ones.
"""

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from torch_ocl import _environment
from torch_ocl.integrations import _choice

Patch = Callable[[ModuleType], None]
#: Takes a function as upstream defines it, and the names of its module.
Definition = Callable[[Callable[..., Any], dict[str, Any]], Callable[..., Any]]

#: The libraries whose patches are known, and the patches not made yet by module.
_expected: set[str] = set()
_waiting: dict[str, Patch] = {}
_definitions: dict[str, dict[str, Definition]] = {}
_told: set[str] = set()
#: Whether the library was there first, so that names of its functions may have been copied.
_is_late = False


class Absent(Exception):
    """Upstream's code isn't what a patch expects."""


class _AwaitedSpec(ModuleSpec):
    """What a spec is until its module is loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_initializing" and value and self.name in _definitions:
            _define(self.loader, _definitions.pop(self.name))
        if name == "_initializing" and not value:
            self.__class__ = ModuleSpec
            module = sys.modules.get(self.name)
            # It is gone if it could not be loaded.
            if module is not None and getattr(module, "__spec__", None) is self:
                _apply(self.name, module)


class Finder:
    """For sys.meta_path."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders find, marked; None for modules that nobody waits for."""
        from torch_ocl.integrations import LIBRARIES

        if name in LIBRARIES:
            expect(name)
        if name not in _waiting:
            return None
        for finder in tuple(sys.meta_path):
            find = None if finder is Finder else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                _await(spec)
                return spec
        return None


class _Names:
    """The local names of a module that is being executed: the module's own, but for some functions
    that are changed once they are defined."""

    def __init__(self, names: dict[str, Any], definitions: dict[str, Definition]) -> None:
        self._names, self._definitions = names, definitions

    def __getitem__(self, name: str) -> Any:
        return self._names[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self._definitions:
            value = functools.wraps(value)(self._definitions[name](value, self._names))
        self._names[name] = value

    def __delitem__(self, name: str) -> None:
        del self._names[name]


def _define(loader: Any, definitions: dict[str, Definition]) -> None:
    """Has a loader execute its next module with changed functions."""
    upstream = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        code = loader.get_code(module.__name__)
        functions = {part.co_name for part in code.co_consts if isinstance(part, CodeType)}
        missing = sorted(set(definitions) - functions)
        if missing:
            tell(f"{module.__name__}: left as it is: it has no {', '.join(missing)}")
            return upstream(module)
        return exec(code, module.__dict__, _Names(module.__dict__, definitions))

    loader.exec_module = exec_module


def expect(library: str) -> None:
    """Waits for the modules of a library that are to be changed. Those of another name that the
    same integration serves come with it. With TORCH_OCL_INTEGRATIONS=off only kernels are added."""
    from torch_ocl.integrations import KERNELS, LIBRARIES

    if library in _expected or _choice.mode() == "off" and library not in KERNELS:
        return
    _expected.add(library)
    # A fault of ours must not keep a program from importing the library.
    try:
        integration = importlib.import_module(f"torch_ocl.integrations.{LIBRARIES[library]}")
    except Exception as error:
        tell(f"{library}: left as it is: {error}")
        return
    for name, patch in integration.PATCHES.items():
        if name == library or name.startswith(library + "."):
            _waiting[name] = patch
    _definitions.update(getattr(integration, "DEFINITIONS", {}))


def catch_up(library: str) -> None:
    """Changes what is loaded of a library, and what is being loaded once it is."""
    global _is_late
    for name in [n for n in _waiting if n == library or n.startswith(library + ".")]:
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None)
        if module is None:
            continue
        if getattr(spec, "_initializing", False):
            _await(spec)
            continue
        _is_late = True
        try:
            _apply(name, module)
        finally:
            _is_late = False


def is_late() -> bool:
    """Whether the patch being made is of a library that was imported before torch_ocl."""
    return _is_late


def _await(spec: ModuleSpec) -> None:
    # A finder's own class of specs can't be marked.
    if type(spec) is ModuleSpec:
        spec.__class__ = _AwaitedSpec
    elif type(spec) is not _AwaitedSpec:
        tell(f"{spec.name}: left as it is: its spec is a {type(spec).__name__}")


def _apply(name: str, module: ModuleType) -> None:
    patch = _waiting.pop(name, None)
    if patch is None:
        return
    try:
        patch(module)
    except Exception as error:
        tell(f"{name}: left as it is: {error}")


def tell(line: str) -> None:
    """A line on stderr, once, if TORCH_OCL_VERBOSE asks for this topic."""
    if _environment.is_verbose("integrations") and line not in _told:
        _told.add(line)
        with contextlib.suppress(OSError, ValueError):
            print(f"torch_ocl: integrations: {line}", file=sys.stderr, flush=True)
