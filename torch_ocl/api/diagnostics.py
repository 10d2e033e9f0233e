"""Diagnostics: what ran where, and what was compiled."""

from torch_ocl import _C
from torch_ocl.api.device_arguments import DeviceLike, existing_device_index, is_unused


def fallback_counts() -> dict[str, int]:
    """How often each op without a kernel ran on the CPU (only with TORCH_OCL_FALLBACK=1)."""
    return _C.fallback_counts()


def reset_fallback_counts() -> None:
    """Forgets the counts of fallback_counts()."""
    _C.reset_fallback_counts()


def host_staged_counts() -> dict[str, int]:
    """How often each op that computes on the host by design ran (LAPACK factorisations, ...)."""
    return _C.host_staged_counts()


def reset_host_staged_counts() -> None:
    """Forgets the counts of host_staged_counts()."""
    _C.reset_host_staged_counts()


def launch_count(device: DeviceLike = None) -> int:
    """How many kernels were launched on a device since the start or reset_launch_count(), by all
    threads and on all streams. Copies and fills are no kernels."""
    return 0 if is_unused(device) else _C.launch_count(existing_device_index(device))


def reset_launch_count(device: DeviceLike = None) -> None:
    """Sets the count of launch_count() to 0."""
    if not is_unused(device):
        _C.reset_launch_count(existing_device_index(device))


def program_stats() -> dict[str, float]:
    """How many OpenCL programs this process built from source and loaded from the cache on disk
    ("built", "loaded"), how many of the first its build workers built ("built_by_workers"), and the
    seconds that each took, added up ("build_seconds", "load_seconds")."""
    return _C.program_stats()
