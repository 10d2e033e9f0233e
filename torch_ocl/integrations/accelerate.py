"""accelerate: its default device, memory by device, mixed precision in float16."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import Absent, admit, attribute, wrap

_ADVICE = "set ACCELERATE_TORCH_DEVICE=ocl"
_ADVICE_MAP = "name it, as in device_map='ocl'"


def _default_device(state: ModuleType) -> None:
    kind = attribute(state, "PartialState")
    upstream = attribute(kind, "default_device")
    if not isinstance(upstream, property):
        raise Absent("PartialState.default_device is no property")

    @functools.wraps(upstream.fget)
    def default_device(self: Any) -> torch.device:
        device = upstream.fget(self)
        if device.type == "cpu" and _choice.chooses_ocl("accelerate", _ADVICE):
            return torch.device("ocl")
        return device

    kind.default_device = property(default_device)


def _modeling(modeling: ModuleType) -> None:
    wrap(modeling, "get_max_memory", _with_our_memory)
    wrap(modeling, "get_grad_scaler", _scaling_on_ocl)


def _with_our_memory(upstream: Callable[..., dict]) -> Callable[..., dict]:
    def get_max_memory(max_memory: dict | None = None) -> dict:
        # Upstream leaves the CPU out where a device has the same memory, too.
        if max_memory is not None or _choice.has_other_accelerator():
            return upstream(max_memory)
        found = upstream(None)
        if set(found) != {"cpu"} or not _choice.chooses_ocl("device_map='auto'", _ADVICE_MAP):
            return found
        count = torch.ocl.device_count()
        ours = {index: torch.ocl.mem_get_info(index)[0] for index in range(count)}
        shared = any(
            torch.ocl.get_device_properties(index).host_unified_memory for index in range(count)
        )
        return ours if shared else {**ours, **found}

    return get_max_memory


def _scaling_on_ocl(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def get_grad_scaler(distributed_type: Any = None, **kwargs: Any) -> Any:
        from accelerate.state import DistributedType, PartialState

        alone = distributed_type in (None, DistributedType.NO)
        if alone and PartialState().device.type == "ocl":
            return torch.amp.GradScaler("ocl", **kwargs)
        return upstream(distributed_type, **kwargs)

    return get_grad_scaler


def _accelerator(accelerator: ModuleType) -> None:
    admit(attribute(accelerator, "Accelerator"), "__init__", {"cuda", "xpu", "npu"})


PATCHES = {
    "accelerate.accelerator": _accelerator,
    "accelerate.state": _default_device,
    "accelerate.utils.modeling": _modeling,
}
