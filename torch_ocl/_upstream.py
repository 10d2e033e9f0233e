"""Parts of torch that go by a list of devices' names, in which that of PrivateUse1 can't be."""

import contextlib
import functools
from typing import Any

import torch
from torch.overrides import has_torch_function_unary


def install() -> None:
    """Parts that another version of torch lacks are left out: `import torch` must go on."""
    for change in (_dlpack_device, _accelerator_snapshot):
        with contextlib.suppress(AttributeError, ImportError):
            change()


def _dlpack_device() -> None:
    """torch.from_dlpack() asks a tensor for its device. It is DLPack's kDLExtDev, as upstream's C++
    part has it: addresses of `ocl` tensors mean nothing to other libraries for OpenCL."""
    from torch.utils.dlpack import DLDeviceType

    upstream = torch.Tensor.__dlpack_device__

    @functools.wraps(upstream)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        if has_torch_function_unary(self) or self.device.type != "ocl":
            return upstream(self)
        return DLDeviceType.kDLExtDev, self.device.index or 0

    torch.Tensor.__dlpack_device__ = __dlpack_device__


def _accelerator_snapshot() -> None:
    """torch.accelerator.memory._snapshot() knows two devices."""
    upstream = torch.accelerator.memory._snapshot

    @functools.wraps(upstream)
    def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None or accelerator.type != "ocl":
            return upstream(device, augment_with_fx_traces)
        return torch.ocl.memory._snapshot(device, augment_with_fx_traces)

    torch.accelerator.memory._snapshot = _snapshot
