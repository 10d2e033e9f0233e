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

from torch_ocl.upstream.compile.replacement import replace


def install() -> None:
    """Applies the changes, once."""
    _reads_of_aliases()
    _reads_of_fused_writes()
    _other_names()
    _parts_of_concatenations()
    _copies_that_are_left_out()
    _old_values()
    _copies_of_complex_numbers()


def _reads_of_aliases() -> None:
    """Before a buffer is written, values that read it are computed: mark_buffer_mutated() in
    torch/_inductor/graph.py. A dtype view of another size is a buffer of its own, so what reads it
    was left for later. Nor may its memory be used again: what reads it after the write is not known
    to read that buffer."""
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
            keep_memory(self, alias)

    GraphLowering.mark_buffer_mutated = mark_buffer_mutated


def keep_memory(graph: Any, name: str) -> None:
    """Has no later buffer take a buffer's memory."""
    graph.never_reuse_buffers.add(name)


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


def _reads_of_fused_writes() -> None:
    """A kernel may write in place what it reads, where it reads at the index that it writes.
    fusable_weak_dep() in torch/_inductor/scheduler.py looks for the reads by the buffer's name. A
    buffer that was written before has another name by then."""
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.scheduler import Scheduler

    upstream = Scheduler.fusable_weak_dep

    @functools.wraps(upstream)
    def fusable_weak_dep(self: Any, weak_dep: Any, node1: Any, node2: Any) -> bool:
        if not upstream(self, weak_dep, node1, node2):
            return False
        if node2.get_device().type != "ocl":
            return True
        names = self.mutation_real_name
        (write,) = (w for w in node2.read_writes.writes if w.name == weak_dep.mutating_buf)
        reads = (r for r in node1.read_writes.reads if names.get(r.name) == names[write.name])
        return all(
            isinstance(read, MemoryDep) and (read.index, read.size) == (write.index, write.size)
            for read in reads
        )

    Scheduler.fusable_weak_dep = fusable_weak_dep


def _other_names() -> None:
    """A result that replaces all of a tensor is the tensor's memory from then on: mutate_to() in
    torch/_inductor/lowering.py. Where the old memory has another name, it is written instead. A
    dtype view is another name. So is what an earlier write to a part of it left behind.

    Values that read the tensor are computed before it is written. Those within a view aren't
    upstream: the copy out of the view reads at any index, beside its own writes."""
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V

    upstream = lowering.mutate_to

    @functools.wraps(upstream)
    def mutate_to(changed: Any, val: Any, unsafe_alias: bool = False, **more: Any) -> Any:
        box = changed.data if isinstance(changed, ir.TensorBox) else changed
        if not isinstance(box, ir.StorageBox) or not isinstance(box.data, ir.Buffer):
            return upstream(changed, val, unsafe_alias, **more)
        name = box.get_name()
        source = val.data if isinstance(val, ir.TensorBox) else val
        if box.get_device().type == "ocl" and isinstance(source, ir.BaseView):
            if name in source.get_read_names():
                source.realize()
        if box.get_device().type != "ocl" or not (
            name in V.graph.mutated_buffers or _aliases(V.graph, name)
        ):
            return upstream(changed, val, unsafe_alias, **more)
        ir.MutationLayoutSHOULDREMOVE.realize_into(val, box, unsafe_alias=unsafe_alias)
        return changed

    replace("mutate_to", upstream, mutate_to)


def _parts_of_concatenations() -> None:
    """The inputs of a concatenation are computed straight into its memory. One that is written
    later has memory of its own: can_realize_into_without_copy() in torch/_inductor/ir.py."""
    from torch._inductor.ir import ConcatKernel
    from torch._inductor.virtualized import V

    upstream = ConcatKernel.can_realize_into_without_copy.__func__

    @functools.wraps(upstream)
    def can_realize_into_without_copy(cls: Any, src: Any, dst: Any = None) -> bool:
        if not upstream(cls, src, dst):
            return False
        return src.get_device().type != "ocl" or not _is_written_later(V.graph, src)

    ConcatKernel.can_realize_into_without_copy = classmethod(can_realize_into_without_copy)


def _is_written_later(graph: Any, value: Any) -> bool:
    """Whether an op after the current node writes to a value that the node reads."""
    node = graph.current_node
    sources = [n for n in node.all_input_nodes if getattr(graph.env.get(n), "data", None) is value]
    storages = {_storage(source) for source in sources} - {None}
    while storages and (node := node.next).op != "output":
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            continue
        if any(_storage(source) in storages for source in node.all_input_nodes):
            return True
    return False


def _copies_that_are_left_out() -> None:
    """A copy that changes nothing is left out, but not where a result would then be an input:
    remove_noop_ops() in torch/_inductor/fx_passes/post_grad.py. It goes by storages, and leaves the
    views of a copy with the storage of the copy. So a copy of such a view is left out, too."""
    from torch._inductor.fx_passes import post_grad

    upstream = post_grad.remove_noop_ops

    @functools.wraps(upstream)
    def remove_noop_ops(graph: torch.fx.Graph) -> None:
        before = [_storage(result) for result in _results_of_graph(graph)]
        upstream(graph)
        update_views(graph)
        separate_results(graph, before)

    replace("remove_noop_ops", upstream, remove_noop_ops)


def separate_results(graph: torch.fx.Graph, before: list[int | None]) -> None:
    """Copies results that have come into the storage of an input or of another result."""
    owners = {_storage(node): _storage(node) for node in graph.find_nodes(op="placeholder")}
    for storage, result in zip(before, _results_of_graph(graph), strict=True):
        if owners.setdefault(_storage(result), storage) == storage or not _is_on_ocl(result):
            continue
        place = result.next
        while place.op == "placeholder":
            place = place.next
        (output,) = graph.find_nodes(op="output")
        output.replace_input_with(result, _copy_before(place, result))


def _results_of_graph(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    (output,) = graph.find_nodes(op="output")
    leaves = torch.utils._pytree.arg_tree_leaves(*output.args)
    return [leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)]


def update_views(graph: torch.fx.Graph) -> None:
    """Has views share the storage of what they view."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or schema.is_mutable or not any(r.alias_info for r in schema.returns):
            continue
        base = node.args[0] if node.args else None
        if not isinstance(base, torch.fx.Node) or None in (_storage(base), _storage(node)):
            continue
        if _storage(base) != _storage(node) and _is_on_ocl(base):
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            with base.meta["val"].fake_mode:
                node.meta["val"] = node.target(*args, **kwargs)


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
        keep_operands(graph, writers)
        upstream(graph)

    reinplace.reinplace_inplaceable_ops_core = reinplace_inplaceable_ops_core


def _copies_of_complex_numbers() -> None:
    """A copy of complex numbers is a call of the eager op: decompose_generalized_scatter() in
    torch/_inductor/fx_passes/reinplace.py makes one without an overload, which is lowered to a
    generated kernel."""
    from torch._inductor.fx_passes import reinplace

    upstream = reinplace.decompose_generalized_scatter

    @functools.wraps(upstream)
    def decompose_generalized_scatter(graph: torch.fx.Graph) -> None:
        upstream(graph)
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.clone):
            if node.meta["val"].device.type == "ocl":
                node.target = torch.ops.aten.clone.default

    reinplace.decompose_generalized_scatter = decompose_generalized_scatter


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
        for source in node.all_input_nodes:
            copy = copies.get(_storage(source))
            if copy is None:
                continue
            names = _names_of(_results(node, source), writers, copy.args[1])
            if any(order[user] > order[copy] for name in names for user in name.users):
                node.replace_input_with(source, _copy_before(node, source))


def keep_operands(graph: torch.fx.Graph, writers: set[Any]) -> None:
    """Copies what ops of `writers` read from the memory that they may be written into."""
    for node in list(graph.nodes):
        target = node.args[0] if node.target in writers and node.args else None
        if not isinstance(target, torch.fx.Node) or _storage(target) is None:
            continue
        if not _is_on_ocl(target):
            continue
        copies: dict[torch.fx.Node, torch.fx.Node] = {}

        def apart(source: torch.fx.Node, node: Any = node, copies: Any = copies) -> torch.fx.Node:
            if _storage(source) != _storage(node.args[0]):
                return source
            if source not in copies:
                copies[source] = _copy_before(node, source)
            return copies[source]

        # The tensor itself may be what is written into it, too.
        node.args = (target, *torch.fx.map_arg(node.args[1:], apart))
        node.kwargs = torch.fx.map_arg(node.kwargs, apart)


def _results(node: torch.fx.Node, source: torch.fx.Node) -> list[torch.fx.Node]:
    """Results of an op that may be written into the memory of an operand: of an op over lists, the
    ones at the operand's places in the first."""
    items = [user for user in node.users if user.target is operator.getitem]
    written = node.args[0] if node.args else None
    if items and isinstance(written, (list, tuple)):
        return [item for item in items if written[item.args[1]] is source]
    return [node, *items]


def _names_of(
    results: list[torch.fx.Node], writers: set[Any], copied: torch.fx.Node
) -> list[torch.fx.Node]:
    """Results and all later nodes that may have the same memory. `copied` isn't one of them: it is
    the memory's value after the copy, and so are the nodes behind it."""
    found = [result for result in results if result is not copied]
    storages = {_storage(name) for name in found} - {None}
    for name in found:
        for user in name.users:
            if user in found or user is copied:
                continue
            if user.target in writers:
                new = [r for r in _results(user, name) if r not in found and r is not copied]
            else:
                new = [user] if _storage(user) in storages else []
            found += new
            storages |= {_storage(n) for n in new} - {None}
    return found


def _target(node: torch.fx.Node) -> torch.fx.Node | None:
    """The input on ocl that a node copies into."""
    if node.target is not torch.ops.aten.copy_.default:
        return None
    target = node.args[0]
    return target if target.op == "placeholder" and _is_on_ocl(target) else None


def _is_on_ocl(node: torch.fx.Node) -> bool:
    return node.meta["val"].device.type == "ocl"


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
