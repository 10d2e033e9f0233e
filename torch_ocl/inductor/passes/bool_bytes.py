"""A write to a part of a bool view leaves the bytes of the rest.

A byte of another dtype's memory may be neither 0 nor 1. Kernels compute with bools that are 0 or 1,
so a graph that writes a part of such a view, and all of it back, would change bytes that the
program did not touch. Here ops that only move elements move the bytes.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten
_VIEW = aten.view.dtype
#: Ops whose first argument alone has elements.
_MOVES = {
    aten.alias.default,
    aten.as_strided.default,
    aten.clone.default,
    aten.diagonal.default,
    aten.expand.default,
    aten.flip.default,
    aten.permute.default,
    aten.reshape.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.view.default,
    aten._unsafe_view.default,
}
#: Those that put their second argument's elements into the first one's.
_SCATTERS = {
    aten.as_strided_scatter.default,
    aten.diagonal_scatter.default,
    aten.select_scatter.default,
    aten.slice_scatter.default,
}


def run(graph: torch.fx.Graph) -> None:
    """A dtype view of bools that moved becomes one of the bytes that moved."""
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=_VIEW):
        moved, dtype = node.args[0], node.args[1]
        if dtype == torch.bool or node.meta["val"].device.type != "ocl" or not _of_bytes(moved):
            continue
        with graph.inserting_before(node):
            replaced = _call(graph, _VIEW, _bytes(graph, moved, known), dtype)
        node.replace_all_uses_with(replaced)
    if known:
        graph.eliminate_dead_code()


def _is_view(node: torch.fx.Node) -> bool:
    """Whether bools are another dtype's memory."""
    return node.target is _VIEW and node.args[0].meta["val"].dtype != torch.bool


def _of_bytes(node: torch.fx.Node) -> bool:
    """Whether bools are another dtype's memory that was moved or partly written."""
    if node.meta["val"].dtype != torch.bool:
        return False
    while node.target in _MOVES or node.target in _SCATTERS:
        node = node.args[0]
    return _is_view(node)


def _bytes(graph: torch.fx.Graph, node: Any, known: dict[Any, Any]) -> torch.fx.Node:
    """The node of uint8 with the bytes that a node of bools has. New ones follow their operands."""
    if node in known:
        return known[node]
    with graph.inserting_after(node):
        if _is_view(node):
            made = _call(graph, _VIEW, node.args[0], torch.uint8)
        elif _of_bytes(node) and node.target in _MOVES:
            source = _bytes(graph, node.args[0], known)
            made = _call(graph, node.target, source, *node.args[1:], **node.kwargs)
        elif _of_bytes(node):
            parts = [_bytes(graph, part, known) for part in node.args[:2]]
            made = _call(graph, node.target, *parts, *node.args[2:], **node.kwargs)
        else:
            made = _call(graph, torch.ops.prims.convert_element_type.default, node, torch.uint8)
    known[node] = made
    return made


def _call(graph: torch.fx.Graph, op: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    made = graph.call_function(op, args, kwargs)
    fakes = torch.fx.node.map_arg((args, kwargs), lambda x: x.meta["val"])
    made.meta["val"] = op(*fakes[0], **fakes[1])
    return made
