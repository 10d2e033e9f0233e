"""The driver of devices that aren't there (driver.c): built, and set up for a process."""

import os
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).with_name("driver.c")


def headers():
    """The folder of CL/cl.h: from pip, else the system's."""
    for folder in map(pathlib.Path, sys.path):
        for found in folder.glob("nvidia/*/include/CL/cl.h"):
            return found.parents[1]
    return pathlib.Path("/usr/include")


def build(folder):
    """The driver's library in a folder, built if the source is newer."""
    library = folder / "libsilicon.so"
    if library.exists() and library.stat().st_mtime > SOURCE.stat().st_mtime:
        return library
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed")
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-O1", "-Wall", "-shared", "-fPIC", "-fvisibility=hidden", "-I", headers()]
    subprocess.run([compiler, *options, SOURCE, "-lpthread", "-o", library], check=True)
    return library


def environment(profile, folder, captured):
    """The variables of a process whose device is the profile's, and whose programs are captured."""
    answers = folder / f"{profile.name}.answers"
    answers.write_text(profile.answers())
    captured.mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if "TORCH_OCL" not in name}
    # Nothing runs, so nothing can show that its instructions for matrix products are right.
    believed = {"TORCH_OCL_AMD_TARGET": profile.target} if profile.compiler == "amd" else {}
    return {
        **inherited,
        **believed,
        "TORCH_OCL_LOADER": str(build(folder)),
        "TORCH_OCL_CACHE": "0",
        "TORCH_OCL_FIRST_USE_CHECK": "0",
        "TORCH_OCL_NOTICES": "0",
        "TORCH_OCL_TUNE_AS": "gpu",  # samples ask
        "SILICON_ANSWERS": str(answers),
        "SILICON_CAPTURED": str(captured),
    }
