"""torch.ocl where the device can't be used at all: every call says why."""

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

# These take a device too: a schema doesn't tell, or there is none.
_MORE_FUNCTIONS = {
    torch: ("get_device_module", "set_default_device"),
    torch.Tensor: ("new", "new_tensor"),
    torch.nn.Module: ("to",),
    torch.autocast: ("__init__",),
}
_TYPES = ("Event", "Generator", "Stream")


def make_module(reason: str, *, ignore_seeds: bool) -> types.ModuleType:
    """A torch.ocl whose is_available() is False and whose functions raise RuntimeError(reason).

    With ignore_seeds, seeding does nothing: torch.manual_seed seeds every device it knows.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(reason)

    def __getattr__(name: str) -> Callable[..., NoReturn]:
        # Torch and inspection tools ask modules for special names; those must stay absent.
        if name.startswith("_"):
            raise AttributeError(f"module 'torch.ocl' has no attribute {name!r}")
        return refuse

    module = types.ModuleType("torch.ocl", f"Not available: {reason}")
    module.__getattr__ = __getattr__
    module.is_available = lambda: False
    module.is_initialized = lambda: False
    module.device_count = lambda: 0
    module.unavailable_reason = lambda: reason
    module._is_in_bad_fork = lambda: False
    module._lazy_init = refuse
    if ignore_seeds:
        module.manual_seed = module.manual_seed_all = lambda seed: None
        module.seed = module.seed_all = lambda: None
    return module


def install_conflict(other: str) -> None:
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
    module = make_module(reason, ignore_seeds=False)
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

    for owner, name in list(functions_with_a_device()):
        setattr(owner, name, explain(getattr(owner, name)))
    for name in _TYPES:
        setattr(torch, name, stand_in_for(getattr(torch, name), explain))
    for owner in (torch.Tensor, torch.nn.Module):
        owner.ocl = refuse
    _refuse_scaler(refuse)
    # torch.load(map_location="ocl"), or of what was saved from there.
    torch.serialization.register_package(0, lambda storage: None, restore)


def functions_with_a_device() -> Iterator[tuple[Any, str]]:
    """(owner, name) of the functions that take a device: those of ATen whose schema says so, those
    that torch.set_default_device is about, and a few more."""
    from torch.utils._device import _device_constructors

    # It is kept from here on, as it has to be: set_default_device compares with the originals.
    constructors = _device_constructors()
    named = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and any(argument.name == "device" for argument in schema.arguments)
    }
    for owner in (torch, torch.fft, torch.nested):
        for name, value in vars(owner).items():
            known = inspect.isroutine(value) and (value in constructors or name in named)
            if known and not name.startswith("_"):
                yield owner, name
    for name in sorted(named):
        if hasattr(torch.Tensor, name) and not name.startswith("_"):
            yield torch.Tensor, name
    for name in vars(torch):
        if re.fullmatch(r"(is|get|set)_autocast_(enabled|dtype|available)", name):
            yield torch, name
    for name in torch.accelerator.__all__:
        if inspect.isfunction(getattr(torch.accelerator, name)):
            yield torch.accelerator, name
    for owner, names in _MORE_FUNCTIONS.items():
        for name in names:
            yield owner, name


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
