"""lm-eval: `--device ocl` of its models from Hugging Face, and their default device.

Upstream makes a list of devices within a long function, and takes the CPU for a name that isn't on
it. The next thing that it does there is to read the model's configuration, which is where the
device is set.
"""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import Absent, attribute, wrap

_ADVICE = "--device ocl"
_ASKED = "_torch_ocl_device"


def _huggingface(module: ModuleType) -> None:
    kind = attribute(module, "HFLM")
    attribute(kind, "_get_config")
    wrap(kind, "__init__", _remembering)
    log = attribute(module, "eval_logger")
    wrap(kind, "_get_config", lambda upstream: _on_the_device(upstream, log))


def _remembering(upstream: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(upstream)
    if "device" not in signature.parameters:
        raise Absent("HFLM has no parameter device")

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        asked = given.get("device", signature.parameters["device"].default)
        setattr(self, _ASKED, asked)
        if asked == "cpu" or _is_ocl(asked):
            _choice.settle("accelerate")
        upstream(self, *args, **kwargs)

    return __init__


def _is_ocl(device: Any) -> bool:
    return str(device).partition(":")[0] == "ocl"


def _on_the_device(upstream: Callable[..., Any], log: Any) -> Callable[..., Any]:
    def _get_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = getattr(self, "_device", None)
        # accelerate's launches have chosen a device for each process.
        if getattr(chosen, "type", "") == "cpu" and not getattr(self, "accelerator", None):
            asked = getattr(self, _ASKED, None)
            if _is_ocl(asked):
                self._device = torch.device(asked)
            # A name of CUDA's is the default, of which upstream makes the CPU.
            elif asked != "cpu" and _choice.chooses_ocl("lm-eval", _ADVICE):
                self._device = torch.device("ocl")
            if self._device != chosen:
                log.info(f"Using device '{self._device}'")
        return upstream(self, *args, **kwargs)

    return _get_config


PATCHES = {"lm_eval.models.huggingface": _huggingface}
