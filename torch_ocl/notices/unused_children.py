"""Whether a process that a program started has used the device: the program speaks for all of them.

The variable of the environment is all that both see. A program of the user's own puts the name of a
file there, which a child makes once it has used the device, at its end.
"""

import contextlib
import os
import secrets
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from multiprocessing import parent_process, util

_NAME = "_TORCH_OCL_USED"
_own_file = ""  # of the program that made the name
_was_used: Callable[[], bool] = bool


def is_own_program() -> bool:
    """Whether what runs is a file of the user's, and no command or module that was installed."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return False
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib", "scripts")}
    folders = {os.path.realpath(folder) for folder in installed if folder}
    folders.add(os.path.dirname(os.path.realpath(os.path.dirname(__file__))))
    path = os.path.realpath(path)
    is_installed = any(path.startswith(folder + os.sep) for folder in folders)
    return not is_installed and "setuptools" not in sys.modules


def watch(was_used: Callable[[], bool]) -> None:
    """Has the processes that this one starts tell it, or this one its parent."""
    global _own_file, _was_used
    _was_used = was_used
    if parent_process() is not None:
        _tell_at_end()
    elif _NAME not in os.environ and is_own_program():
        _own_file = os.path.join(tempfile.gettempdir(), f"torch_ocl_{secrets.token_hex(16)}")
        os.environ[_NAME] = _own_file
    os.register_at_fork(after_in_child=_become_child)
    util.register_after_fork(sys.modules[__name__], _tell_at_end)


def _become_child() -> None:
    global _own_file
    _own_file = ""


def _tell_at_end(*ignored: object) -> None:
    """For processes of multiprocessing, which run no functions at exit."""
    util.Finalize(None, tell, exitpriority=0)


def tell() -> None:
    """Makes the file, if this is a child that has used the device."""
    path = os.environ.get(_NAME)
    if path and path != _own_file and _was_used():
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def is_child() -> bool:
    """Whether another process speaks for this one."""
    return os.environ.get(_NAME, "") not in ("", _own_file)


def speaks_for_children() -> bool:
    """Whether this process hears of what its children use."""
    return bool(_own_file)


def take_answer() -> bool:
    """Whether a child of this program has used the device. Removes the file."""
    with contextlib.suppress(OSError):
        os.remove(_own_file)
        return True
    return False
