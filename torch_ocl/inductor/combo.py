"""Kernels side by side in one launch: torch._foreach_*, optimisers' steps, small kernels.

The columns of all parts are one run of columns, in which each part starts at a multiple of the
lanes. A work-item does what of its share falls into each part, so a launch is balanced whatever
the parts' sizes are. Parts whose text is the same, such as the parameters of an optimiser, share a
function.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.virtualized import V

from torch_ocl.inductor.call import launch
from torch_ocl.inductor.forms.form import Layout
from torch_ocl.inductor.kernel import OclKernel
from torch_ocl.inductor.plan.sizes import SMALL_KERNEL
from torch_ocl.inductor.text.code import Code
from torch_ocl.inductor.text.program import (
    FUNCTION,
    KERNEL,
    Number,
    Parameters,
    function_text,
    kernel_text,
)

# Parameters stay below 1 KiB in all: a tensor takes 16 bytes where it is a buffer and an offset.
_MOST_BYTES = 960
# A call has place for 64 numbers (csrc/engine/generated/kernel.h).
_MOST_NUMBERS = 60
# Columns of one launch, in 32-bit indices with some room to step past the end.
_MOST_COLUMNS = (1 << 31) - (1 << 20)


def is_small(node: BaseSchedulerNode) -> bool:
    """Whether a kernel takes less time than its launch, and can be a part."""
    device = node.get_device()
    if device is None or device.type != "ocl" or node.is_reduction():
        return False
    # A kernel of no known size has no place among the columns of others.
    if not all(isinstance(size, sympy.Integer) for size in node.group[1]):
        return False
    hint = V.graph.sizevars.optimization_hint
    deps = [*node.read_writes.reads, *node.read_writes.writes]
    elements = sum(hint(dep.get_numel(), fallback=SMALL_KERNEL) for dep in deps)
    return bool(elements <= SMALL_KERNEL)


def are_apart(producer: BaseSchedulerNode, consumer: BaseSchedulerNode) -> bool:
    """Whether the parts are independent of each other once two nodes are fused, of which one or
    both have parts. Inductor asks about each pair alone, so that a part could write what another
    one of the launch reads."""
    if producer.is_foreach() and consumer.is_foreach():
        parts = list(zip(producer.snodes, consumer.snodes, strict=True))
    elif producer.is_foreach():
        place = producer.get_producer_subnode_for(consumer)
        parts = [(node, consumer) if node is place else (node,) for node in producer.snodes]
    else:
        place = consumer.get_consumer_subnode_for(producer)
        parts = [(producer, node) if node is place else (node,) for node in consumer.snodes]
    names = producer.scheduler.mutation_real_name
    readers: dict[str, set[int]] = {}
    writers: dict[str, set[int]] = {}
    for i, nodes in enumerate(parts):
        for node in nodes:
            for found, accesses in (
                (readers, node.read_writes.reads),
                (writers, node.read_writes.writes),
            ):
                for access in accesses:
                    found.setdefault(names.get(access.name, access.name), set()).add(i)
    return all(len(who | readers.get(name, set())) == 1 for name, who in writers.items())


def groups(kernels: Iterable[OclKernel]) -> list[list[OclKernel]]:
    """Shares kernels out to launches: in order, as many to one as a launch has parameters for.

    A kernel that can't share a launch is alone in its group.
    """
    alone: list[list[OclKernel]] = []
    shared: dict[Any, list[list[OclKernel]]] = {}
    for kernel in kernels:
        if kernel.part is None:
            alone.append([kernel])
            continue
        # Special functions of float and of double can't be in one program.
        special = tuple(sorted(p for p in kernel.parts if p.startswith("special_")))
        found = shared.setdefault(special, [[]])
        if found[-1] and not _fits([*found[-1], kernel]):
            found.append([])
        found[-1].append(kernel)
    return alone + [group for found in shared.values() for group in found]


def _fits(kernels: list[OclKernel]) -> bool:
    parts = [_part(kernel) for kernel in kernels]
    tensors = sum(len(parameters.tensors) for _, parameters in parts)
    numbers = sum(len(parameters.numbers) for _, parameters in parts)
    columns = sum(int(part.sizes[0]) for part, _ in parts)
    sites = sum(len(kernel.sites) for kernel in kernels)
    return (
        16 * tensors + 8 * (numbers + sites) <= _MOST_BYTES
        and numbers <= _MOST_NUMBERS
        and columns <= _MOST_COLUMNS
    )


def _part(kernel: OclKernel) -> tuple[Layout, Parameters]:
    """A kernel's function, and what it takes."""
    assert kernel.part is not None
    return kernel.part, kernel.parameters_of(kernel.part)


class ComboKernel:
    """Several kernels as one, for whoever defines and calls a kernel: see OclKernel.

    Args:
        kernels: Two or more of one device that have a part.
    """

    def __init__(self, kernels: list[OclKernel]) -> None:
        self.device, self.on_cpu = kernels[0].device, kernels[0].on_cpu
        self.parts = {part for kernel in kernels for part in kernel.parts}
        self._columns = [kernel.nest.lanes.tree.prefix + "numel" for kernel in kernels]
        self._functions = [_part(kernel) for kernel in kernels]
        self._sites = [tuple(kernel.sites) for kernel in kernels]
        self.sites = tuple(site for sites in self._sites for site in sites)

    @functools.cached_property
    def parameters(self) -> Parameters:
        """Those of all parts, named by the part's number."""
        tensors: list[tuple[str, str]] = []
        numbers: list[Number] = []
        for i, (_, part) in enumerate(self._functions):
            tensors += [(f"p{i}_{name}", outer) for name, outer in part.tensors]
            numbers += [dataclasses.replace(n, name=f"p{i}_{n.name}") for n in part.numbers]
        return Parameters(tuple(tensors), tuple(numbers))

    @functools.cached_property
    def layout(self) -> Layout:
        """The calls of the parts, with what of a work-item's columns is in each. The columns of a
        part begin at a multiple of the lanes."""
        layouts = [layout for layout, _ in self._functions]
        names = {text: f"{KERNEL}_part{i}" for i, text in enumerate(dict.fromkeys(self._texts))}
        width, out, start = max(layout.width for layout in layouts), Code(), 0
        site = itertools.count()
        each = "(int)a.columns_each" if self.on_cpu else str(width)
        out.writeline(f"const int first = (int)get_global_id(0) * {each};")
        out.writeline(f"const int end = first + {each};")
        parts = zip(self._functions, self._texts, self._sites, strict=True)
        for i, ((layout, part), text, sites) in enumerate(parts):
            numel = int(layout.sizes[0])
            arguments = [f"p{i}_{name}" for name, _ in part.tensors]
            arguments += [f"p{i}_{number.name}" for number in part.numbers]
            if sites:
                arguments += ["asserts", *(f"site{next(site)}" for _ in sites)]
            places = f"max(first - {start}, 0), min(end - {start}, {numel})"
            out.writeline(f"if (first < {start + numel} && end > {start})")
            with out.indent():
                out.writeline(f"{names[text]}({', '.join(arguments)}, {places}, {numel});")
            start += -(-numel // width) * width
        return dataclasses.replace(
            layouts[0],
            width=width,
            sizes=(sympy.Integer(start), sympy.S.One, sympy.S.One),
            work=max(layout.work for layout in layouts),
            text=str(out.getvalue()),
        )

    @functools.cached_property
    def _texts(self) -> list[str]:
        """The parts' functions."""
        functions = zip(self._functions, self._columns, self._sites, strict=True)
        return [
            function_text(parameters, columns, part.text, index=torch.int32, sites=len(sites))
            for (part, parameters), columns, sites in functions
        ]

    def codegen_kernel(self) -> str:
        """The program's text: functions of the parts, and the kernel that calls them."""
        out = Code()
        for i, text in enumerate(dict.fromkeys(self._texts)):
            out.splice(text.replace(FUNCTION, f"{KERNEL}_part{i}"))
        flags: dict[str, Any] = {"sites": len(self.sites), "on_cpu": self.on_cpu}
        out.splice(kernel_text(self.parameters, self.layout.text, index=torch.int32, **flags))
        return str(out.getvalue())

    def call_kernel(self, name: str) -> None:
        """Writes the call."""
        launch.write_call(name, self.parameters, self.device)
