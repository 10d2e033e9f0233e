"""Why a program that was given `ocl` made no use of it, as far as that can be seen at its end."""

import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from torch_ocl.notices import unused, unused_calls, unused_text

#: Accelerators that libraries know by name.
_KNOWN = ("cuda", "hpu", "mps", "npu", "xpu")


def line() -> str:
    """The line for stderr; empty if nothing shows that the program was given `ocl`."""
    given, library, place = _given()
    if not given:
        return ""
    nothing = f"nothing ran on ocl, though {given}"
    if not torch.ocl.is_available():
        reason = torch.ocl.unavailable_reason().strip().split("\n")[0]
        return f"{nothing}: {reason}"
    return f"{nothing}: {_instead()}. {_why(library, place)}"


def _given() -> tuple[str, str, str]:
    """How the program was given the device, the library that got it, and where that was called."""
    if argument := unused.argument():
        library = _program_library()
        return f"{library or _program()} was given {argument}", library, ""
    call = unused_calls.find(unused.text)
    if call is not None and call.library in sys.modules:
        place = f"{_program()}, line {call.line}"
        return f"{call.name} was given {call.keyword}='{call.value}'", call.library, place
    if place := _named_in_text():
        known = (name for name in unused_calls.libraries(unused.text) if _list_of_devices(name))
        return f"{place} names it", next(known, ""), ""
    if unused.means_cuda():
        return "cuda means ocl in this program", "", ""
    return "", "", ""


def _named_in_text() -> str:
    """The line of the program's text that names the device, where nothing else was chosen."""
    if unused_text.command_line_chooses():
        return ""
    if unused_text.asks_for_devices(unused.text) and not torch.ocl.is_available():
        return ""
    line = unused_text.line(unused.text)
    return f"{_program()}, line {line}," if line else ""


def _program() -> str:
    name = os.path.basename(sys.argv[0])
    return "the program" if name in ("", "-c", "-m") else name


def _program_library() -> str:
    """The library whose command this is: of `python -m library`, or of what pip makes of an entry
    point, a file of a few lines that imports one function."""
    main: Any = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        found = spec.name.partition(".")[0]
        return "" if found in ("torch_ocl", "__main__") else found
    folder = os.path.dirname(os.path.abspath(getattr(main, "__file__", None) or "."))
    if folder != os.path.dirname(os.path.abspath(sys.executable)):
        return ""
    for value in vars(main).values():
        found = getattr(value, "__module__", None) if callable(value) else None
        found = (found or "").partition(".")[0]
        if found and found not in sys.stdlib_module_names and found != "__main__":
            return found
    return ""


def _instead() -> str:
    """The device that was used instead."""
    if not unused.means_cuda() and torch.cuda.is_initialized():
        return "it used CUDA"
    return "it used the CPU"


def _why(library: str, place: str) -> str:
    at = f" ({place})" if place else ""
    if library:
        known = _list_of_devices(library)
        if known:
            return f"Likely reason{at}: {known}"
        return f"Likely reason{at}: {library} takes no device of that name"
    if not unused.means_cuda():
        what = (
            "that argument" if unused.argument() else "it, or passes it to a library that doesn't"
        )
        return f"Likely reason: it makes nothing of {what}"
    if chosen := _other_argument():
        return f"Likely reason: {chosen} chose another device"
    if late := _imported_before():
        return f"Likely reason: {late} was imported before torch_ocl.cuda_to_ocl() was called"
    if unused.cuda_was_asked:
        return "torch.cuda.is_available() was True: a setting of its own may choose the device"
    return (
        "Likely reason: it never asked torch.cuda.is_available(), so it may have an option for the "
        "device, as --device cuda"
    )


def _other_argument() -> str:
    """An argument that chooses the CPU."""
    for index, one in enumerate(sys.argv[1:], 1):
        name, _, value = one.lstrip("-+").partition("=")
        following = sys.argv[index + 1] if index + 1 < len(sys.argv) else ""
        if one.startswith("-") and name.replace("_", "-") in ("cpu", "no-cuda", "use-cpu"):
            return one
        if "device" in name or "accelerator" in name:
            if value == "cpu":
                return one
            if not value and following == "cpu":
                return f"{one} cpu"
    return ""


def _imported_before() -> str:
    """A library that was there when "cuda" became `ocl`, and may have asked before."""
    ours: Any = sys.modules.get("torch_ocl.upstream.as_cuda.names")
    before = getattr(ours, "imported_before", ())
    return next(iter(before), "")


def _list_of_devices(library: str) -> str:
    """The function of a library that chooses among devices by their names, of those that are
    imported the one with most names."""
    best: tuple[Any, ...] = ((False, 0), "")
    for module, function in _functions(library):
        code = function.__code__
        names = sorted({n for s in _strings(code) for n in _KNOWN if s.partition(":")[0] == n})
        is_choice = any("device" in name for name in (*code.co_varnames, code.co_name))
        if not names or not is_choice or "ocl" in _strings(code):
            continue
        takes = any("device" in name for name in code.co_varnames[: code.co_argcount])
        if ((takes, len(names))) > best[0]:
            text = f"{module}.{function.__qualname__} knows {', '.join(names)} by name, and not ocl"
            best = ((takes, len(names)), text)
    return best[1]


def _functions(library: str) -> Iterator[tuple[str, FunctionType]]:
    """Those of a library's loaded modules, and methods of their classes."""
    for name, module in sorted(sys.modules.items()):
        if name != library and not name.startswith(library + "."):
            continue
        for value in list(getattr(module, "__dict__", {}).values()):
            members = [value, *vars(value).values()] if isinstance(value, type) else [value]
            for member in members:
                function = getattr(member, "__func__", member)
                if isinstance(function, FunctionType) and function.__module__ == name:
                    yield name, function


def _strings(code: CodeType) -> set[str]:
    found: set[str] = set()
    stack: list[Any] = [code.co_consts]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, (tuple, frozenset)):
            stack.extend(value)
        elif isinstance(value, CodeType):
            stack.append(value.co_consts)
    return found
