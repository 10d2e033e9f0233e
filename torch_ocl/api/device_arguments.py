"""Device arguments: what users pass where a device is expected."""

import sys
from types import FrameType
from typing import TypeAlias

import torch

from torch_ocl import _C

DeviceLike: TypeAlias = torch.device | str | int | None


def _get_device_index(device: DeviceLike, optional: bool = False) -> int:
    """The index that `device` names: an int, "ocl", "ocl:1" or a torch.device.

    No index, and None if `optional`, mean the current device. Raises ValueError for other device
    types. Whether the device exists is not checked.
    """
    if isinstance(device, bool):
        raise TypeError(f"expected an ocl device, got {device!r}")
    if isinstance(device, int):
        return device
    if device is None:
        if not optional:
            raise ValueError("expected an ocl device or its index, got None")
        return _C.current_device()
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device):
        raise TypeError(f"expected an ocl device or its index, got {device!r}")
    if device.type != "ocl":
        raise ValueError(f"expected an ocl device, got {device}")
    return _C.current_device() if device.index is None else device.index


def begin_use() -> None:
    """Initialises OpenCL: for functions that initialise CUDA in torch.cuda.

    A call of torch's own code doesn't, since it asks on behalf of programs on the CPU, too. Raises
    RuntimeError if there is no device.
    """
    if _C.is_initialized():
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module_of(frame).startswith("torch_ocl"):
        frame = frame.f_back
    asks = "" if frame is None else _module_of(frame)
    if asks != "torch" and not asks.startswith("torch."):
        _C.check_device(0)


def _module_of(frame: FrameType) -> str:
    return frame.f_globals.get("__name__") or ""


def existing_device_index(device: DeviceLike) -> int:
    """As _get_device_index with optional, but raises RuntimeError if there is no such device."""
    index = _get_device_index(device, optional=True)
    if not 0 <= index < _C.device_count():
        _C.check_device(index)  # which says what devices there are
    return index


def is_unused(device: DeviceLike) -> bool:
    """Whether OpenCL isn't in use yet, so that there is nothing to tell. A device other than the
    current one is looked for all the same: RuntimeError if there is none."""
    if _get_device_index(device, optional=True) != _C.current_device():
        existing_device_index(device)
    return not _C.is_initialized()
