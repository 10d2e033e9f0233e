"""Libraries in C that stand in for OpenCL's loader in tests: where its headers are, and how one is
built."""

import pathlib
import shutil
import subprocess
import sys

from torch_ocl import _loader


def headers():
    """The folder of CL/cl.h: from pip, else the system's."""
    for folder in map(pathlib.Path, sys.path):
        for found in folder.glob("nvidia/*/include/CL/cl.h"):
            return found.parents[1]
    return pathlib.Path("/usr/include")


def build(sources, library, *options):
    """Builds a library of such sources.

    Args:
        sources: The files in C or C++.
        library: The path of what is built.
        *options: The compiler's and the linker's, behind the sources.

    Returns:
        The library's path.

    Raises:
        RuntimeError: There is no compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed")
    command = [compiler, "-shared", "-fPIC", "-I", headers(), *sources, *options, "-o", library]
    subprocess.run(command, check=True)
    return library


def build_loader(source, library, *others, real=None):
    """Builds a loader that changes what another does.

    Args:
        source: The file in C or C++.
        library: The path of what is built.
        *others: More options, as build()'s.
        real: The other; the one that the package would take, if it is None.

    Returns:
        The library's path.
    """
    real = real or next(iter(_loader.find_loaders()), "-l:libOpenCL.so.1")
    options = ["-Wl,--no-as-needed", "-Wl,--disable-new-dtags", real]
    options += [f"-Wl,-rpath,{pathlib.Path(real).parent}"] if "/" in real else []
    return str(build([source], library, *others, *options, "-ldl"))
