"""Builds and runs the C++ test of floor 1, which knows no torch."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests import build_folder

ROOT = pathlib.Path(__file__).resolve().parents[2]


def opencl_headers():
    for folder in map(pathlib.Path, sys.path):
        for found in folder.glob("nvidia/*/include/CL/cl.h"):
            return found.parents[1]
    return pathlib.Path("/usr/include")


def build_with_cmake():
    """Links what is built already; None where the package was not built in this folder."""
    cmake = pathlib.Path(sys.executable).with_name("cmake")
    build = ROOT / "build"
    if not cmake.exists() or not (build / "CMakeCache.txt").exists():
        return None
    with build_folder.alone():
        subprocess.run([cmake, "--build", build, "--target", "floor1_test"], check=True)
    return build / "floor1_test"


def build_alone(folder):
    embedded, program = folder / "embedded_kernels.cpp", folder / "floor1_test"
    embed = [sys.executable, ROOT / "torch_ocl" / "utils" / "embed_kernels.py"]
    subprocess.run([*embed, "--root", ROOT / "kernels", "--out", embedded], check=True)
    folders = (ROOT / "tests" / "opencl" / "floor1", ROOT / "csrc" / "opencl")
    sources = [path for folder in folders for path in sorted(folder.glob("*.cpp"))]
    includes = ["-I", ROOT / "csrc", "-I", opencl_headers()]
    options = ["-std=c++20", "-O1", "-pthread", *includes, "-o", program]
    subprocess.run(["g++", *options, *sources, embedded, "-ldl"], check=True)
    return program


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None or not (ROOT / "csrc").exists(),
    reason="an installed wheel is tested without its sources",
)
def test_floor1(tmp_path):
    program = build_with_cmake() or build_alone(tmp_path)
    done = subprocess.run(
        [str(program)], capture_output=True, text=True, timeout=600, env=environment()
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "PASS" in done.stdout


def environment():
    """The loader and drivers that the Python package would name."""
    from torch_ocl import _loader

    variables = dict(os.environ)
    variables.pop("TORCH_OCL_DEVICES", None)  # it goes through all devices, and tests the selection
    loaders, icds = _loader.find_loaders(), _loader.find_icd_files()
    if loaders:
        variables["TORCH_OCL_LOADER"] = loaders[0]
    if icds:
        variables["OCL_ICD_FILENAMES"] = ":".join(icds)
    return variables
