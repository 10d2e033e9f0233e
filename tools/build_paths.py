"""Prints what CMakeLists.txt needs to know of this Python environment, as one CMake list:
torch's folder, its version, the folder of CL/cl.h, the suffix of extension modules, the folders of
Python.h. Exits with a message that says what to install if one is missing.

With --missing it prints the headers that are missing instead (for tools/fetch_headers.sh).
"""

import importlib.util
import os
import platform
import sys
import sysconfig

# The package itself can't be imported yet.
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(ROOT, "torch_ocl", "utils"))

from opencl_headers import FETCHED, opencl_include  # noqa: E402


def torch_root() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        sys.exit(
            "PyTorch is not installed in this environment. Install it first (for instance with "
            "`pip install torch --index-url https://download.pytorch.org/whl/cpu`), then build "
            "with `pip install --no-build-isolation`."
        )
    return spec.submodule_search_locations[0]


def torch_version(root: str) -> str:
    scope: dict = {}
    with open(os.path.join(root, "version.py"), encoding="utf-8") as file:
        exec(file.read(), scope)  # importing torch takes seconds and would load this package itself
    return scope["__version__"]


def python_includes() -> list[str]:
    system = sysconfig.get_path("include")
    if os.path.exists(os.path.join(system, "Python.h")):
        return [system]
    fetched = os.path.join(FETCHED, f"python{sys.version_info.major}.{sys.version_info.minor}")
    if os.path.exists(os.path.join(fetched, "Python.h")):
        return [fetched, FETCHED]  # Debian's pyconfig.h includes another one from there
    return []


def main() -> None:
    python, opencl = python_includes(), opencl_include()
    missing = ([] if python else ["Python.h"]) + ([] if opencl else ["CL/cl.h"])
    if "--missing" in sys.argv:
        print(" ".join(missing))
        return
    if missing:
        sys.exit(
            f"Missing: {', '.join(missing)}. On Debian and Ubuntu Python.h is in python3-dev and "
            "CL/cl.h in opencl-c-headers; on x86-64 `pip install nvidia-cuda-opencl` has that too."
        )
    root = torch_root()
    # A cross build says its machine by _PYTHON_HOST_PLATFORM, which sysconfig follows.
    machine = sysconfig.get_platform().rpartition("-")[2]
    suffix = sysconfig.get_config_var("EXT_SUFFIX").replace(platform.machine(), machine)
    print(";".join([root, torch_version(root), str(opencl), suffix, *python]))


if __name__ == "__main__":
    main()
