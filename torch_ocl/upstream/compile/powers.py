"""Integers to the power of a number that changes between calls.

pow() in torch/_inductor/lowering.py asks whether an operand is a number, which a symbol is not, and
calls the overload of two tensors. PyTorch 2.13 needs it, on the CPU, too.
"""

from __future__ import annotations

import functools
from typing import Any

from torch_ocl.upstream.compile.replacement import replace


def install() -> None:
    """Applies the change, once."""
    from torch._inductor import ir, lowering

    upstream = lowering.fallback_pow_tensor_tensor

    @functools.wraps(upstream)
    def fallback_pow_tensor_tensor(a: Any, b: Any) -> Any:
        if not isinstance(b, ir.TensorBox) and a.get_device().type == "ocl":
            return lowering.fallback_pow_tensor_scalar(a, b)
        if not isinstance(a, ir.TensorBox) and b.get_device().type == "ocl":
            return lowering.fallback_pow_scalar(a, b)
        return upstream(a, b)

    replace("fallback_pow_tensor_tensor", upstream, fallback_pow_tensor_tensor)
