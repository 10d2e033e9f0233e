"""An input that is written part by part is written in place.

A change of torch, for graphs on ocl alone. PyTorch 2.13 needs it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

_INPUTS = ("placeholder", "get_attr")


def install() -> None:
    """Applies the change, once.

    should_reinplace_scatter() in torch/_inductor/fx_passes/reinplace.py finds a copy into an input
    behind a single write. Where there are several, such as a token's for each layer of a cache,
    each makes a copy of the whole input."""
    from torch._inductor.fx_passes import reinplace

    scatter = reinplace._generalized_scatter
    upstream = reinplace.inplaceable_ops[scatter]
    kinds = {scatter, upstream.inplace_op}

    def extra_check(node: torch.fx.Node) -> bool:
        return upstream.extra_check(node) or (_is_on_ocl(node) and writes_an_input(node, kinds))

    reinplace.inplaceable_ops[scatter] = dataclasses.replace(upstream, extra_check=extra_check)


def _is_on_ocl(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "ocl"


def writes_an_input(node: torch.fx.Node, kinds: set[Any]) -> bool:
    """Whether a write is one of a row that begins with an input and ends with the copy into it.
    `kinds`: the targets of writes into the first argument."""
    first = node.args[0]
    while first.target in kinds:
        first = first.args[0]
    if first.op not in _INPUTS:
        return False
    while True:
        copies = [user for user in node.users if user.target is torch.ops.aten.copy_.default]
        if any(copy.args[:2] == (first, node) for copy in copies):
            return True
        later = [user for user in node.users if user.target in kinds and user.args[0] is node]
        if len(later) != 1:
            return False
        node = later[0]
