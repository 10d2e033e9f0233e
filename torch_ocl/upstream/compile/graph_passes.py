"""This package's own passes run before Inductor's on graphs that have tensors on ocl.

Upstream's hook, `config.post_grad_custom_pre_pass`, holds one function, which is the user's.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_ocl.upstream.compile import fallbacks
from torch_ocl.upstream.compile.replacement import replace


def install() -> None:
    """Applies the change, once."""
    from torch._inductor.fx_passes import post_grad

    upstream = post_grad.post_grad_passes

    @functools.wraps(upstream)
    def post_grad_passes(gm: torch.fx.GraphModule, is_inference: bool, **kwargs: Any) -> Any:
        if any(_is_ours(node.meta.get("val")) for node in gm.graph.nodes):
            from torch_ocl.inductor import passes

            fallbacks.forget()
            passes.run(gm.graph)
        return upstream(gm, is_inference, **kwargs)

    replace("post_grad_passes", upstream, post_grad_passes)


def _is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "ocl"
