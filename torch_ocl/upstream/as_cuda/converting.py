"""Functions and classes that take "cuda" for `ocl`."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch


def to_ocl(value: Any) -> Any:
    """The `ocl` device for a name of CUDA's; anything else as it is."""
    if isinstance(value, str):
        return "ocl" + value[4:] if value == "cuda" or value.startswith("cuda:") else value
    if type(value) is torch.device and value.type == "cuda":
        return torch.device("ocl") if value.index is None else torch.device("ocl", value.index)
    return value


def to_cuda(name: str) -> str:
    """CUDA's name for one of `ocl`; others as they came."""
    return "cuda" + name[3:] if name == "ocl" or name.startswith("ocl:") else name


def is_of_torch(module: str) -> bool:
    """Whether a module is torch's or this package's, as csrc/python/device_names.cpp has it."""
    return module == "torch" or module.startswith(("torch.", "torch_ocl"))


def converting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its arguments converted."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = to_ocl(kwargs["device"])
        return function(*map(to_ocl, args), **kwargs)

    return wrapper


def change(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Has a function of torch do what make(the function as it was) does.

    One that is written in C stays the same object: whoever holds it, asks for its names or pickles
    it sees upstream's.
    """
    from torch_ocl import _C

    upstream = getattr(owner, name)
    if not _C.replace_calls(upstream, make):
        put(owner, name, make(upstream))


def put(owner: Any, name: str, new: Any) -> None:
    """Puts a function or class in the place of upstream's, under the names of that one. It goes to
    the module that these name, too: a pickle says no more, and means upstream's elsewhere."""
    upstream = getattr(owner, name)
    for attribute in ("__module__", "__name__", "__qualname__"):
        setattr(new, attribute, getattr(upstream, attribute))
    setattr(owner, name, new)
    *path, last = upstream.__qualname__.split(".")
    home: Any = sys.modules.get(upstream.__module__)
    for part in path:
        home = getattr(home, part, None)
    if getattr(home, last, None) is upstream:
        setattr(home, last, new)


def converted(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a class with names of CUDA's converted."""
    for name in ("device", "type"):
        if name in kwargs:
            kwargs[name] = to_ocl(kwargs[name])
    return tuple(map(to_ocl, args)), kwargs


def converting_device_type(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its named argument `device_type` converted."""

    @functools.wraps(function)
    def wrapper(*args: Any, device_type: str, **kwargs: Any) -> Any:
        return function(*args, device_type=to_ocl(device_type), **kwargs)

    return wrapper


def converting_device_type_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its first argument, `device_type`, converted."""

    @functools.wraps(function)
    def wrapper(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return function(to_ocl(device_type), *args, **kwargs)

    return wrapper
