"""Shapes and strides that fake tensors expect, for torch.compile and torch.export.

Upstream decides some by the device's name, of devices that it knows. Where our results follow CPU
torch's, or their operands, graphs would be compiled for strides that no result has.
"""

from typing import Any

import torch


def install() -> None:
    """Makes upstream's functions answer for `ocl`; nothing where torch has no such functions."""
    _install_convolution_format()
    _install_device_hint()


def _install_convolution_format() -> None:
    """Which memory format a convolution's result has; of devices not known, contiguous."""
    upstream = getattr(torch._C, "_conv_determine_backend_memory_format", None)
    if upstream is None:
        return

    def determine(input: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if input.device.type != "ocl":
            return upstream(input, weight, backend)
        return _convolution_format(input, weight)

    torch._C._conv_determine_backend_memory_format = determine


def _convolution_format(input: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """As in csrc/ops/Convolution.cpp: that of either operand that has one of its own."""
    from torch._prims_common import suggest_memory_format

    own = suggest_memory_format(input)
    if own != torch.contiguous_format or input.dim() != weight.dim():
        return own
    return suggest_memory_format(weight)


def _install_device_hint() -> None:
    """Which device a result is computed on, as shape functions ask where theirs differ."""
    module = getattr(torch, "_meta_registrations", None)
    upstream = getattr(module, "device_hint", None)
    # Fourier transforms have the strides that CPU torch's have with MKL, wherever they run.
    if upstream is None or not torch.backends.mkl.is_available():
        return

    def device_hint(tensor: Any) -> str:
        device = upstream(tensor)
        return "cpu" if device == "ocl" else device

    module.device_hint = device_hint
