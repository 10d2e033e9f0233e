"""Ignite: idist.device() of a single process."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import attribute, wrap

_ADVICE = 'give its functions device="ocl"'


def _base(module: ModuleType) -> None:
    wrap(attribute(module, "_SerialModel"), "device", _or_ocl)


def _or_ocl(upstream: Callable[[Any], torch.device]) -> Callable[[Any], torch.device]:
    def device(self: Any) -> torch.device:
        found = upstream(self)
        if found.type == "cpu" and _choice.chooses_ocl("Ignite", _ADVICE):
            return torch.device("ocl")
        return found

    return device


PATCHES = {"ignite.distributed.comp_models.base": _base}
