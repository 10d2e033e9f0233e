"""Inductor's lowerings of the ops that are templates here: matrix products, convolutions and
flex_attention. What joins their kernels is decided in torch_ocl/inductor/templates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def install() -> None:
    """Applies the changes, once."""
    _products()
    _casts_before_products()
    _linear_layers()
    _convolutions()
    _flex_attention()


def _products() -> None:
    """Matrix products are calls of eager ops, which nothing is fused with."""
    from torch._inductor.lowering import lowerings

    from torch_ocl.inductor.templates import products

    aten = torch.ops.aten
    addends = {aten.mm: False, aten.bmm: False, aten.addmm: True, aten.baddbmm: True}
    for packet, addend in addends.items():
        # Other lowerings find them by their packets.
        for op in (packet, packet.default):
            lowerings[op] = products.lowering_of(packet.__name__, lowerings[op], addend)
    for op in (aten.convolution, aten.convolution.default):
        lowerings[op] = products.convolution_lowering_of(lowerings[op])


def _casts_before_products() -> None:
    """Upstream forgets what was cast or scaled before a product is lowered."""
    from torch._inductor.lowering import lowerings

    from torch_ocl.inductor.templates import prologue

    for op in (prologue.CAST, prologue.SCALE):
        lowerings[op] = prologue.keeping(op, lowerings[op])


def _linear_layers() -> None:
    """An op of our own: a call of it, which nothing is fused with, is what upstream makes."""
    from torch._inductor.lowering import fallback_handler, lowerings

    from torch_ocl.inductor.passes import shared_input  # noqa: F401  (the op's fake)
    from torch_ocl.inductor.templates import pieces

    op = torch.ops.ocl.linear_pieces.default
    lowerings[op] = pieces.lowering_of(fallback_handler(op, add_to_fallback_set=False))


def _convolutions() -> None:
    """Convolutions are calls of eager ops, too."""
    from torch._inductor.kernel import conv

    from torch_ocl.inductor.templates import convolutions

    conv.aten_convolution.bind = convolutions.binding_of(conv.aten_convolution.bind)


def _flex_attention() -> None:
    """flex_attention's lowerings know CPUs and Triton."""
    # Their modules register the lowerings.
    import torch._inductor.kernel.flex.flex_attention
    from torch._inductor.lowering import lowerings

    from torch_ocl.inductor.templates import flex

    ops = torch.ops.higher_order
    replacements = {
        ops.flex_attention: flex.forward,
        ops.flex_attention_backward: flex.backward,
    }
    for op, ours in replacements.items():
        lowerings[op] = _for_ocl(lowerings[op], ours)


def _for_ocl(upstream: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(upstream)
    def lowering(query: Any, *args: Any, **kwargs: Any) -> Any:
        function = ours if query.get_device().type == "ocl" else upstream
        return function(query, *args, **kwargs)

    return lowering
