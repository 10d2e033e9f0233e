"""Inductor compiles a graph again where a driver refuses one of its kernels."""

from __future__ import annotations

import functools
from typing import Any

from torch_ocl.inductor import refused


def install() -> None:
    """Compiles a graph again, without generated kernels for the ops of one that was refused."""
    from torch._inductor import compile_fx, lowering

    upstream = compile_fx.fx_codegen_and_compile

    @functools.wraps(upstream)
    def fx_codegen_and_compile(*args: Any, **kwargs: Any) -> Any:
        replaced: dict[Any, Any] = {}
        try:
            while True:
                try:
                    return upstream(*args, **kwargs)
                except refused.RefusedKernel as kernel:
                    new = [op for op in kernel.ops if op not in replaced]
                    if not new:
                        raise
                    for op in new:
                        replaced[op] = lowering.lowerings.get(op)
                        lowering.lowerings[op] = lowering.fallback_handler(op, False)
                        refused.count_fallback(op)
        finally:
            for op, handler in replaced.items():
                if handler is None:
                    lowering.lowerings.pop(op, None)
                else:
                    lowering.lowerings[op] = handler

    compile_fx.fx_codegen_and_compile = fx_codegen_and_compile
