"""Commands that packages install, as torchrun, run in this process: `python -m torch_ocl run`."""

import importlib.metadata
import os
import runpy
import shutil
import sys
import sysconfig
from collections.abc import Callable


def find(name: str) -> Callable[[], None] | None:
    """Returns a function that runs the command of that name: an installed package's, or a Python
    script on the PATH. None for other commands."""
    if os.path.dirname(name):
        return None
    folder = sysconfig.get_path("scripts")
    path = shutil.which(name, path=folder) or shutil.which(name)
    points = importlib.metadata.entry_points(group="console_scripts", name=name)
    for point in points:
        return lambda: _run_function(point, path or os.path.join(folder, name))
    if path is not None and _is_pythons(path):
        return lambda: _run_script(path)
    return None


def _run_function(point: importlib.metadata.EntryPoint, path: str) -> None:
    _take_place(path)
    sys.exit(point.load()())


def _run_script(path: str) -> None:
    _take_place(path)
    runpy.run_path(path, run_name="__main__")


def _take_place(path: str) -> None:
    """The arguments and the path for imports are those of the command."""
    sys.argv[0] = path
    sys.path[0] = os.path.dirname(path)


def _is_pythons(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.readline(256)
    except OSError:  # it may be run, and not read
        return False
    return head.startswith(b"#!") and b"python" in head
