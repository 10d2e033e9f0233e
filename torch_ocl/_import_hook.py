"""Runs a function once a module has been loaded: before anybody else sees the module.

A finder, the first of sys.meta_path, finds no module itself. It asks the others, and marks the spec
of a module that somebody waits for. Loaders, metadata and the module stay as they are: importlib
says by the spec's `_initializing` when a module is loaded, and the mark hears it. Modules
that are halfway loaded when `import torch` comes are marked, too: a library mostly imports torch.

Some modules choose their device while they are loaded. Their functions are changed as the module
defines them, so that its own calls reach the changed ones.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from torch_ocl import _environment

Patch = Callable[[ModuleType], None]
#: Takes a function as upstream defines it, and the names of its module.
Definition = Callable[[Callable[..., Any], dict[str, Any]], Callable[..., Any]]

#: Functions to call before a module is loaded, and once it is, by its name.
_prepared: dict[str, Callable[[], None]] = {}
_waiting: dict[str, list[Patch]] = {}
_definitions: dict[str, dict[str, Definition]] = {}
_told: set[str] = set()
#: Whether the module was there first, so that names of its functions may have been copied.
_is_late = False


class Absent(Exception):
    """Upstream's code isn't what a patch expects."""


class _AwaitedSpec(ModuleSpec):
    """A spec's class until its module is loaded."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_initializing" and value and self.name in _definitions:
            _define(self.loader, _definitions.pop(self.name))
        if name == "_initializing" and not value:
            self.__class__ = ModuleSpec
            module = sys.modules.get(self.name)
            # It is gone if it could not be loaded.
            if module is not None and getattr(module, "__spec__", None) is self:
                for patch in _waiting.pop(self.name, ()):
                    _apply(patch, self.name, module)


class Finder:
    """For sys.meta_path."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders find, marked; None for modules that nobody waits for."""
        if prepare := _prepared.pop(name, None):
            prepare()
        if name not in _waiting and name not in _definitions:
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


def before(name: str, prepare: Callable[[], None]) -> None:
    """Calls a function when a module is about to be imported: at once if it is there."""
    if name in sys.modules:
        prepare()
    else:
        _prepared[name] = prepare
        _install()


def after(name: str, patch: Patch) -> None:
    """Calls a function with a module once it is loaded: at once if it is already."""
    module = sys.modules.get(name)
    if module is None or getattr(module.__spec__, "_initializing", False):
        _waiting.setdefault(name, []).append(patch)
        _install()
        if module is not None:
            _await(module.__spec__)
        return
    global _is_late
    was_late, _is_late = _is_late, True
    try:
        _apply(patch, name, module)
    finally:
        _is_late = was_late


def define(name: str, definitions: dict[str, Definition]) -> None:
    """Has a module that isn't loaded yet define changed functions."""
    if name not in sys.modules:
        _definitions[name] = definitions
        _install()


def _install() -> None:
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)


def is_late() -> bool:
    """Whether the patch being made is of a module that was imported before torch_ocl."""
    return _is_late


def _await(spec: ModuleSpec) -> None:
    # A finder's own class of specs can't be marked.
    if type(spec) is ModuleSpec:
        spec.__class__ = _AwaitedSpec
    elif type(spec) is not _AwaitedSpec:
        tell(f"{spec.name}: left as it is: its spec is a {type(spec).__name__}")


def _apply(patch: Patch, name: str, module: ModuleType) -> None:
    # A fault of ours must not keep a program from importing the module.
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
