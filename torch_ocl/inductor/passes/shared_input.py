"""Linear layers of one input become one product: query, key and value of attention.

With few rows a launch takes as long as reading a small weight, and a large device is not filled by
one of them. The weights stay where they are: the kernel finds its row in one of three tensors
(csrc/ops/linalg/LinearPieces.cpp). More rows go to other kernels, which gain nothing.

On GPUs the product takes the RMS norm of its input, too. A work-group reads the whole input for its
column anyway, and a processor's core would normalise it again for each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ocl import _C
from torch_ocl.inductor import device as devices
from torch_ocl.inductor.passes.norms import RmsNorm, find_norm

aten = torch.ops.aten
_VIEWS = {
    aten.view.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten.permute.default,
    aten.transpose.int,
    aten.unsqueeze.default,
    aten.squeeze.dim,
}
_CAST = torch.ops.prims.convert_element_type.default
_RESHAPES = {aten.view.default, aten.reshape.default, aten._unsafe_view.default}
_DTYPES = {torch.float32, torch.float16, torch.bfloat16, torch.float64}


def run(graph: torch.fx.Graph) -> None:
    """Products of few rows that share their left operand become torch.ops.ocl.linear_pieces."""
    found: dict[Any, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.target not in (aten.mm.default, aten.addmm.default):
            continue
        *bias, left, right = node.args
        if _is_linear(left, right) and _takes(node, bias):
            # With the rows, a source's size tells the columns, which may be a symbol.
            key = (_source(left), left.meta["val"].shape[0], len(bias))
            found.setdefault(key, []).append(node)
    order = {node: place for place, node in enumerate(graph.nodes)}
    for (source, *_), nodes in found.items():
        if norm := _norm(source, nodes):
            _join_in_order(graph, nodes, order, norm)
            continue
        alone = [node for node in nodes if not _has_an_epilogue(node)]
        for start in range(0, len(alone), _C.MOST_PIECES):
            group = alone[start : start + _C.MOST_PIECES]
            if len(group) > 1:
                _join_in_order(graph, group, order)
    graph.eliminate_dead_code()


def _norm(source: torch.fx.Node, products: list[torch.fx.Node]) -> RmsNorm | None:
    """The norm that a source is, if one launch has all products of it. One that elementwise ops
    follow is better off with them."""
    if devices.is_cpu_form(source.meta["val"].device.index or 0):
        return None
    if len(products) > _C.MOST_PIECES or _users(source) != set(products):
        return None
    if len(products) == 1 and _has_an_epilogue(products[0]):
        return None
    return find_norm(source)


def _users(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The nodes that read a node, seen through reshapes."""
    users: set[torch.fx.Node] = set()
    for user in node.users:
        users |= _users(user) if user.target in _RESHAPES else {user}
    return users


def _join_in_order(
    graph: torch.fx.Graph,
    group: list[torch.fx.Node],
    order: dict[torch.fx.Node, int],
    norm: RmsNorm | None = None,
) -> None:
    """Joins products, if all of their operands are there before the first."""
    weights = [node.args[-1].args[0] for node in group]  # type: ignore[union-attr]
    operands = [*weights, *(x for node in group for x in node.args[:-2])]
    if max(order[x] for x in operands) < order[group[0]]:  # type: ignore[index]
        _join(graph, group, weights, norm)


def _takes(node: torch.fx.Node, bias: list[Any]) -> bool:
    """Whether it has no factors, and a bias at most. That is added to a row by what reads it. To
    several it would be added by a kernel for each layer."""
    one_row = node.meta["val"].shape[0] == 1
    return not node.kwargs and all(x.meta["val"].dim() == 1 and one_row for x in bias)


def _is_linear(left: Any, right: Any) -> bool:
    """Whether it is a few rows times the transpose of a matrix of contiguous rows."""
    if right.target is not aten.permute.default:
        return False
    x, weight = left.meta["val"], right.args[0].meta["val"]
    rows = x.shape[0]
    return (
        x.device.type == "ocl"
        and x.dtype in _DTYPES
        and isinstance(rows, int)
        and 0 < rows <= _C.SKINNY_COLUMNS
        and weight.is_contiguous()
        and statically_known_true(weight.shape[0] > rows)
    )


def _source(node: torch.fx.Node) -> torch.fx.Node:
    """The tensor of which a node is a reshape."""
    while node.target in _RESHAPES:
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


def _join(
    graph: torch.fx.Graph,
    group: list[torch.fx.Node],
    weights: list[Any],
    norm: RmsNorm | None,
) -> None:
    """The products as parts of one. Those with a bias are rounded after it, as they were."""
    first = group[0]
    *bias, left, _ = first.args
    columns = [node.meta["val"].shape[1] for node in group]
    dtype = first.meta["val"].dtype
    wide = torch.promote_types(dtype, torch.float32) if bias else dtype

    def call(op: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node = graph.call_function(op, args, kwargs)
        fakes = torch.fx.node.map_arg((args, kwargs), lambda x: x.meta["val"])
        node.meta = {**first.meta, "val": op(*fakes[0], **fakes[1])}
        return node

    parts = []
    with graph.inserting_before(first):
        rest: dict[str, Any] = {"dtype": wide}
        if norm is not None:
            left = call(aten.reshape.default, norm.x, list(left.meta["val"].shape))
            rest |= {"epsilon": norm.epsilon, "norm": norm.weight, "shift": norm.shift}
        joined = call(torch.ops.ocl.linear_pieces.default, left, weights, **rest)
        start = 0
        for node, width in zip(group, columns, strict=True):
            part = call(aten.slice.Tensor, joined, 1, start, start + width)
            if bias:
                part = call(
                    _CAST, call(aten.add.Tensor, part, call(_CAST, node.args[0], wide)), dtype
                )
            parts.append(part)
            start += width
    for node, part in zip(group, parts, strict=True):
        node.replace_all_uses_with(part)
        graph.erase_node(node)


@torch.library.register_fake("ocl::linear_pieces")
def _fake(
    input: torch.Tensor,
    weights: list[torch.Tensor],
    *,
    dtype: torch.dtype | None = None,
    epsilon: float | None = None,
    norm: torch.Tensor | None = None,
    shift: float = 0,
) -> torch.Tensor:
    columns = sum(weight.shape[0] for weight in weights)
    return input.new_empty((input.shape[0], columns), dtype=dtype)
