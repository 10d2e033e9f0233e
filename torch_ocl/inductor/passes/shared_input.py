"""Linear layers of one input become one product: query, key and value of attention.

With few rows a launch takes as long as reading a small weight, and a large device is not filled by
one of them. The weights stay where they are: the kernel finds its row in one of three tensors
(csrc/ops/linalg/LinearPieces.cpp). More rows go to other kernels, which gain nothing.

On GPUs the product takes the RMS norm of its input, too. A work-group reads the whole input for its
column anyway, and a processor's core would normalise it again for each. A layer of a quantised
weight becomes such a product even alone: what follows can join that (templates/pieces.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config

from torch_ocl import _C
from torch_ocl.inductor import device as devices
from torch_ocl.inductor.passes.linear import RESHAPES, Linear, find_linear
from torch_ocl.inductor.passes.norms import RmsNorm, find_norm

aten = torch.ops.aten
_VIEWS = RESHAPES | {
    aten.permute.default,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.squeeze.dim,
}
_CAST = torch.ops.prims.convert_element_type.default


def run(graph: torch.fx.Graph) -> None:
    """Products of few rows that share their left operand become torch.ops.ocl.linear_pieces."""
    found: dict[Any, list[Linear]] = {}
    for node in graph.nodes:
        if (layer := find_linear(node)) is not None:
            # With the rows, a source's size tells the columns, which may be a symbol.
            key = (_source(layer.input), layer.rows, layer.likeness())
            found.setdefault(key, []).append(layer)
    order = {node: place for place, node in enumerate(graph.nodes)}
    for (source, *_), layers in found.items():
        if norm := _norm(source, layers):
            _join_in_order(graph, layers, order, norm)
            continue
        # In C++ nothing joins it: the product alone stays torch's own op.
        quantised = layers[0].scales is not None and not config.cpp_wrapper
        follows = [layer for layer in layers if _has_an_epilogue(layer.node)]
        alone = [layer for layer in layers if layer not in follows]
        for start in range(0, len(alone), _C.MOST_PIECES):
            group = alone[start : start + _C.MOST_PIECES]
            if len(group) > 1 or quantised:
                _join_in_order(graph, group, order)
        for layer in follows if quantised else ():
            _join_in_order(graph, [layer], order)
    graph.eliminate_dead_code()


def _norm(source: torch.fx.Node, layers: list[Linear]) -> RmsNorm | None:
    """The norm that a source is, if one launch has all products of it. In C++ a product that
    elementwise ops follow is better off with them: that can't have both."""
    if devices.is_cpu_form(source.meta["val"].device.index or 0):
        return None
    if len(layers) > _C.MOST_PIECES or _users(source) != {layer.node for layer in layers}:
        return None
    if len(layers) == 1 and config.cpp_wrapper and _has_an_epilogue(layers[0].node):
        return None
    return find_norm(source)


def _users(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The nodes that read a node, seen through reshapes."""
    users: set[torch.fx.Node] = set()
    for user in node.users:
        users |= _users(user) if user.target in RESHAPES else {user}
    return users


def _join_in_order(
    graph: torch.fx.Graph,
    group: list[Linear],
    order: dict[torch.fx.Node, int],
    norm: RmsNorm | None = None,
) -> None:
    """Joins products, if all of their operands are there before the first."""
    if max(order[x] for layer in group for x in layer.operands) < order[group[0].node]:
        _join(graph, group, norm)


def _source(node: torch.fx.Node) -> torch.fx.Node:
    """The tensor of which a node is a reshape."""
    while node.target in RESHAPES:
        node = node.args[0]  # type: ignore[assignment]
    return node


def _has_an_epilogue(node: torch.fx.Node) -> bool:
    """Whether nothing but elementwise ops follow, which join the kernel of a product alone."""
    users = list(node.users)
    while len(users) == 1 and users[0].target in _VIEWS:
        users = list(users[0].users)
    return bool(users) and all(_is_elementwise(user) for user in users)


def _is_elementwise(node: torch.fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags or node.target is _CAST


def _join(graph: torch.fx.Graph, group: list[Linear], norm: RmsNorm | None) -> None:
    """The products as parts of one. Those with a bias are rounded after it, as they were."""
    first = group[0]
    dtype = first.node.meta["val"].dtype
    wide = torch.promote_types(dtype, torch.float32) if first.bias else dtype

    def call(op: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node = graph.call_function(op, args, kwargs)
        fakes = torch.fx.node.map_arg((args, kwargs), lambda x: x.meta["val"])
        node.meta = {**first.node.meta, "val": op(*fakes[0], **fakes[1])}
        return node

    def shaped(x: torch.fx.Node, shape: Any) -> torch.fx.Node:
        same = x.meta["val"].shape == shape
        return x if same else call(aten.reshape.default, x, list(shape))

    parts = []
    with graph.inserting_before(first.node):
        rest: dict[str, Any] = {"dtype": wide}
        left = first.input
        if norm is not None:
            left = norm.x
            rest |= {"epsilon": norm.epsilon, "norm": norm.weight, "shift": norm.shift}
        left = shaped(left, (first.rows, first.input.meta["val"].shape[-1]))
        weights = [layer.weight for layer in group]
        if first.scales is not None:
            rest |= {"scales": [layer.scales for layer in group], "points": first.points}
        joined = call(torch.ops.ocl.linear_pieces.default, left, weights, **rest)
        start = 0
        for layer in group:
            part = call(aten.slice.Tensor, joined, 1, start, start + layer.columns)
            for bias in layer.bias:
                part = call(_CAST, call(aten.add.Tensor, part, call(_CAST, bias, wide)), dtype)
            parts.append(shaped(part, layer.node.meta["val"].shape))
            start += layer.columns
    for layer, part in zip(group, parts, strict=True):
        layer.node.replace_all_uses_with(part)
        graph.erase_node(layer.node)


@torch.library.register_fake("ocl::linear_pieces")
def _fake(
    input: torch.Tensor,
    weights: list[torch.Tensor],
    scales: list[torch.Tensor] | None = None,
    *,
    points: bool = False,
    dtype: torch.dtype | None = None,
    epsilon: float | None = None,
    norm: torch.Tensor | None = None,
    shift: float = 0,
) -> torch.Tensor:
    # Weights of 4 bits may be tiles of 8 columns.
    columns = sum(weight.shape[0] * (8 if weight.dim() == 4 else 1) for weight in weights)
    return input.new_empty((input.shape[0], columns), dtype=dtype)
