"""Ways to change a library's code, each of which raises Absent where that isn't as expected."""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from torch_ocl import _import_hook
from torch_ocl._import_hook import Absent

_amp = threading.local()


def attribute(owner: Any, name: str) -> Any:
    """owner.name, of a class as it is stored there. Raises Absent if there is none."""
    found = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
    if found is None:
        raise Absent(f"{getattr(owner, '__name__', owner)} has no {name}")
    return found


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces a function by make(function), also where the name of a module's function was
    imported before torch_ocl was. Static methods stay such."""
    upstream = attribute(owner, name)
    if isinstance(upstream, staticmethod):
        inner = upstream.__func__
        setattr(owner, name, staticmethod(functools.wraps(inner)(make(inner))))
        return
    if not callable(upstream):
        raise Absent(f"{name} is no function")
    replace(owner, name, functools.wraps(upstream)(make(upstream)))


def replace(owner: Any, name: str, new: Any) -> None:
    """Replaces an attribute, also where it was imported from a module before torch_ocl was."""
    upstream = attribute(owner, name)
    setattr(owner, name, new)
    if not isinstance(owner, ModuleType) or not _import_hook.is_late():
        return
    for module in list(sys.modules.values()):
        names = vars(module) if isinstance(module, ModuleType) else {}
        for copy in [key for key, value in list(names.items()) if value is upstream]:
            setattr(module, copy, new)


def admit(owner: Any, name: str, known: Iterable[str]) -> None:
    """Adds "ocl" to the tuples and sets of device names that stand as literals in a function: to
    those that have all of the `known` ones. The function stays the same object.

    Where such a list decides, deep inside a long function, the alternative is a copy of it.
    """
    found = attribute(owner, name)
    function = getattr(found, "__func__", found)  # of a static method, too
    if not isinstance(function, FunctionType):
        raise Absent(f"{name} is no function")
    changed = _with_ocl(function.__code__, set(known))
    if changed == function.__code__:
        raise Absent(f"{name} has no list of {', '.join(sorted(known))}")
    function.__code__ = changed


def _with_ocl(code: CodeType, known: set[str]) -> CodeType:
    def changed(value: Any) -> Any:
        if isinstance(value, CodeType):
            return _with_ocl(value, known)
        if isinstance(value, (tuple, frozenset)) and known <= set(value) and "ocl" not in value:
            return type(value)([*value, "ocl"])
        return value

    return code.replace(co_consts=tuple(map(changed, code.co_consts)))


@contextlib.contextmanager
def cuda_means_ocl() -> Iterator[None]:
    """In it autocasts and gradient scalers that are made for "cuda", by this thread, are `ocl`'s:
    of libraries that know no other name for an accelerator."""
    _redirect_amp()
    before = getattr(_amp, "redirected", False)
    _amp.redirected = True
    try:
        yield
    finally:
        _amp.redirected = before


@functools.cache
def _redirect_amp() -> None:
    for kind, parameter in ((torch.autocast, "device_type"), (torch.amp.GradScaler, "device")):
        kind.__init__ = _redirected(kind.__init__, parameter)


def _redirected(upstream: Callable[..., None], parameter: str) -> Callable[..., None]:
    @functools.wraps(upstream)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(_amp, "redirected", False):
            if args and args[0] == "cuda":
                args = ("ocl", *args[1:])
            elif kwargs.get(parameter) == "cuda":
                kwargs[parameter] = "ocl"
        upstream(self, *args, **kwargs)

    return __init__
