"""Another backend has PrivateUse1, of which torch has one: what names `ocl` says so."""

import functools
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from torch_ocl.api import unavailable
from torch_ocl.upstream import device_functions

_TYPES = ("Event", "Generator", "Stream")


def install(other: str) -> None:
    """Installs torch.ocl beside another backend, and makes "ocl" as a device name an error that
    names it. Torch's own message lists device types and does not say why `ocl` is missing.

    torch.device("ocl") keeps that message: C++ parses the string, from a fixed list, and so do
    functions that aren't attributes of a Python object.
    """
    reason = (
        f"device 'ocl' is not available: PrivateUse1, of which torch has one, is used by the "
        f"backend '{other}'. Uninstall one of the two, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and "
        "import only torch_ocl."
    )
    module = unavailable.make_module(reason, ignore_seeds=False)
    torch.ocl = module
    sys.modules["torch.ocl"] = module

    def raise_reason(error: Exception | None = None) -> NoReturn:
        raise RuntimeError(reason) from error

    def explain(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except RuntimeError as error:
                if _is_about_ocl(error):
                    raise_reason(error)
                raise

        # torch.jit.script goes by the object where it looks for ATen's functions.
        if name := torch.jit._builtins._find_builtin(function):
            torch.jit._builtins._register_builtin(wrapper, name)
        return wrapper

    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise_reason()

    def restore(storage: Any, location: str) -> None:
        if location.split(":")[0] == "ocl":
            raise_reason()

    for owner, name in list(device_functions.functions_with_a_device()):
        setattr(owner, name, explain(getattr(owner, name)))
    for name in _TYPES:
        setattr(torch, name, stand_in_for(getattr(torch, name), explain))
    for owner in (torch.Tensor, torch.nn.Module):
        owner.ocl = refuse
    _refuse_scaler(refuse)
    # torch.load(map_location="ocl"), or of what was saved from there.
    torch.serialization.register_package(0, lambda storage: None, restore)


def stand_in_for(base: type, changed: Callable[[type], Callable[..., Any]]) -> type:
    """A stand-in for a type written in C, one that can be derived from: its objects are those of
    `base`, made by changed(base)."""

    class Changed(type(base)):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            make = base if cls is stand_in else super().__call__
            return changed(make)(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return (
                isinstance(instance, base)
                if cls is stand_in
                else super().__instancecheck__(instance)
            )

        def __subclasscheck__(cls, subclass: type) -> bool:
            return (
                issubclass(subclass, base)
                if cls is stand_in
                else super().__subclasscheck__(subclass)
            )

    stand_in = Changed(base.__name__, (base,), {"__module__": "torch", "__doc__": base.__doc__})
    return stand_in


def _refuse_scaler(refuse: Callable[..., NoReturn]) -> None:
    """GradScaler keeps the device's name and asks for it later."""
    original = torch.amp.GradScaler.__init__

    @functools.wraps(original)
    def __init__(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        if str(device).split(":")[0] == "ocl":
            refuse(self)
        original(self, device, *args, **kwargs)

    torch.amp.GradScaler.__init__ = __init__


def _is_about_ocl(error: RuntimeError) -> bool:
    _, separator, device = str(error).partition("device type at start of device string: ")
    return bool(separator) and device.split(":")[0].strip() == "ocl"
