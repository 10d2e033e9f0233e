"""Functions and classes that take "cuda" for `ocl`."""

import functools
import types
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


class Method:
    """A method of a tensor with its arguments converted.

    Tensor subclasses look up what to do by the method, and get the one written in C: to them this
    is the same one.
    """

    def __init__(self, upstream: Callable[..., Any]) -> None:
        self._upstream = upstream
        functools.update_wrapper(self, upstream)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = to_ocl(kwargs["device"])
        return self._upstream(*map(to_ocl, args), **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._upstream

    def __hash__(self) -> int:
        return hash(self._upstream)


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
