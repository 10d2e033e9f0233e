"""Dynamo and Inductor ask this of the device."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface
from torch._inductor.codegen.common import DeviceOpOverrides

from torch_ocl import _C


@functools.cache
def _properties(index: int) -> dict[str, Any]:
    return dict(_C.properties(index))


def is_cpu_form(index: int) -> bool:
    """Whether kernels for a device are written for CPUs; TORCH_OCL_TUNE_AS decides otherwise."""
    tuned_as = os.environ.get("TORCH_OCL_TUNE_AS")
    if tuned_as in ("cpu", "gpu"):
        return tuned_as == "cpu"
    return bool(_properties(index)["type"] == "cpu")


@functools.cache
def vector_bytes(index: int) -> int:
    """Bytes of a CPU's vector register, as the engines take it."""
    return int(_C.vector_bytes(index))


@functools.cache
def work_group_sizes(index: int) -> tuple[int, int]:
    """Work-items of a GPU's work-group, as the engines have them: usual ones, and those of a long
    row; both are powers of two from 32 on."""
    row = _C.device_row(index)
    return row["row_group"], row["element_group"]


def require_fp64(index: int) -> None:
    """TypeError for a device without double precision."""
    if not _properties(index)["has_fp64"]:
        raise TypeError(f"{_properties(index)['name']} has no float64")


class _Properties:
    """A device's properties, with what inductor's heuristics for splitting reductions take for
    given: where a driver has no sub-groups, a warp is one work-item, and parts get too short."""

    def __init__(self, properties: Any) -> None:
        self._properties = properties
        self.warp_size = max(32, properties.warp_size)
        self.max_threads_per_multi_processor = max(2048, properties.max_threads_per_multi_processor)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._properties, name)


def get_device_properties(device: Any = None) -> _Properties:
    """torch.ocl.get_device_properties, for inductor."""
    return _Properties(torch.ocl.get_device_properties(device))


class Interface(DeviceInterface):
    """As torch.ocl has it."""

    device = torch.ocl.device
    Event = torch.ocl.Event
    Stream = torch.ocl.Stream

    class Worker:
        """The interface of inductor's other processes, which build nothing for this device."""

        set_device = staticmethod(torch.ocl.set_device)
        current_device = staticmethod(torch.ocl.current_device)
        get_device_properties = staticmethod(get_device_properties)

    current_device = staticmethod(torch.ocl.current_device)
    set_device = staticmethod(torch.ocl.set_device)
    device_count = staticmethod(torch.ocl.device_count)
    is_available = staticmethod(torch.ocl.is_available)
    current_stream = staticmethod(torch.ocl.current_stream)
    set_stream = staticmethod(torch.ocl.set_stream)
    stream = staticmethod(torch.ocl.stream)
    synchronize = staticmethod(torch.ocl.synchronize)
    get_device_properties = staticmethod(get_device_properties)
    memory_allocated = staticmethod(torch.ocl.memory_allocated)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        place = {"device_index": device_index, "device_type": device_type}
        torch.ocl.set_stream(torch.ocl.Stream(stream_id=stream_id, **place))

    @staticmethod
    def get_raw_stream(device_index: int) -> int:
        return 0

    @staticmethod
    def exchange_device(device: int) -> int:
        return int(_C.exchange_device(device)) if device >= 0 else -1

    maybe_exchange_device = exchange_device

    @staticmethod
    def get_compute_capability(device: Any = None) -> int:
        return 0

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        # Computed in float, as eagerly: a graph of bfloat16 is worth compiling.
        return True

    @classmethod
    def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
        return dtype in torch.ocl.get_device_capability()["supported_dtypes"]


class OpOverrides(DeviceOpOverrides):
    """Lines of generated Python, and names of generated C++."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"def {name}(_): return 0\n"

    def set_device(self, device_idx: int) -> str:
        return f"torch.ocl.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.ocl.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.ocl.device({device_idx})"

    def current_stream(self) -> str:
        return "torch.ocl.current_stream()"

    def cpp_aoti_device_guard(self) -> str:
        return "torch_ocl::DeviceGuard"

    def cpp_aoti_stream_guard(self) -> str:
        return "torch_ocl::StreamGuard"

    def aten_device_type(self) -> str:
        return "at::kPrivateUse1"

    def cpp_kernel_type(self) -> str:
        return "torch_ocl::Kernel"
