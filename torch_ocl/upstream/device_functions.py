"""The functions of torch that take a device."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch

# These take a device too: a schema doesn't tell, or there is none.
_MORE_FUNCTIONS = {
    torch: ("get_device_module", "set_default_device"),
    torch.Tensor: ("new", "new_tensor"),
    torch.nn.Module: ("to",),
    torch.autocast: ("__init__",),
}


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
