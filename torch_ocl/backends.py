"""torch.backends.ocl: whether the backend is there, its version and its switches."""

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["flags", "is_available", "is_built", "set_flags", "version"]


def is_available() -> bool:
    """True if there is a usable OpenCL device. Does not initialise OpenCL."""
    return torch.ocl.is_available()


def is_built() -> bool:
    """True if the native part of this package could be loaded, whether or not there is a device."""
    return hasattr(torch.ocl, "_C")


def version() -> str | None:
    """OpenCL's version that the current device has, such as "3.0"; None without a device."""
    if not is_available():
        return None
    words = torch.ocl.get_device_properties().version.split()  # "OpenCL 3.0 (driver's words)"
    return words[1] if len(words) > 1 else None


def set_flags(tuning: bool | None = None) -> tuple[bool]:
    """Sets what isn't None, and returns what was before.

    Args:
        tuning: whether matrix products are tuned (torch.ocl.tunable.enable()).
    """
    before = (torch.ocl.tunable.is_enabled(),)
    if tuning is not None:
        torch.ocl.tunable.enable(tuning)
    return before


@contextlib.contextmanager
def flags(tuning: bool | None = None) -> Iterator[None]:
    """A context with set_flags(); afterwards everything is as it was."""
    before = set_flags(tuning)
    try:
        yield
    finally:
        set_flags(*before)
