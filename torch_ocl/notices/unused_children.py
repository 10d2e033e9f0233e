"""Whether a process that a program started has used the device: the program speaks for all of them.

A child makes a file when it first takes memory of a device, and another when it first runs an op:
however it ends, the program finds them. A forked one knows the files' names. To others a program of
the user's own tells them by a variable of the environment, all that both see. One of those that was
given `ocl` by itself adds to the names, and speaks for itself, too.
"""

import contextlib
import glob
import os
import secrets
import sys
import sysconfig
import tempfile
from multiprocessing import parent_process

_NAME = "_TORCH_OCL_USED"
_file = ""  # what the names of those that a child makes begin with
_is_parent = False  # whether this process has made the name
_has_parent = False  # whether another program hears what this one does, too


def is_own_program() -> bool:
    """Whether what runs is a file of the user's, and no command or module that was installed."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return bool(path) and not is_installed(path) and "setuptools" not in sys.modules


def is_installed(path: str) -> bool:
    """Whether a file is a package's, a command's or Python's own."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib", "scripts")}
    known = {os.path.realpath(folder) for folder in folders if folder}
    known.add(os.path.dirname(os.path.realpath(os.path.dirname(__file__))))
    path = os.path.realpath(path)
    return any(path.startswith(folder + os.sep) for folder in known)


def watch(through_environment: bool) -> None:
    """Has the processes that this one forks tell it, and with `through_environment` all that it
    starts. One that was started so tells its parent. It leaves the word to the parent, unless
    something else than the environment gave it the device."""
    global _file, _is_parent, _has_parent
    told = os.environ.get(_NAME, "")
    _is_parent = not (told and through_environment)
    _has_parent = bool(told)
    _file = told or os.path.join(tempfile.gettempdir(), "torch_ocl")
    if _is_parent:
        _file = f"{_file}_{secrets.token_hex(16)}"
        os.register_at_fork(after_in_child=_become_child)
    if told:
        _announce_use()
    elif through_environment and parent_process() is None and is_own_program():
        os.environ[_NAME] = _file


def _become_child() -> None:
    global _is_parent
    _is_parent = False
    _announce_use()


def _announce_use() -> None:
    # The library may be missing, or be another torch's: then no process uses the device.
    with contextlib.suppress(ImportError):
        from torch_ocl import _C

        _C.announce_use(_file)


def is_child() -> bool:
    """Whether another process speaks for this one."""
    return bool(_file) and not _is_parent


def speaks_for_children() -> bool:
    """Whether this process hears of all that its children use, and not only the forked ones."""
    return _is_parent and os.environ.get(_NAME) == _file


def take_answers() -> set[str]:
    """The work that the children of this program have done: "ocl" if one used the device, "cpu" if
    one that leaves the word to it ran an op. The first of the programs removes their files."""
    found = set()
    for file in glob.glob(f"{glob.escape(_file)}*") if _is_parent else ():
        name, _, work = file.rpartition(".")
        if work == "ocl" or name == _file:
            found.add(work)
        if not _has_parent:
            with contextlib.suppress(OSError):
                os.remove(file)
    return found
