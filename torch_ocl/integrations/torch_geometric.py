"""PyTorch Geometric: device("auto"), GraphGym's device, and loaders that prefetch."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import attribute, wrap

_ADVICE = 'torch.device("ocl")'
_ADVICE_LOADER = 'device=torch.device("ocl")'
_ADVICE_GRAPHGYM = "the setting accelerator: ocl"


def _device(module: ModuleType) -> None:
    wrap(module, "device", _or_ocl)


def _or_ocl(upstream: Callable[[Any], torch.device]) -> Callable[[Any], torch.device]:
    def device(device: Any) -> torch.device:
        found = upstream(device)
        by_itself = isinstance(device, str) and device == "auto" and found.type == "cpu"
        if by_itself and _choice.chooses_ocl("torch_geometric", _ADVICE):
            return torch.device("ocl")
        return found

    return device


def _prefetch(module: ModuleType) -> None:
    wrap(attribute(module, "DeviceHelper"), "__init__", _with_streams)


def _with_streams(upstream: Callable[..., None]) -> Callable[..., None]:
    """A loader leaves batches on the host for devices that it doesn't know, also if it was given
    one."""

    def __init__(self: Any, device: Any = None) -> None:
        upstream(self, device)
        if device is None and self.device.type == "cpu":
            if _choice.chooses_ocl("torch_geometric's PrefetchLoader", _ADVICE_LOADER):
                self.device = torch.device("ocl")
        if self.device.type == "ocl":
            self.is_gpu, self.module = True, torch.ocl

    return __init__


def _graphgym(module: ModuleType) -> None:
    attribute(module, "cfg")
    wrap(module, "auto_select_device", lambda upstream: _selecting(upstream, module.cfg))


def _selecting(upstream: Callable[[], None], settings: Any) -> Callable[[], None]:
    """Its Trainer is Lightning's, which takes the name."""

    def auto_select_device() -> None:
        by_itself = settings.accelerator == "auto"
        upstream()
        if by_itself and settings.accelerator == "cpu":
            if _choice.chooses_ocl("GraphGym", _ADVICE_GRAPHGYM):
                settings.accelerator, settings.devices = "ocl", 1

    return auto_select_device


PATCHES = {
    "torch_geometric.device": _device,
    "torch_geometric.loader.prefetch": _prefetch,
    "torch_geometric.graphgym.utils.device": _graphgym,
}
