"""Finds what an ICD loader would not find by itself: loaders and Intel's CPU runtime from pip, and
drivers that lie on the machine without an `.icd` file.

The `.icd` file in Intel's wheel names a path that does not exist, so its library is handed to the
loader by name. A container that was given an NVIDIA GPU has the driver's library, but mostly no
`.icd` file.
"""

import contextlib
import glob
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

_INTEL_RUNTIME = "libintelocl.so"
_VENDORS = "/etc/OpenCL/vendors"

#: Drivers by the names under which they are installed. What has no folder is for dlopen to find.
_WELL_KNOWN = (
    "libnvidia-opencl.so.1",
    "libamdocl64.so",
    "/opt/rocm*/lib/libamdocl64.so",
    "libigdrcl.so",
    "/usr/lib/*/intel-opencl/libigdrcl.so",
    "libRusticlOpenCL.so.1",
    "libpocl.so.2",
    "libmali.so.1",
)


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


def find_drivers() -> list[str]:
    """Drivers that no loader finds by itself: paths, and names for dlopen."""
    return find_icd_files() + find_unlisted_drivers()


def find_unlisted_drivers(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Drivers of this machine and of its conda environment that have no `.icd` file where loaders
    look. None if the user has said by OCL_ICD_VENDORS or OCL_ICD_FILENAMES which ones to take."""
    if environment.get("OCL_ICD_VENDORS") or environment.get("OCL_ICD_FILENAMES"):
        return []
    found = []
    if conda := environment.get("CONDA_PREFIX"):
        found += _listed_in(os.path.join(conda, "etc", "OpenCL", "vendors"))
    listed = {_stem(driver) for driver in (*found, *_listed_in(_VENDORS))}
    for name in _WELL_KNOWN:
        if _stem(name) not in listed:
            found += sorted(glob.glob(name)) if name.startswith("/") else [name]
    return found


def _listed_in(folder: str) -> list[str]:
    """The drivers that a folder's `.icd` files name."""
    drivers = []
    for path in sorted(glob.glob(os.path.join(folder, "*.icd"))):
        # A pipe would wait for its writer.
        with contextlib.suppress(OSError):
            text = Path(path).read_text(errors="replace").strip() if os.path.isfile(path) else ""
            if text:
                drivers.append(text.splitlines()[0])
    return drivers


def _stem(driver: str) -> str:
    """libpocl of /usr/lib/libpocl.so.2.10.0."""
    return os.path.basename(driver).split(".so")[0]


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
