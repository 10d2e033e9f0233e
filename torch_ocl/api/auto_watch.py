"""Which of a program's functions run in a call that torch.ocl.graphs.auto() watches.

A function's source doesn't show all that it runs: properties, forwards of modules, what a class or
a module has. So a profile function notes the code that really runs, but for PyTorch's own and the
standard library's. Forms then compare what that code reads (auto_forms.py).
"""

import contextlib
import ctypes
import dis
import functools
import gc
import importlib
import os
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

#: Modules whose functions give something else each time.
_CHANGING = frozenset({"random", "_random", "secrets", "uuid", "time", "datetime", "numpy.random"})
_RANDOM = frozenset(getattr(os, name, None) for name in ("getrandom", "urandom"))
_OURS = frozenset({"torch", "torch_ocl"})
_MOST_CLOSURES = 16
_CHANGES = ", which gives something else each time"
BY_NAME = "it looks modules up by their names"
DRAWS = "it draws CPU torch's random numbers, which a replay would not"
_import_module = importlib.import_module.__code__
#: With these, code reads what is under names that needn't stand in it.
_READERS = frozenset({getattr, globals, hasattr, locals, vars})
_WORDS = frozenset({"__dict__", "__getattribute__", "attrgetter"})
_WORDS_OF_GLOBALS = frozenset({"__globals__", "f_globals"})
_ONE_VALUE = frozenset({"LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME"})


def state_of(generator: torch.Generator) -> bytes:
    """Where a generator of CPU torch's stands."""
    state = generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.numel())


class Ran:
    """Code that ran: the names that it may read, where they are, and its functions' closures."""

    def __init__(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        self.names = frozenset(code.co_names)
        if not self.names.isdisjoint(("getattr", "hasattr")):
            self.names |= {name for name in code.co_consts if type(name) is str}
        #: Whether it may read globals of other names, and members of what it finds.
        self.every_global = not self.names.isdisjoint(_WORDS_OF_GLOBALS)
        self.every_name = self.every_global or not self.names.isdisjoint(_WORDS)
        self.imports = _places(_imports(code), namespace.get("__package__") or "")
        self.namespace = namespace
        self.functions: list[weakref.ref[Any]] = []
        if code.co_freevars:
            found = [f for f in gc.get_referrers(code) if isinstance(f, types.FunctionType)]
            self.functions = [weakref.ref(f) for f in found[:_MOST_CLOSURES]]

    def reads_more(self, other: "Ran") -> bool:
        """Whether it was seen to read more in this call than in another one."""
        return self.every_name > other.every_name or self.every_global > other.every_global


class Watch:
    """The code that ran while it was watched; `why` says what a replay would not do again."""

    def __init__(self) -> None:
        self.ran: dict[types.CodeType, Ran] = {}
        self.why: str | None = None
        self._passed: set[types.CodeType] = set()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watches the calling thread. Another profile function goes on beside it."""
        before, numbers = sys.getprofile(), state_of(torch.default_generator)

        def see(frame: types.FrameType, event: str, argument: Any) -> None:
            if before is not None:
                before(frame, event, argument)
            if event == "call":
                self._see_code(frame)
            elif event == "c_call" and _top(frame) not in _OURS:
                homes = _CHANGING.intersection(_homes(argument))
                if homes:
                    self._refuse(min(homes))
                elif not isinstance(argument, types.BuiltinFunctionType):
                    return
                elif argument in _RANDOM:
                    self.why = f"it calls os.{argument.__name__}{_CHANGES}"
                elif argument is __import__:
                    self.why = BY_NAME
                elif argument in _READERS:
                    self._see_reader(frame, argument)

        sys.setprofile(see)
        try:
            yield
        finally:
            sys.setprofile(before)
            if state_of(torch.default_generator) != numbers:
                self.why = DRAWS

    def _see_code(self, frame: types.FrameType) -> None:
        code = frame.f_code
        if code in self.ran or code in self._passed:
            return
        name, top = frame.f_globals.get("__name__") or "", _top(frame)
        if name in _CHANGING and frame.f_back is not None and _top(frame.f_back) not in _OURS:
            self._refuse(name)
        elif code is _import_module and _top(frame.f_back) not in sys.stdlib_module_names:
            self.why = BY_NAME
        elif top in _OURS or top in sys.stdlib_module_names and top != "__main__":
            self._passed.add(code)
        else:
            self.ran[code] = Ran(code, frame.f_globals)

    def _see_reader(self, frame: types.FrameType, reader: Any) -> None:
        if (ran := self.ran.get(frame.f_code)) is None:
            return
        if reader is not getattr and reader is not hasattr:
            ran.every_name = ran.every_global = True
        elif not ran.every_name:
            ran.every_name = reader.__name__ not in ran.names or not _is_named(frame)

    def _refuse(self, module: str) -> None:
        what = module.lstrip("_")
        self.why = f"it calls the module {what}{_CHANGES}"


def _homes(builtin: Any) -> Iterator[str]:
    """Modules that a function in C, and what it is a method of, are of."""
    owner = getattr(builtin, "__self__", None)
    for one in (builtin, owner, type(owner)):
        name = one.__name__ if isinstance(one, types.ModuleType) else getattr(one, "__module__", "")
        if isinstance(name, str):
            yield "numpy.random" if name.startswith("numpy.random") else name


def _top(frame: types.FrameType | None) -> str:
    return "" if frame is None else (frame.f_globals.get("__name__") or "").partition(".")[0]


@functools.lru_cache(maxsize=1024)
def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    return list(dis.get_instructions(code))


@functools.lru_cache(maxsize=1024)
def _imports(code: types.CodeType) -> frozenset[str]:
    """The modules that code imports while it runs."""
    found = (i.argval for i in _instructions(code) if i.opname == "IMPORT_NAME")
    return frozenset(name for name in found if name.partition(".")[0] not in _OURS)


def _places(names: Iterable[str], package: str) -> frozenset[str]:
    """Full names that imported ones may stand for: those with dots in front are a package's."""
    parts = package.split(".") if package else []
    packages = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
    inner = {f"{p}.{name}".rstrip(".") for p in packages for name in names}
    return frozenset(names) | inner


def _is_named(frame: types.FrameType) -> bool:
    """Whether the attribute's name in a call of getattr() stands in the code, as a constant."""
    before = [i for i in _instructions(frame.f_code) if i.offset <= frame.f_lasti]
    call = before.pop()
    while before and before[-1].opname in ("PRECALL", "CACHE"):
        call = before.pop()
    if not call.opname.startswith(("PRECALL", "CALL")) or call.arg not in (2, 3):
        return False
    last = before[1 - call.arg :]  # the name, and a default of one instruction
    return (
        not any(i.is_jump_target for i in (call, *last))
        and all(i.opname in _ONE_VALUE for i in last)
        and type(last[0].argval) is str
        and last[0].opname == "LOAD_CONST"
    )
