"""Strides that fake tensors expect of convolutions, for torch.compile and torch.export.

Upstream asks one function which memory format a convolution's backend computes in. It knows the
backends of its own devices: of any other it says contiguous, where ours follows the operands.
"""

from typing import Any

import torch


def install() -> None:
    """Makes that function answer for `ocl`; nothing where torch has no such function."""
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
