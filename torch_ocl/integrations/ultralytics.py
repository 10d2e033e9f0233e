"""Ultralytics: device="ocl" or a number, and mixed precision in training. It treats `ocl` as it
does `xpu`."""

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import admit, attribute, cuda_means_ocl, wrap

_ADVICE = 'device="ocl"'


def _torch_utils(module: ModuleType) -> None:
    # Both have the list twice: of devices as objects and of their names.
    admit(module, "parse_device", {"npu", "xpu"})
    admit(module, "select_device", {"npu", "xpu"})
    wrap(module, "select_device", _or_ocl)


def _or_ocl(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def select_device(device: Any = "", *args: Any, **kwargs: Any) -> Any:
        by_itself = device is None or isinstance(device, str) and device in ("", "None")
        if (
            by_itself
            and not _choice.has_other_accelerator()
            and _choice.chooses_ocl("Ultralytics", _ADVICE)
        ):
            device = f"ocl:{torch.ocl.current_device()}"
        # A number is that of an accelerator: of `ocl` where there is no other.
        elif str(device).strip().isdecimal() and not _choice.has_other_accelerator():
            device = f"ocl:{device}"
        return upstream(device, *args, **kwargs)

    return select_device


def _trainer(module: ModuleType) -> None:
    wrap(attribute(module, "BaseTrainer"), "_setup_train", _scaling_on_ocl)


def _scaling_on_ocl(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def _setup_train(self: Any, *args: Any, **kwargs: Any) -> Any:
        on_ocl = getattr(self.device, "type", "") == "ocl"
        with cuda_means_ocl() if on_ocl else contextlib.nullcontext():
            return upstream(self, *args, **kwargs)

    return _setup_train


PATCHES = {"ultralytics.engine.trainer": _trainer, "ultralytics.utils.torch_utils": _torch_utils}
