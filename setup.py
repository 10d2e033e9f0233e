"""Packaging of torch_ocl; CMakeLists.txt does the work, this file only drives it for pip.

    pip install --no-build-isolation -e .          # or
    pip wheel --no-build-isolation --no-deps .

Build isolation would fetch another torch (several GB) and build against that one.
MAX_JOBS limits the compiler's parallel jobs, CMAKE_ARGS adds arguments of your own.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
# Files that CMake installs beside _C; an editable install needs these in the source tree too.
COMPANIONS = (
    "libtorch_ocl.so",
    "_built_for.py",
    "device_count",
    "build_worker",
    "ops_manifest.json",
)
# And the folders: what extensions are built with.
COMPANION_FOLDERS = ("include", "share")


def settings() -> dict[str, str | list[str]]:
    """Version and dependencies as pyproject.toml has them, in its section [tool.torch_ocl]."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("\n[tool.torch_ocl]\n")[2].partition("\n[")[0]
    version = re.search(r'^version = "(.+)"$', section, re.MULTILINE)
    dependencies = re.findall(r'^  "(.+)",$', section, re.MULTILINE)
    return {"version": version[1], "install_requires": dependencies}


def metadata() -> dict[str, str | list[str]]:
    """The settings, for the torch that is installed: a library works with one minor version of it.

    The version then says which. That of a source distribution doesn't, nor what is built from it:
    pip expects the version that the archive is named by.
    """
    found = settings()
    spec = importlib.util.find_spec("torch")
    if "sdist" in sys.argv or spec is None or not spec.submodule_search_locations:
        return found
    version = Path(spec.submodule_search_locations[0], "version.py").read_text(encoding="utf-8")
    series = re.search(r"^__version__ = '(\d+\.\d+)", version, re.MULTILINE)[1]
    found["install_requires"][0] = f"torch=={series}.*"
    if not (ROOT / "PKG-INFO").exists():
        found["version"] += f"+torch{series}"
    return found


def tool(name: str) -> str:
    """cmake and ninja of this environment if it has them, whether or not it is activated."""
    local = Path(sys.executable).parent / name
    found = str(local) if local.exists() else shutil.which(name)
    if found is None:
        sys.exit(f"{name} is missing: pip install -r requirements/build.txt")
    return found


def check_environment() -> None:
    """Says what is missing before CMake, which doesn't know that pip has put it out of sight."""
    if importlib.util.find_spec("torch") is not None:
        return
    isolated = any("pip-build-env-" in folder for folder in sys.path)
    sys.exit(
        "torch_ocl is built against the torch that it will run with, and there is none "
        + ("in the environment that pip makes for a build. " if isolated else "here. ")
        + "Install torch (for instance pip install torch --index-url "
        "https://download.pytorch.org/whl/cpu) and what building needs (pip install -r "
        "requirements/build.txt), and build in that environment: "
        "pip install --no-build-isolation ."
    )


class BuildPy(build_py):
    def run(self):
        # setuptools packs whatever it finds there: leftovers of a renamed module, too.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildExtension(build_ext):
    def run(self):
        check_environment()
        self.in_source = self.editable_mode or self.inplace  # run() resets inplace for a while
        super().run()

    def build_extension(self, ext):
        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 2)
        cmake = tool("cmake")
        subprocess.check_call(
            [cmake, "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja"]
            + [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-DPython_EXECUTABLE={sys.executable}"]
            + [f"-DTORCH_OCL_EDITABLE={'ON' if self.in_source else 'OFF'}"]
            + [f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}"]
            + shlex.split(os.environ.get("CMAKE_ARGS", ""))
        )
        subprocess.check_call([cmake, "--build", str(BUILD), "-j", jobs])
        install = [cmake, "--install", str(BUILD), "--prefix", str(package.parent)]
        # A wheel needs no symbols but those that are linked to.
        install += [] if self.in_source or self.debug else ["--strip"]
        subprocess.check_call(install, stdout=subprocess.DEVNULL)

    def copy_extensions_to_source(self):
        super().copy_extensions_to_source()
        for name in (*COMPANIONS, Path(self.get_ext_filename("_distributed")).name):
            self.copy_file(
                str(Path(self.build_lib, "torch_ocl", name)), str(ROOT / "torch_ocl" / name)
            )
        for name in COMPANION_FOLDERS:
            shutil.copytree(
                Path(self.build_lib, "torch_ocl", name),
                ROOT / "torch_ocl" / name,
                dirs_exist_ok=True,
            )


setup(
    **metadata(),
    ext_modules=[Extension("torch_ocl._C", sources=[])],
    cmdclass={"build_py": BuildPy, "build_ext": BuildExtension},
)
