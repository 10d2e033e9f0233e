"""Changes to libraries above PyTorch, made when a program imports them.

A module here has PATCHES: names of the library's modules, each with the function that is called
with the module once it is loaded. What is never imported costs nothing.
"""

import importlib
import importlib.abc
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

#: The names that programs import, each with the module here that serves it.
LIBRARIES = {"torchvision": "torchvision"}


def install() -> None:
    """Serves the libraries that are imported already, and the others when they will be."""
    if _Finder in sys.meta_path:
        return
    sys.meta_path.insert(0, _Finder)
    for library in LIBRARIES:
        if library in sys.modules:
            for name, patch in _patches(library).items():
                if name in sys.modules:
                    patch(sys.modules[name])


def _patches(library: str) -> dict[str, Callable[[ModuleType], None]]:
    return importlib.import_module(f"{__name__}.{LIBRARIES[library]}").PATCHES


class _Finder:
    """Finds no module itself, but gives those that are waited for a loader that tells."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        library = name.partition(".")[0]
        patch = _patches(library).get(name) if library in LIBRARIES else None
        if patch is None:
            return None
        for finder in tuple(sys.meta_path):
            spec = None if finder is _Finder else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, patch)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads as another loader does, and calls the patch then."""

    def __init__(self, loader: importlib.abc.Loader, patch: Callable[[ModuleType], None]) -> None:
        self.loader = loader
        self.patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.patch(module)
