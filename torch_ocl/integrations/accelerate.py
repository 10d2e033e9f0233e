"""accelerate: default device, memory by device, mixed precision in float16, torchrun."""

import functools
import os
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import Absent, admit, attribute, wrap

_ADVICE = "set ACCELERATE_TORCH_DEVICE=ocl"
_ADVICE_MAP = "name it, as in device_map='ocl'"


def _state(state: ModuleType) -> None:
    kind = attribute(state, "PartialState")
    _default_device(kind)
    several = attribute(attribute(state, "DistributedType"), "MULTI_CPU")
    wrap(kind, "_prepare_backend", functools.partial(_together, several))
    wrap(kind, "set_device", functools.partial(_a_device_each, several))


def _together(several: Any, upstream: Callable[..., tuple]) -> Callable[..., tuple]:
    """Processes of one launch train together. Upstream has a list of devices on which they do, and
    lets them train separate models on others. What it calls several CPUs is gloo with any device.
    """

    def _prepare_backend(
        self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
    ) -> tuple:
        found = upstream(self, cpu, sagemaker_dp, backend)
        launched = int(os.environ.get("LOCAL_RANK", -1)) >= 0
        if found[0] is not None or not launched or int(os.environ.get("WORLD_SIZE", 1)) < 2:
            return found
        asked = self.device.type == "ocl" if self.device is not None else not cpu
        if asked and (self.device is not None or _choice.chooses_ocl("accelerate", _ADVICE)):
            return backend or "gloo", several
        return found

    return _prepare_backend


def _a_device_each(several: Any, upstream: Callable[[Any], None]) -> Callable[[Any], None]:
    """By the local rank; processes take them by turns where there are fewer."""

    def set_device(self: Any) -> None:
        named = self.device
        upstream(self)
        if self.distributed_type != several or named is None and self._cpu:
            return
        ours = named.type == "ocl" and named.index is None if named else True
        if ours and (named or _choice.chooses_ocl("accelerate", _ADVICE)):
            count = torch.ocl.device_count()
            self.device = torch.device("ocl", self.local_process_index % count)
            torch.ocl.set_device(self.device)

    return set_device


def _default_device(kind: type) -> None:
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
    bytes_of = attribute(modeling, "convert_file_size_to_int")
    wrap(modeling, "get_max_memory", functools.partial(_with_our_memory, bytes_of))
    wrap(modeling, "get_grad_scaler", _scaling_on_ocl)


def _with_our_memory(
    bytes_of: Callable[[str], int], upstream: Callable[..., dict]
) -> Callable[..., dict]:
    def get_max_memory(max_memory: dict | None = None) -> dict:
        # Upstream leaves the CPU out where a device has the same memory, too.
        if _choice.has_other_accelerator():
            return upstream(max_memory)
        if max_memory is not None:
            # Upstream warns of numbers of devices that aren't CUDA's.
            numbers = range(torch.ocl.device_count())
            ours = {k: max_memory[k] for k in sorted(set(numbers) & set(max_memory))}
            ours = {k: bytes_of(v) if isinstance(v, str) else v for k, v in ours.items()}
            return ours | upstream({k: v for k, v in max_memory.items() if k not in ours})
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
    kind = attribute(accelerator, "Accelerator")
    admit(kind, "__init__", {"cuda", "xpu", "npu"})
    wrap(kind, "__init__", _saying_that_nothing_is_sharded)


def _saying_that_nothing_is_sharded(upstream: Callable[..., None]) -> Callable[..., None]:
    """Upstream drops the FSDP plugin in silence for devices that aren't on its list."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        upstream(self, *args, **kwargs)
        asked = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
        asked = asked or kwargs.get("fsdp_plugin") is not None
        if asked and self.device.type == "ocl" and "FSDP" not in str(self.distributed_type):
            warnings.warn(
                "accelerate's FSDP plugin doesn't know ocl: nothing is sharded, and the processes "
                "train by DistributedDataParallel. torch.distributed.fsdp.fully_shard shards a "
                "model (docs/user/distributed.md).",
                stacklevel=2,
            )

    return __init__


PATCHES = {
    "accelerate.accelerator": _accelerator,
    "accelerate.state": _state,
    "accelerate.utils.modeling": _modeling,
}
