"""What torch.ocl is when the device can't be used at all: every call says why."""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import torch

# Functions that take a device, directly or by keyword: the ones scripts reach first.
_FACTORIES = (
    "arange as_tensor empty empty_like empty_strided eye full full_like linspace ones ones_like "
    "rand rand_like randint randn randn_like randperm tensor zeros zeros_like"
).split()


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

    torch.device("ocl") keeps that message: C++ parses the string, from a fixed list.
    Only another object in the place of torch.device could catch it, and isinstance takes a type.
    """
    reason = (
        f"device 'ocl' is not available: PrivateUse1, of which torch has one, is used by the "
        f"backend '{other}'. Uninstall one of the two, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and "
        "import only torch_ocl."
    )
    module = make_module(reason, ignore_seeds=False)
    torch.ocl = module
    sys.modules["torch.ocl"] = module

    def explain(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except RuntimeError as error:
                if _is_about_ocl(error):
                    raise RuntimeError(reason) from error
                raise

        return wrapper

    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(reason)

    for name in _FACTORIES:
        setattr(torch, name, explain(getattr(torch, name)))
    for owner in (torch.Tensor, torch.nn.Module):
        owner.to = explain(owner.to)
        owner.ocl = refuse


def _is_about_ocl(error: RuntimeError) -> bool:
    _, separator, device = str(error).partition("device type at start of device string: ")
    return bool(separator) and device.split(":")[0].strip() == "ocl"
