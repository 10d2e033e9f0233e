"""Which of a program's functions run in a call that torch.ocl.graphs.auto() watches.

A function's text doesn't show all that it runs: properties, forwards of modules, what a class or a
module has. So a profile function notes the code that really runs, but for PyTorch's own and the
standard library's. Forms then compare what that code reads (auto_forms.py).
"""

import contextlib
import gc
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

#: Modules whose functions give something else each time.
_CHANGING = frozenset({"random", "_random", "secrets", "uuid", "time", "datetime", "numpy.random"})
_OURS = frozenset({"torch", "torch_ocl"})
_MOST_CLOSURES = 16


class Ran:
    """Code that ran: the names that it may read, where they are, and its functions' closures."""

    def __init__(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        self.names = frozenset(code.co_names)
        self.namespace = namespace
        self.functions: list[weakref.ref[Any]] = []
        if code.co_freevars:
            found = [f for f in gc.get_referrers(code) if isinstance(f, types.FunctionType)]
            self.functions = [weakref.ref(f) for f in found[:_MOST_CLOSURES]]


class Watch:
    """The code that ran while it was watched; `why` says what a replay would not do again."""

    def __init__(self) -> None:
        self.ran: dict[types.CodeType, Ran] = {}
        self.why: str | None = None
        self._passed: set[types.CodeType] = set()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watches the calling thread. Another profile function goes on beside it."""
        before = sys.getprofile()

        def see(frame: types.FrameType, event: str, argument: Any) -> None:
            if before is not None:
                before(frame, event, argument)
            if event == "call":
                self._see_code(frame)
            elif event == "c_call" and _top(frame) not in _OURS:
                homes = _CHANGING.intersection(_homes(argument))
                if homes:
                    self._refuse(min(homes))

        sys.setprofile(see)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _see_code(self, frame: types.FrameType) -> None:
        code = frame.f_code
        if code in self.ran or code in self._passed:
            return
        name, top = frame.f_globals.get("__name__") or "", _top(frame)
        if name in _CHANGING and frame.f_back is not None and _top(frame.f_back) not in _OURS:
            self._refuse(name)
        elif top in _OURS or top in sys.stdlib_module_names and top != "__main__":
            self._passed.add(code)
        else:
            self.ran[code] = Ran(code, frame.f_globals)

    def _refuse(self, module: str) -> None:
        what = module.lstrip("_")
        self.why = f"it calls the module {what}, which gives something else each time"


def _homes(builtin: Any) -> Iterator[str]:
    """Modules that a function in C, and what it is a method of, are of."""
    owner = getattr(builtin, "__self__", None)
    for one in (builtin, owner, type(owner)):
        name = one.__name__ if isinstance(one, types.ModuleType) else getattr(one, "__module__", "")
        if isinstance(name, str):
            yield "numpy.random" if name.startswith("numpy.random") else name


def _top(frame: types.FrameType) -> str:
    return (frame.f_globals.get("__name__") or "").partition(".")[0]
