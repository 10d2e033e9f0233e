"""A program that was given `ocl` and used it for nothing says so at its end, in a line on stderr.

Libraries choose devices from lists of names. Many take the CPU, without a word, for a name that
they don't know. The device counts its launches anyway, and whether any op ran is noted at the first
one: nothing is added to what a program does. One that ran none has nothing to be told. One that
isn't given `ocl` gets neither a function at exit nor anything else.

`ocl` is given by an argument as `--device ocl`, by TORCH_OCL_AS_CUDA, by torch_ocl.cuda_to_ocl(),
or by the text of the program's own file. TORCH_OCL_NOTICES=0 turns the line off.

Many programs see a variable of the environment, and some have no use for a device. Where nothing
else gives it, a program of the user's own speaks, for its children, too. What was installed speaks
where it asked for CUDA, or computed for long.
"""

import atexit
import builtins
import contextlib
import multiprocessing
import os
import re
import sys
import time
from typing import Any

import torch

from torch_ocl import _environment
from torch_ocl.notices import unused_children

#: Also by its letter, and cut short, which argparse allows.
_DEVICE = r"(?:[\w.-]*(?:device|accelerator)[\w.-]*|d|dev|devi|devic|accel)"
_OCL = r"ocl(?::\d+)?"
_WITH_VALUE = re.compile(rf"[-+]*{_DEVICE}=[\"']?{_OCL}[\"']?", re.IGNORECASE)
_OPTION = re.compile(rf"--?{_DEVICE}", re.IGNORECASE)
#: Programs that are asked for these end early.
_QUESTIONS = {"-h", "--help", "help", "-V", "--version", "version"}
#: A child that imports torch takes longer, in seconds of the processor.
_SHORT_CHILD = 0.5
#: An installed command that takes less, in seconds of the processor, has mostly imported libraries.
_SHORT_COMMAND = 20

_pid = 0  # of the process that says it
_began = 0.0  # its time of the processor when torch_ocl was there
_failed = False
text = ""  # the program's source
cuda_was_asked = False  # torch.cuda.is_available(), where cuda means ocl


def install() -> None:
    """Watches the end of a program that is given `ocl`. Nothing happens in others."""
    if argument() or means_cuda() or _names_ocl(_program_text()):
        watch()


def watch() -> None:
    """Looks at the end whether the device was used. Nothing the second time."""
    global _pid, _began, text
    if _pid:
        return
    _pid, _began = os.getpid(), time.process_time()
    if (native := _native()) is not None:
        native.watch_for_ops()
    text = _program_text()  # its file's name is gone at the end
    unused_children.watch(_environment.is_as_cuda() and not argument())
    atexit.register(_at_exit)
    from torch_ocl.upstream import exit_status

    exit_status.listen(_remember)


def argument() -> str:
    """The argument on the command line that names the device, as `--device ocl`; empty without."""
    for arguments in (sys.argv, sys.orig_argv):
        for index, one in enumerate(arguments):
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            if _OPTION.fullmatch(one) and re.fullmatch(_OCL, following, re.IGNORECASE):
                return f"{one} {following}"
            # Some have a list of settings: pretrained=folder,device=ocl.
            for part in one.split(","):
                if _WITH_VALUE.fullmatch(part):
                    return part
    return ""


def means_cuda() -> bool:
    """Whether "cuda" means `ocl` here: by the variable, the command or the function."""
    ours = sys.modules.get("torch_ocl.upstream.as_cuda.names")
    return _environment.is_as_cuda() or getattr(ours, "_installed", False)


def _program_text() -> str:
    """The source of the program: its file, or what `python -c` was given. Empty if there is none,
    as of modules that `python -m` runs: a library's own text says what it knows, not what it got.
    """
    main = sys.modules.get("__main__")
    if getattr(main, "__spec__", None) is not None:
        return ""
    path = getattr(main, "__file__", None)
    if path is None:
        given = sys.orig_argv
        return given[given.index("-c") + 1] if "-c" in given[:-1] else ""
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        return file.read()
    return ""


def _names_ocl(text: str) -> bool:
    return '"ocl' in text or "'ocl" in text


def _remember(status: Any) -> None:
    global _failed
    _failed = status not in (None, 0)


def _at_exit() -> None:
    # Whatever is wrong here, the program has done its work.
    with contextlib.suppress(Exception):
        works = {_work(), *unused_children.take_answers()}
        if not _is_to_be_silent() and "cpu" in works and "ocl" not in works:
            from torch_ocl.notices import unused_reasons

            line = unused_reasons.line()
            if line:
                print(f"torch_ocl: {line}", file=sys.stderr, flush=True)


def _is_to_be_silent() -> bool:
    ended_early = _failed or hasattr(sys, "last_value") or hasattr(sys, "last_exc")
    return (
        os.environ.get("TORCH_OCL_NOTICES") == "0"
        or ended_early
        or bool(_QUESTIONS & set(sys.argv[1:]))
        or unused_children.is_child()
        or not _speaks()
        or _is_a_tool()
        or (not unused_children.speaks_for_children() and _children_worked())
        or _is_a_small_command()
    )


def _is_a_small_command() -> bool:
    """Whether nothing but the variable gives the device, and this is an installed command, or text
    on the command line, that neither asked for CUDA nor computed for long."""
    ours = sys.modules.get("torch_ocl.upstream.as_cuda.names")
    by_variable = getattr(ours, "by_variable", False) and not argument()
    if (
        not by_variable
        or cuda_was_asked
        or _names_ocl(text)
        or unused_children.speaks_for_children()
    ):
        return False
    return time.process_time() - _began < _SHORT_COMMAND


def _speaks() -> bool:
    """Whether this process is the one that speaks: the first of a launch. Those that a program
    makes to load data or compile, and those that it forks, have the device for nothing."""
    if os.getpid() != _pid or os.environ.get("LOCAL_RANK", "0") != "0":
        return False
    if multiprocessing.parent_process() is None:
        return True
    # As torch.multiprocessing.spawn() starts it: (function, index, arguments, file for errors).
    this: Any = multiprocessing.current_process()
    trains = getattr(this._target, "__module__", "") == "torch.multiprocessing.spawn"
    return trains and this._args[1] == 0


def _is_a_tool() -> bool:
    """Whether what runs is no program of the user's: a command of this package or of torch's own, a
    test run, an interactive shell."""
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", "")
    file = sys.argv[0] if name.startswith("torch_ocl.") else ""
    own_command = os.path.dirname(os.path.abspath(file)) == os.path.dirname(__file__)
    is_shell = hasattr(sys, "ps1") or sys.flags.interactive or hasattr(builtins, "__IPYTHON__")
    return own_command or name.startswith("torch.") or bool(is_shell) or _is_test(name)


def _is_test(name: str) -> bool:
    """Whether this is a test run, or a program with test cases of its own."""
    if "_pytest" in sys.modules or name.startswith("unittest."):
        return True
    kinds = [case] if (case := getattr(sys.modules.get("unittest.case"), "TestCase", None)) else []
    for kind in kinds:  # which grows
        kinds.extend(kind.__subclasses__())
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        is_own = file and not unused_children.is_installed(file)
        if is_own or kind.__module__ == "__main__":  # whose file's name may be gone
            return True
    return False


def _children_worked() -> bool:
    """Whether this is a launcher: of its processor's time most passed in children that ended. One
    that imports torch again takes a while for that alone."""
    times = os.times()
    children = times.children_user + times.children_system
    return children > max(_SHORT_CHILD, (time.process_time() - _began) / 2)


def _native() -> Any:
    """The native part; None where it can't be loaded."""
    with contextlib.suppress(ImportError):
        from torch_ocl import _C

        return _C
    return None


def _work() -> str:
    """The work of this process: "ocl" if it used the device, "cpu" if it ran ops elsewhere.

    Empty for a program that only asked, or ended before its work began.
    """
    if _was_used():
        return "ocl"
    native = _native()
    return "cpu" if native is None or native.op_ran() else ""


def _was_used() -> bool:
    """Whether a kernel was launched, or a tensor made, on any device."""
    if not torch.ocl.is_initialized():
        return False
    return _native().was_used() or any(
        torch.ocl.launch_count(index) for index in range(torch.ocl.device_count())
    )
