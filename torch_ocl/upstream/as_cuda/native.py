"""torch._C's functions for CUDA that public libraries call, where "cuda" is `ocl`.

A torch without CUDA has none of them. Libraries call them where torch.cuda.is_available() is True:
bitsandbytes, Triton's users, apex and vLLM ask for the raw stream, vLLM and others empty caches and
workspaces by them, accelerate asks for forks. _cuda_getDeviceCount stays absent: by that name torch
decides whether it was built with CUDA. So do the others, and raise what a torch without CUDA does.
"""

from collections.abc import Callable
from typing import Any

import torch

from torch_ocl import _C


def _raw_stream(index: int) -> int:
    """The command queue of a device's current stream, as a number."""
    return _C.shared_queue(index)


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    _C.set_device(device_index)
    _C.set_stream(stream_id, device_index)


def _maybe_exchange_device(index: int) -> int:
    return _C.exchange_device(index) if index >= 0 else -1


def functions() -> dict[str, Callable[..., Any]]:
    """The functions by their names in torch._C."""
    ocl = torch.ocl
    return {
        "_cuda_attach_out_of_memory_observer": ocl.memory._attach_out_of_memory_observer,
        "_cuda_canDeviceAccessPeer": ocl.can_device_access_peer,
        "_cuda_clearCublasWorkspaces": lambda: None,  # there are none
        "_cuda_emptyCache": ocl.empty_cache,
        "_cuda_exchangeDevice": _C.exchange_device,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_getArchFlags": lambda: None,  # torch was built for no architecture of CUDA's
        "_cuda_getCurrentRawStream": _raw_stream,
        "_cuda_getCurrentStream": _C.current_stream,
        "_cuda_getDefaultStream": _C.default_stream,
        "_cuda_getDevice": ocl.current_device,
        "_cuda_get_sync_debug_mode": ocl.get_sync_debug_mode,
        "_cuda_hasPrimaryContext": lambda index: ocl.is_initialized(),
        "_cuda_init": ocl.init,
        "_cuda_isCurrentStreamCapturing": ocl.is_current_stream_capturing,
        "_cuda_isInBadFork": _C.is_in_bad_fork,
        "_cuda_maybeExchangeDevice": _maybe_exchange_device,
        "_cuda_memorySnapshot": lambda pool=None: ocl.memory._snapshot(),
        "_cuda_memoryStats": ocl.memory_stats_as_nested_dict,
        "_cuda_resetAccumulatedMemoryStats": ocl.reset_accumulated_memory_stats,
        "_cuda_resetPeakMemoryStats": ocl.reset_peak_memory_stats,
        "_cuda_setDevice": ocl.set_device,
        "_cuda_setMemoryFraction": ocl.set_per_process_memory_fraction,
        "_cuda_setStream": _set_stream,
        "_cuda_set_sync_debug_mode": ocl.set_sync_debug_mode,
        "_cuda_synchronize": ocl.synchronize,
    }


def install() -> None:
    """Adds the functions to torch._C."""
    for name, function in functions().items():
        setattr(torch._C, name, function)
