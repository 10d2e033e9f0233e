"""Builds and runs the C++ test of floor 1, which knows no torch."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def opencl_headers():
    for folder in map(pathlib.Path, sys.path):
        for found in folder.glob("nvidia/*/include/CL/cl.h"):
            return found.parents[1]
    return pathlib.Path("/usr/include")


@pytest.mark.skipif(
    shutil.which("g++") is None or not (ROOT / "csrc").exists(),
    reason="an installed wheel is tested without its sources",
)
def test_floor1(tmp_path):
    embedded = tmp_path / "embedded_kernels.cpp"
    subprocess.run(
        [
            sys.executable,
            ROOT / "codegen" / "embed_kernels.py",
            "--root",
            ROOT / "kernels",
            "--out",
            embedded,
        ],
        check=True,
    )
    program = tmp_path / "floor1_test"
    folders = (ROOT / "tests" / "opencl" / "floor1", ROOT / "csrc" / "opencl")
    sources = [str(path) for folder in folders for path in sorted(folder.glob("*.cpp"))]
    subprocess.run(
        [
            "g++",
            "-std=c++20",
            "-O1",
            "-pthread",
            "-I",
            str(ROOT / "csrc"),
            "-I",
            str(opencl_headers()),
        ]
        + [*sources, str(embedded), "-ldl"]
        + ["-o", str(program)],
        check=True,
    )
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
