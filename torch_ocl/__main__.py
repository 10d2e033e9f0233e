"""python -m torch_ocl: what there is on this machine, what is wrong with it, and the cache.

python -m torch_ocl [info] [--json]
python -m torch_ocl cache [size | clear | warm] [--dtype float32 ...] [--device ocl:1]
python -m torch_ocl check [--device ocl:1] [--only gemm ...] [--report FILE] [--forget]
python -m torch_ocl tune [--device ocl:1] [--seconds 180] [--share] [--forget]
python -m torch_ocl run [OPTION OF PYTHON ...] [-m | -c] PROGRAM [ARGUMENT ...]
"""

import argparse
import builtins
import importlib.util
import json
import os
import runpy
import subprocess
import sys
import types
from collections.abc import Sequence
from typing import NoReturn

import torch

import torch_ocl
from torch_ocl.cli import cache, check, console_scripts, info, tune, warm

#: Options of Python's own that say how a program runs. Those with a value are -W and -X.
_FLAGS = "BEIOPRbqsuv"
_DTYPES = ("float32", "float64", "float16", "bfloat16")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m torch_ocl", description="OpenCL devices for PyTorch: what is there."
    )
    commands = parser.add_subparsers(dest="command", metavar="command")
    info_parser = commands.add_parser(
        "info", help="devices, drivers, features, cache, and what is wrong (the default)"
    )
    info_parser.add_argument(
        "--json", action="store_true", help="the same for programs and bug reports"
    )
    cache_parser = commands.add_parser("cache", help="the compiled kernels that are kept on disk")
    actions = cache_parser.add_subparsers(dest="action", metavar="action")
    actions.add_parser("size", help="where they are, how many, how large (the default)")
    actions.add_parser("clear", help="remove them; results of the tuner stay")
    warm_parser = actions.add_parser("warm", help="compile those that most programs need")
    warm_parser.add_argument(
        "--dtype", nargs="+", choices=_DTYPES, default=["float32"], help="for these; float32"
    )
    warm_parser.add_argument("--device", default="ocl", help="for this one; default the first")
    warm_parser.add_argument(
        "--jobs", type=int, default=1, help="processes that share the work; default 1"
    )
    warm_parser.add_argument(
        "--only", nargs="+", choices=list(warm.WORK), default=[], help="for these alone"
    )
    _add_check(commands.add_parser("check", help="try all kernels of a device against the CPU"))
    _add_tune(commands.add_parser("tune", help="find what suits a device, and use it"))
    _add_run(commands.add_parser("run", help="a Python program, in which cuda means ocl"))
    arguments = sys.argv[1:] if arguments is None else arguments
    # Options without a command are info's.
    if all(argument == "--json" for argument in arguments):
        arguments = ["info", *arguments]
    return parser.parse_args(arguments)


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="ocl", help="this one; default the first")
    parser.add_argument("--only", nargs="+", default=[], help="these families alone")
    parser.add_argument("--report", default="", help="the report's file; torch_ocl_check_0.md")
    parser.add_argument(
        "--timeout", type=float, default=60, help="seconds after which a case hangs; default 60"
    )
    parser.add_argument(
        "--processes", type=int, default=0, help="that try kernels; default three to four cores"
    )
    parser.add_argument(
        "--forget", action="store_true", help="only remove the list of kernels that fail"
    )


def _add_tune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="ocl", help="this one; default the first")
    parser.add_argument(
        "--seconds", type=float, default=180, help="that it takes, about; default 180"
    )
    parser.add_argument(
        "--share", action="store_true", help="also print a row for the table of devices"
    )
    parser.add_argument("--forget", action="store_true", help="only remove what was tuned")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", action="store_true", dest="is_module", help="a module, as python -m")
    parser.add_argument("-c", action="store_true", dest="is_text", help="its text, as python -c")
    for letter in _FLAGS:
        parser.add_argument(
            f"-{letter}",
            action="append_const",
            dest="pythons",
            const=f"-{letter}",
            help=f"as python -{letter}",
        )
    for letter in "WX":
        parser.add_argument(
            f"-{letter}",
            action="append",
            dest="pythons",
            type=f"-{letter}{{}}".format,
            metavar="VALUE",
            help=f"as python -{letter}",
        )
    parser.add_argument(
        "program", help="its file, command, module's name or text; - for standard input"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its own")


def _cache_command(options: argparse.Namespace) -> int:
    if options.action == "clear":
        files, size = cache.clear()
        print(f"removed {files} programs, {info.size_text(size)}")
        return 0
    if options.action == "warm":
        dtypes = [getattr(torch, name) for name in options.dtype]
        return cache.warm(options.device, dtypes, options.jobs, options.only)
    print(info.cache_text(cache.contents()))
    return 0


def _run(options: argparse.Namespace) -> None:
    """The program takes this one's place: its exit status, its errors and its sys.argv."""
    if options.pythons:
        _start_again(options)
    torch_ocl.cuda_to_ocl()
    sys.argv = [options.program, *options.arguments]
    if options.is_text or options.program == "-":
        _run_text(options)
    elif options.is_module:
        _begin_path(os.getcwd())
        _check_module(options.program)
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    elif not os.path.exists(options.program) and (command := console_scripts.find(options.program)):
        command()
    else:
        _begin_path(os.path.dirname(os.path.abspath(options.program)))
        _check_file(options.program)
        runpy.run_path(options.program, run_name="__main__")


def _start_again(options: argparse.Namespace) -> NoReturn:
    """Python reads its options as it starts, so another one takes this one's place."""
    how = ["-m"] if options.is_module else ["-c"] if options.is_text else []
    # Those of this Python, as subprocess and multiprocessing pass them on.
    own = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *own, *options.pythons, "-m", "torch_ocl", "run"]
    os.execv(sys.executable, [*command, *how, options.program, *options.arguments])


def _begin_path(folder: str) -> None:
    """The folder is where imports look first, unless -P or -I says that there is none."""
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = folder


def _run_text(options: argparse.Namespace) -> None:
    text = options.program if options.is_text else sys.stdin.read()
    file, sys.argv[0] = ("<string>", "-c") if options.is_text else ("<stdin>", "-")
    _begin_path("")
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    exec(compile(text, file, "exec"), main.__dict__)


def _check_file(program: str) -> None:
    """Ends as `python` does where there is no such file."""
    path = os.path.abspath(program)
    if os.path.isdir(path):
        if not os.path.exists(os.path.join(path, "__main__.py")):
            _end(f"can't find '__main__' module in {path!r}")
        return
    try:
        open(path, "rb").close()
    except OSError as error:
        _end(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}")


def _check_module(name: str) -> None:
    """Ends as `python -m` does where there is no such module."""
    try:
        spec = importlib.util.find_spec(name)
        is_package = spec is not None and spec.submodule_search_locations is not None
        has_main = is_package and importlib.util.find_spec(f"{name}.__main__") is not None
    except ModuleNotFoundError as error:
        # Packages are imported on the way, and may lack a module of their own needs.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            _end(f"No module named {name}")
        raise
    if spec is None:
        _end(f"No module named {name}")
    if is_package and not has_main:
        what = f"{name!r} is a package and cannot be directly executed"
        _end(f"No module named {name}.__main__; {what}")


def _end(text: str) -> NoReturn:
    print(f"{sys.executable}: {text}", file=sys.stderr)
    sys.exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if something is wrong, or a command could not do its work."""
    options = _parse(arguments)
    if options.command == "run":
        _run(options)
        return 0
    try:
        if options.command == "cache":
            return _cache_command(options)
        if options.command == "check":
            return check.main(options)
        if options.command == "tune":
            return tune.main(options)
        report = info.collect()
        print(json.dumps(report, indent=2) if options.json else info.text(report))
        return 1 if report["problems"] else 0
    except (RuntimeError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
