"""Stable-Baselines3: the device of an algorithm with device="auto"."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import wrap

_ADVICE = 'name it, as in PPO(..., device="ocl")'


def _utils(module: ModuleType) -> None:
    wrap(module, "get_device", _or_ocl)


def _or_ocl(upstream: Callable[..., torch.device]) -> Callable[..., torch.device]:
    def get_device(device: Any = "auto") -> torch.device:
        found = upstream(device)
        by_itself = device == "auto" and found.type == "cpu"
        if by_itself and _choice.chooses_ocl("Stable-Baselines3", _ADVICE):
            return torch.device("ocl")
        return found

    return get_device


PATCHES = {"stable_baselines3.common.utils": _utils}
