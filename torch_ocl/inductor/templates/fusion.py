"""The scheduler's side of templates: what joins one, and how both are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from torch._inductor import config, ir
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V

from torch_ocl.inductor import refused
from torch_ocl.inductor.templates import epilogue
from torch_ocl.inductor.templates.template import Template


def can_fuse(node1: Any, node2: Any) -> bool:
    """Whether node2 can follow node1, a template or one with what follows it already."""
    template, *before = node1.get_nodes()
    if not isinstance(template.node, Template):
        return False
    if node2.is_template() or node2.is_foreach():
        return False
    after = [*before, *node2.get_nodes()]
    numel = sympy.prod(template.node.get_size())
    for node in after:
        if node.is_reduction() or not isinstance(node.node, ir.ComputedBuffer):
            return False
        elements = sympy.prod(node.get_ranges()[0])
        if not V.graph.sizevars.statically_known_equals(elements, numel):
            return False
    if not template.node.pays(after) or not _in_order(template, after):
        return False
    try:
        epilogue.write(template, after)
    except epilogue.NotTakenError:
        return False
    return True


def _in_order(template: Any, nodes: Sequence[Any]) -> bool:
    """Whether what goes from one to the other is read where it was written, element for element
    in the order of the template's."""
    inner = {template.node.get_name()}
    inner |= {name for node in nodes for name in node.get_buffer_names()}
    for node in nodes:
        body = node._body
        (symbols, _), (sizes, _) = body.vars, body.sizes
        place = sympy.S.Zero
        for symbol, size in zip(symbols, sizes, strict=True):
            place = place * size + symbol
        for name in inner:
            for index in body.get_all_read_expr(name):
                if V.graph.sizevars.simplify(sympy.expand(index - place)) != 0:
                    return False
            if name in _read_by(nodes):
                for index in body.get_all_write_expr(name):
                    if V.graph.sizevars.simplify(sympy.expand(index - place)) != 0:
                        return False
    return True


def _read_by(nodes: Sequence[Any]) -> set[str]:
    return {dep.name for node in nodes for dep in node.read_writes.reads}


def codegen(scheduling: Any, template: Any, nodes: Sequence[Any]) -> None:
    """Writes the call of a template, and of nodes in its kernel."""
    wrapper = V.graph.wrapper_code
    node = template.node
    schedule = [template, *nodes]
    if not nodes and not node.needs_epilogue():
        node.call_alone(template)
        scheduling.free_buffers_in_scheduler()
        return
    written = epilogue.write(template, nodes)
    V.graph.removed_buffers |= written.removed
    for member in schedule:
        member.mark_run()
    key = f"{written} {node.kind} {node.settings()}"
    name = wrapper.src_to_kernel.get(key)
    if name is None:
        fused = get_fused_kernel_name(schedule, config.triton.descriptive_names)
        name = f"ocl_{fused}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        origins, details = get_kernel_metadata(schedule, wrapper)
        origin = refused.describe(refused.origins(schedule))
        comments = [*origins.splitlines(), *details.splitlines()]
        wrapper.add_template(node.kind, name, origin, written, node.settings(), comments)
    for number in written.numbers:
        for symbol in number.free_symbols:
            wrapper.ensure_size_computed(symbol)
    numbers = [wrapper.codegen_sizevar(number) for number in written.numbers]
    wrapper.call_template(name, node.given(), written.tensors, numbers)
    scheduling.free_buffers_in_scheduler()
