"""The driver of devices that aren't there (driver.c, programs.c), for a process."""

import os
import pathlib

from tests import c_library

SOURCES = [pathlib.Path(__file__).with_name(name) for name in ("driver.c", "programs.c")]
HEADER = SOURCES[0].with_suffix(".h")


def build(folder):
    """The driver's library in a folder, built if a source is newer."""
    library = folder / "libsilicon.so"
    newest = max(path.stat().st_mtime for path in (*SOURCES, HEADER))
    if library.exists() and library.stat().st_mtime > newest:
        return library
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-O1", "-Wall", "-fvisibility=hidden", "-lpthread"]
    return c_library.build(SOURCES, library, *options)


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
