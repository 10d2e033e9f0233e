"""Operators of a program's own, where "cuda" is `ocl`: kernels for CUDA that are written in Python.

torch's own registrations for CUDA stay what they are: many name PrivateUse1 beside it. So do those
of libraries whose ops have kernels for `ocl` (torch_ocl/integrations): theirs call CUDA's code.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.library import CustomOpDef, Library

from torch_ocl.upstream.as_cuda.converting import is_of_torch, to_ocl

#: Functions, each with the place and the name of its argument that says where a kernel is for.
_PLACES: tuple[tuple[Any, str, int, str], ...] = (
    (torch.library, "custom_op", 2, "device_types"),
    (torch.library, "get_kernel", 1, "dispatch_key"),
    (torch.library, "register_autocast", 1, "device_type"),
    (torch.library, "register_kernel", 1, "device_types"),
    (CustomOpDef, "register_autocast", 1, "device_type"),
    (CustomOpDef, "register_kernel", 1, "device_types"),
    (CustomOpDef, "set_kernel_enabled", 1, "device_type"),
    (Library, "__init__", 3, "dispatch_key"),
    (Library, "fallback", 2, "dispatch_key"),
    (Library, "impl", 3, "dispatch_key"),
)

_SERVED = frozenset({"bitsandbytes", "torchaudio", "torchvision"})


def install() -> None:
    """Changes the functions that register kernels, for code outside of torch."""
    for owner, name, place, keyword in _PLACES:
        if hasattr(owner, name):
            setattr(owner, name, _converting(getattr(owner, name), place, keyword))
    # (name, types, function) or, of old, (library, name, key).
    by_name = _converting(torch.library.impl, 1, "types")
    of_old = _converting(torch.library.impl, 2, "dispatch_key")
    torch.library.impl = _either(by_name, of_old)


def _converting(function: Callable[..., Any], place: int, keyword: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _program_calls():
            if len(args) > place:
                args = (*args[:place], _of_ocl(args[place]), *args[place + 1 :])
            elif keyword in kwargs:
                kwargs[keyword] = _of_ocl(kwargs[keyword])
        return function(*args, **kwargs)

    return wrapper


def _either(by_name: Callable[..., Any], of_old: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(by_name)
    def impl(*args: Any, **kwargs: Any) -> Any:
        is_of_old = bool(args) and isinstance(args[0], Library)
        return (of_old if is_of_old else by_name)(*args, **kwargs)

    return impl


def _program_calls() -> bool:
    """Whether neither torch nor a library in _SERVED called the function. This module's code is
    passed over."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals is globals():
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "")
    return not is_of_torch(module) and module.partition(".")[0] not in _SERVED


def _of_ocl(where: Any) -> Any:
    """A type of device, a dispatch key or several, with `ocl` in CUDA's place."""
    if isinstance(where, str):
        return to_ocl(where) if where.startswith("cuda") else _key(where)
    if isinstance(where, torch._C.DispatchKey):
        return getattr(torch._C.DispatchKey, _key(where.name), where)
    return [_of_ocl(one) for one in where] if isinstance(where, (list, tuple, set)) else where


def _key(name: str) -> str:
    """As "AutogradPrivateUse1" for "AutogradCUDA"."""
    return name.replace("CUDA", "PrivateUse1")
