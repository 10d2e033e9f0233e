"""fastai: its default device, and mixed precision on `ocl`."""

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import attribute, cuda_means_ocl, wrap

_ADVICE = 'default_device(True), or a device for the loaders, dls.to("ocl")'


def _torch_core(module: ModuleType) -> None:
    attribute(module, "defaults")
    wrap(module, "default_device", lambda upstream: _or_ocl(upstream, module.defaults))


def _or_ocl(upstream: Callable[..., torch.device], defaults: Any) -> Callable[..., torch.device]:
    def default_device(use: int | bool | None = -1) -> torch.device:
        found = upstream(use)
        # The program has asked for one, now or before: None is its own choice, True an accelerator.
        asked = getattr(defaults, "use_cuda", None)
        if found.type != "cpu" or asked is False:
            return found
        if asked and torch.ocl.is_available() or _choice.chooses_ocl("fastai", _ADVICE):
            return torch.device("ocl", torch.ocl.current_device())
        return found

    return default_device


def _fp16(module: ModuleType) -> None:
    wrap(attribute(module, "MixedPrecision"), "before_fit", _on_the_learners_device)


def _on_the_learners_device(upstream: Callable[[Any], None]) -> Callable[[Any], None]:
    def before_fit(self: Any) -> None:
        device = getattr(self.learn.dls, "device", None)
        on_ocl = getattr(device, "type", str(device).split(":")[0]) == "ocl"
        with cuda_means_ocl() if on_ocl else contextlib.nullcontext():
            upstream(self)

    return before_fit


PATCHES = {"fastai.callback.fp16": _fp16, "fastai.torch_core": _torch_core}
