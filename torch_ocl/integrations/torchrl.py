"""torchrl: collectors, and the device that it finds by itself."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import attribute, wrap

_ADVICE = 'device="ocl"'


def _single(module: ModuleType) -> None:
    wrap(attribute(module, "Collector"), "_get_sync_fn", _waiting_for_ocl)


def _waiting_for_ocl(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """A collector calls it once data has gone to a device. Work on `ocl` is done in its order;
    host memory has to be waited for."""

    def _get_sync_fn(self: Any, device: torch.device | None) -> Callable[[], None]:
        if device is None or _choice.has_other_accelerator() or device.type not in ("cpu", "ocl"):
            return upstream(self, device)
        return _nothing if device.type == "ocl" else _wait

    return _get_sync_fn


def _nothing() -> None:
    pass


def _wait() -> None:
    if torch.ocl.is_initialized():
        torch.ocl.synchronize()


def _utils(module: ModuleType) -> None:
    wrap(module, "get_available_device", _or_ocl)


def _or_ocl(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def get_available_device(return_str: bool = False) -> torch.device | str:
        found = upstream(return_str)
        if str(found) != "cpu" or not _choice.chooses_ocl("torchrl", _ADVICE):
            return found
        return "ocl:0" if return_str else torch.device("ocl:0")

    return get_available_device


PATCHES = {"torchrl._utils": _utils, "torchrl.collectors._single": _single}
