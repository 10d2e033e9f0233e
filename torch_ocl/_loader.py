"""Finds what pip installed of OpenCL: ICD loaders and Intel's CPU runtime.

The `.icd` file in Intel's wheel names a path that does not exist, so its library is handed to the
loader by name. Everything the system installed is found by the loader itself.
"""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

_INTEL_RUNTIME = "libintelocl.so"


def _existing(paths: Iterable[Path]) -> list[str]:
    """The paths that exist, each once, in order."""
    return list(dict.fromkeys(str(path) for path in paths if path.exists()))


def _library_folders() -> list[Path]:
    """The `lib` folders that wheels with native libraries install into: of this interpreter, and of
    the environments that torch_ocl and torch lie in (lib/pythonX.Y/site-packages/<package>)."""
    folders = [Path(sys.prefix) / "lib"]
    for package in ("torch_ocl", "torch"):
        module = sys.modules.get(package)
        location = getattr(module, "__file__", None)
        if location:
            site_packages = Path(location).resolve().parent.parent
            folders.append(site_packages.parent.parent)
    return list(dict.fromkeys(folders))


def find_loaders() -> list[str]:
    """ICD loaders (libOpenCL.so.1) from pip, best first; the system's is tried after these."""
    try:
        spec = importlib.util.find_spec("nvidia")  # a namespace package, shared by many wheels
    except (ImportError, ValueError):
        spec = None
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    found = [path for root in roots for path in sorted(root.glob("*/lib/libOpenCL.so.1"))]
    found += [folder / "libOpenCL.so.1" for folder in _library_folders()]
    return _existing(found)


def find_icd_files() -> list[str]:
    """Drivers from pip, which no loader finds by itself."""
    found = _existing(folder / _INTEL_RUNTIME for folder in _library_folders())
    if found:
        return found
    try:
        files = importlib.metadata.files("intel-opencl-rt") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return _existing(Path(str(f.locate())).resolve() for f in files if f.name == _INTEL_RUNTIME)
