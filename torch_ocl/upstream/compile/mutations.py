"""A tensor is read before a later op writes to it.

Changes of torch, for graphs on ocl alone. PyTorch 2.13 needs them. Upstream has pull requests for
some: 198104 for dtype views, 198132 for copies of inputs.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from typing import Any

import torch


def install() -> None:
    """Applies the changes, once."""
    _reads_of_aliases()
    _old_values()


def _reads_of_aliases() -> None:
    """Before a buffer is written, values that read it are computed: mark_buffer_mutated() in
    torch/_inductor/graph.py. A dtype view of another size is a buffer of its own, so what reads it
    was left for later."""
    from torch._inductor.graph import GraphLowering

    upstream = GraphLowering.mark_buffer_mutated

    @functools.wraps(upstream)
    def mark_buffer_mutated(self: Any, name: str) -> None:
        upstream(self, name)
        if "ocl" not in self.device_types:
            return
        for alias in _aliases(self, name):
            for user in list(self.name_to_users.get(alias, ())):
                user.realize()

    GraphLowering.mark_buffer_mutated = mark_buffer_mutated


def _aliases(graph: Any, name: str) -> set[str]:
    """The names of other buffers in the same memory."""
    neighbours = defaultdict(set)
    for buffer in graph.buffers:
        for other in buffer.get_inputs_that_alias_output():
            neighbours[other].add(buffer.get_name())
            neighbours[buffer.get_name()].add(other)
    found, pending = {name}, [name]
    while pending:
        new = neighbours[pending.pop()] - found
        found |= new
        pending += new
    return found - {name}


def _old_values() -> None:
    """A graph has no ops in place but the copies into its inputs, which come last. What stands
    behind such a copy and reads the input means its old value. remove_noop_ops() in
    torch/_inductor/fx_passes/post_grad.py brings that about: it takes an input itself for a copy of
    it. The old value is then kept in memory of its own.

    Nor may an op write its result into an input that is written once more while the result is
    still wanted. can_inplace() in torch/_inductor/fx_passes/reinplace.py asks for a copy into the
    input, but not what it copies."""
    from torch._inductor.fx_passes import reinplace

    upstream = reinplace.reinplace_inplaceable_ops_core
    writers = {
        *reinplace.inplaceable_ops,
        *reinplace.inplaceable_foreach_ops,
        *reinplace.inplaceable_triton_ops,
        torch.ops.higher_order.auto_functionalized,
        torch.ops.higher_order.auto_functionalized_v2,
    }

    @functools.wraps(upstream)
    def reinplace_inplaceable_ops_core(graph: torch.fx.Graph) -> None:
        keep_old_values(graph)
        keep_results(graph, writers)
        upstream(graph)

    reinplace.reinplace_inplaceable_ops_core = reinplace_inplaceable_ops_core


def keep_old_values(graph: torch.fx.Graph) -> None:
    """Copies inputs before they are written, where a later node reads their old value."""
    written: dict[int, torch.fx.Node] = {}  # by an input's storage: the first copy into it
    old: set[torch.fx.Node] = set()  # nodes from before their storage is written
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in list(graph.nodes):
        target = _target(node)
        if node.op == "output":
            continue
        for source in node.all_input_nodes:
            if source not in old or _storage(source) not in written:
                continue
            if source not in copies and source is not target:
                copies[source] = _copy_before(written[_storage(source)], source)
            if source is not target:
                node.replace_input_with(source, copies[source])
        if target is not None:
            written.setdefault(_storage(target), node)
        elif _storage(node) not in written:
            old.add(node)


def keep_results(graph: torch.fx.Graph, writers: set[Any]) -> None:
    """Gives ops of `writers` a copy of an input to write into, where the input is written while
    their result is wanted."""
    nodes = list(graph.nodes)
    order = {node: i for i, node in enumerate(nodes)}
    copies: dict[int, torch.fx.Node] = {}  # by an input's storage: the first copy into it
    for node in nodes:
        if (target := _target(node)) is not None:
            copies.setdefault(_storage(target), node)
    for node in nodes if copies else ():
        if node.target not in writers:
            continue
        names = _names_of(node)
        for source in node.all_input_nodes:
            copy = copies.get(_storage(source))
            if copy is None or copy.args[1] in (node, *_items(node)):
                continue
            if any(order[user] > order[copy] for name in names for user in name.users):
                node.replace_input_with(source, _copy_before(node, source))


def _items(node: torch.fx.Node) -> list[torch.fx.Node]:
    return [user for user in node.users if user.target is operator.getitem]


def _names_of(node: torch.fx.Node) -> list[torch.fx.Node]:
    """A node and all later ones with the same memory."""
    found = [node, *_items(node)]
    storages = {_storage(name) for name in found} - {None}
    for name in found:
        found += [user for user in name.users if _storage(user) in storages and user not in found]
    return found


def _target(node: torch.fx.Node) -> torch.fx.Node | None:
    """The input on ocl that a node copies into."""
    if node.target is not torch.ops.aten.copy_.default:
        return None
    target = node.args[0]
    on_ocl = target.op == "placeholder" and target.meta["val"].device.type == "ocl"
    return target if on_ocl else None


def _storage(node: torch.fx.Node) -> int | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value.untyped_storage()._cdata


def _copy_before(place: torch.fx.Node, source: torch.fx.Node) -> torch.fx.Node:
    """A node with `source`'s value at `place`, in memory of its own."""
    value = source.meta["val"]
    with place.graph.inserting_before(place):
        copy = place.graph.call_function(torch.ops.aten.clone.default, (source,))
    with value.fake_mode:
        copy.meta["val"] = value.clone()
    return copy
