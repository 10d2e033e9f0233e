"""torch.backends.ocl: whether the backend is there, its version and its switches."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["flags", "is_available", "is_built", "set_flags", "version"]


class _Float32:
    """The precision that float32 may be rounded to in one kind of op.

    fp32_precision is "tf32" (11 bits), "bf16x3" (16 bits, as two numbers in bfloat16) or "bf16" (8
    bits), each where the device has units for it (products alone in bfloat16); "ieee" (all 24); or
    "none": as torch.set_float32_matmul_precision (products alone) and torch.backends.fp32_precision
    say, which is all 24 by default. Raises ValueError for another value.
    """

    __slots__ = ("_use",)

    def __init__(self, use: str) -> None:
        self._use = use

    @property
    def fp32_precision(self) -> str:
        return str(_native().float32_precision(self._use))

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        _native().set_float32_precision(self._use, value)

    @property
    def allow_tf32(self) -> bool:
        """Whether fp32_precision is "tf32"; the older name."""
        return self.fp32_precision == "tf32"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        self.fp32_precision = "tf32" if value else "ieee"


def _native() -> Any:
    from torch_ocl import _C

    return _C


#: Matrix products, and convolutions.
matmul, conv = _Float32("matmul"), _Float32("conv")


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
