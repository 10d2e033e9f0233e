"""What ran where, and what was compiled."""

from torch_ocl import _C


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


def program_stats() -> dict[str, float]:
    """How many OpenCL programs this process built from source and loaded from the cache on disk
    ("built", "loaded"), and the seconds that took ("build_seconds", "load_seconds")."""
    return _C.program_stats()
