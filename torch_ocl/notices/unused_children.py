"""Whether a process that a program started has used the device: the program speaks for all of them.

A child that has used the device makes a file at its end. A forked one knows its name. To others a
program of the user's own tells it by a variable of the environment, all that both see.
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
_file = ""  # the one that a child makes
_is_parent = False  # whether this process has made the name
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


def watch(was_used: Callable[[], bool], through_environment: bool) -> None:
    """Has the processes that this one forks tell it, and with `through_environment` all that it
    starts. One that was started so tells its parent."""
    global _file, _is_parent, _was_used
    _was_used = was_used
    if through_environment and _NAME in os.environ:
        _file = os.environ[_NAME]
        _tell_before_exit()
    else:
        _file = os.path.join(tempfile.gettempdir(), f"torch_ocl_{secrets.token_hex(16)}")
        _is_parent = True
        if through_environment and parent_process() is None and is_own_program():
            os.environ[_NAME] = _file
    if parent_process() is not None:
        _tell_at_end()
    os.register_at_fork(after_in_child=_become_child)
    util.register_after_fork(sys.modules[__name__], _tell_at_end)


def _become_child() -> None:
    global _is_parent
    _is_parent = False
    _tell_before_exit()


def _tell_at_end(*ignored: object) -> None:
    """For processes of multiprocessing, which run no functions at exit."""
    util.Finalize(None, tell, exitpriority=0)


def _tell_before_exit() -> None:
    """For processes that end by os._exit(), as forked ones mostly do."""
    from torch_ocl.upstream import exit_status

    exit_status.before_os_exit(tell)


def tell() -> None:
    """Makes the file, if this is a child that has used the device."""
    # Whatever is wrong here, the process has done its work.
    with contextlib.suppress(Exception):
        if _file and not _is_parent and _was_used():
            os.close(os.open(_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def is_child() -> bool:
    """Whether another process speaks for this one."""
    return bool(_file) and not _is_parent


def speaks_for_children() -> bool:
    """Whether this process hears of all that its children use, and not only the forked ones."""
    return _is_parent and os.environ.get(_NAME) == _file


def take_answer() -> bool:
    """Whether a child of this program has used the device. Removes the file."""
    if _is_parent:
        with contextlib.suppress(OSError):
            os.remove(_file)
            return True
    return False
