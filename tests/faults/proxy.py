"""The loader whose calls fail (proxy.cpp): how it is built, and its plan, counts and objects from
within a process that has it."""

import ctypes
import os
import pathlib

from tests import c_library
from torch_ocl import _loader

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE / "proxy.cpp"
CSRC = HERE.parents[1] / "csrc"
SOURCES = (SOURCE, HERE / "plan.h", CSRC / "opencl" / "api.h")


def build(folder):
    """The library in a folder, built where a source is newer."""
    library = pathlib.Path(folder) / "libfaults.so"
    newest = max(path.stat().st_mtime for path in SOURCES)
    if library.exists() and library.stat().st_mtime > newest:
        return str(library)
    library.parent.mkdir(parents=True, exist_ok=True)
    options = ["-std=c++20", "-O1", "-Wall", "-fvisibility=hidden", "-I", CSRC, "-lstdc++"]
    real = next(iter(_loader.find_loaders()), None)
    # ocl-icd, which is the system's loader mostly, does not read that variable.
    if real is not None and b"OCL_ICD_FILENAMES" in pathlib.Path(real).read_bytes():
        options.append("-DFAULTS_READS_ICD_FILENAMES")
    # Another process may have it open.
    made = library.with_suffix(f".{os.getpid()}")
    c_library.build_loader(SOURCE, made, *options)
    made.rename(library)
    return str(library)


class Proxy:
    """The loader of this process."""

    def __init__(self):
        self._library = ctypes.CDLL(os.environ["TORCH_OCL_LOADER"])
        for name in ("calls", "objects", "wrong"):
            getattr(self._library, f"faults_{name}").restype = ctypes.c_char_p
        self._library.faults_struck.restype = ctypes.c_uint64

    def plan(self, text=""):
        """Sets the faults to come, a line each. Calls are counted from 0 again."""
        self._library.faults_plan(text.encode())

    def struck(self):
        """How many faults have struck since plan()."""
        return self._library.faults_struck()

    def _lines(self, name):
        return getattr(self._library, f"faults_{name}")().decode().splitlines()

    def calls(self):
        """Names with the number of calls since plan(), and what was asked."""
        return {
            name: (int(count), [int(what) for what in asked])
            for name, count, *asked in map(str.split, self._lines("calls"))
        }

    def objects(self):
        """The objects that the program holds, by handle: kind, references and maker."""
        lines = (line.split(maxsplit=3) for line in self._lines("objects"))
        return {handle: (kind, int(references), by) for handle, kind, references, by in lines}

    def wrong(self):
        """The uses that no program may make, as releasing more than it holds."""
        return self._lines("wrong")
