"""torch.cuda.cudart(), where "cuda" is `ocl`: the functions of CUDA's runtime library that programs
call there, by a search over public ones. Others are absent, and say so.
"""

import enum
import types
from typing import Any

import torch

from torch_ocl import _C


class cudaError(enum.IntEnum):
    """The codes of CUDA's that these functions return."""

    success = 0
    invalidValue = 1
    hostMemoryAlreadyRegistered = 712
    hostMemoryNotRegistered = 713


_TEXTS = {
    cudaError.success: "no error",
    cudaError.invalidValue: "invalid argument",
    cudaError.hostMemoryAlreadyRegistered: "part or all of the memory is already pinned",
    cudaError.hostMemoryNotRegistered: "no memory that is registered begins at that address",
}


def cudaGetErrorString(error: int) -> str:
    """The meaning of a code, as a string."""
    try:
        return _TEXTS[cudaError(error)]
    except ValueError:
        return "unrecognized error code"


def cudaProfilerStart() -> cudaError:
    """Nothing: there is no tool of CUDA's that listens. torch.ocl.profiler measures."""
    return cudaError.success


def cudaProfilerStop() -> cudaError:
    """As cudaProfilerStart()."""
    return cudaError.success


def cudaMemGetInfo(device: int) -> tuple[int, int]:
    """The bytes of a device that are free, and all."""
    return torch.ocl.mem_get_info(device)


def cudaHostRegister(ptr: int, size: int, flags: int = 0) -> cudaError:
    """Has memory of the host count as pinned: copies from and to it need not wait.

    Flags for addresses on the device make no difference.
    """
    if ptr <= 0 or size <= 0:
        return cudaError.invalidValue
    done = _C.register_host_memory(ptr, size)
    return cudaError.success if done else cudaError.hostMemoryAlreadyRegistered


def cudaHostUnregister(ptr: int) -> cudaError:
    """Ends what cudaHostRegister() began. Work that uses the memory has to be done."""
    if ptr <= 0:
        return cudaError.invalidValue
    done = _C.unregister_host_memory(ptr)
    return cudaError.success if done else cudaError.hostMemoryNotRegistered


def module() -> types.ModuleType:
    """The module that torch.cuda.cudart() returns."""
    made = types.ModuleType("torch._C._cudart", __doc__)
    offered: tuple[Any, ...] = (
        cudaError,
        cudaGetErrorString,
        cudaHostRegister,
        cudaHostUnregister,
        cudaMemGetInfo,
        cudaProfilerStart,
        cudaProfilerStop,
    )
    for each in offered:
        setattr(made, each.__name__, each)

    def __getattr__(name: str) -> Any:
        has = ", ".join(each.__name__ for each in offered)
        raise AttributeError(f"cudart() has no {name} on ocl: it has {has}")

    made.__getattr__ = __getattr__
    return made
