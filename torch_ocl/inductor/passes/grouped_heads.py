"""Attention reads heads that several queries share where they lie.

Models repeat each head of key and value for its group of queries, as upstream's attention wants
(`repeat_kv` of transformers, `repeat_interleave`): a copy of the whole cache for each token. The
attention kernels take fewer heads of key and value than of query.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten
_VIEWS = {aten.view.default, aten.reshape.default, aten._unsafe_view.default}
_ATTENTION = aten._scaled_dot_product_fused_attention_overrideable.default


def run(graph: torch.fx.Graph) -> None:
    """Attention of repeated heads becomes attention of the heads."""
    for node in graph.find_nodes(op="call_function", target=_ATTENTION):
        query, key, value, *rest = node.args
        heads = [_before_repeat(x) for x in (key, value)]
        if None in heads or node.meta["val"][0].device.type != "ocl":
            continue
        counts = [x.meta["val"].size(1) for x in heads]
        if statically_known_true(counts[0] == counts[1]):
            node.args = (query, *heads, *rest)
    graph.eliminate_dead_code()


def _before_repeat(node: Any) -> torch.fx.Node | None:
    """The tensor of (batch, heads, length, width) whose heads a node has several times, each time
    next to each other. None if it is something else."""
    repeated = node.meta["val"]
    if node.target not in _VIEWS:
        return None
    node = node.args[0]
    while node.target is aten.clone.default:
        node = node.args[0]
    if node.target is not aten.expand.default:
        return None
    sizes = node.meta["val"].shape
    node = node.args[0]
    if node.target is not aten.unsqueeze.default or len(sizes) != 5:
        return None
    source, axis = node.args
    found = source.meta["val"].shape
    if axis not in (2, -3):
        return None
    # The batch isn't expanded, and the view joins heads and times alone.
    kept = [*zip(sizes[:2], found[:2], strict=True), *zip(sizes[3:], found[2:], strict=True)]
    joined = [sizes[0], sizes[1] * sizes[2], *sizes[3:]]
    kept += zip(repeated.shape, joined, strict=True) if repeated.dim() == 4 else [(0, 1)]
    return source if all(statically_known_true(a == b) for a, b in kept) else None
