"""Kernels side by side in one launch: torch._foreach_*, optimisers' steps, config.combo_kernels.

The columns of all parts are one run of columns, in which each part starts at a multiple of the
lanes. A work-item does what of its share falls into each part, so a launch is balanced whatever
the parts' sizes are. Parts whose text is the same, such as the parameters of an optimiser, share a
function.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.utils import IndentedBuffer

from torch_ocl.inductor.kernel import OclKernel
from torch_ocl.inductor.loops import declarations, struct_members
from torch_ocl.inductor.types import c_type

# Parameters stay below 1 KiB in all: a tensor takes 16 bytes where it is a buffer and an offset.
_MOST_BYTES = 960
# A call has place for 64 numbers (csrc/engine/generated/kernel.h).
_MOST_NUMBERS = 60
# Columns of one launch, in 32-bit indices with some room to step past the end.
_MOST_COLUMNS = (1 << 31) - (1 << 20)


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
        if not kernel.can_be_part():
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
    parameters = [kernel.call_parameters() for kernel in kernels]
    tensors = sum(len(t) for t, _ in parameters)
    numbers = sum(len(n) for _, n in parameters)
    columns = sum(int(k.lane_tree.numel) for k in kernels)
    return (
        16 * tensors + 8 * numbers <= _MOST_BYTES
        and numbers <= _MOST_NUMBERS
        and columns <= _MOST_COLUMNS
    )


class ComboKernel:
    """Several kernels as one, for whoever defines and calls a kernel: see OclKernel.

    Args:
        kernels: Two or more of one device that can_be_part().
    """

    index_torch_dtype = torch.int32
    lanes_in_rows = False
    transposed = ()
    line, lines = None, 1
    sites = ()

    def __init__(self, kernels: list[OclKernel]) -> None:
        first = kernels[0]
        self.kernels = kernels
        self.device, self.group = first.device, first.group
        self.is_cpu_form, self.is_gpu_form = first.is_cpu_form, first.is_gpu_form
        self.width = 1
        self.columns = 0
        self.parts = {part for kernel in kernels for part in kernel.parts}
        self.helpers: dict[str, None] = {}
        self.host_numbers = {n: d for k in kernels for n, d in k.host_numbers.items()}

    def codegen_kernel(self, name: str = "KERNEL_NAME") -> str:
        """The program's text: functions of the parts, and the kernel that calls them."""
        texts = [kernel.codegen_part() for kernel in self.kernels]
        self.width = max(kernel.width for kernel in self.kernels)
        functions: dict[str, str] = {}
        out, body = IndentedBuffer(), IndentedBuffer()
        for i, (kernel, text) in enumerate(zip(self.kernels, texts, strict=True)):
            self.helpers.update(kernel.helpers)
            if text not in functions:
                functions[text] = function = f"{name}_part{len(functions)}"
                out.splice(text.replace("PART_NAME", function))
            self._call(i, kernel, functions[text], body)
        self._assemble(name, out, body)
        return out.getvalue()

    def _call(self, i: int, kernel: OclKernel, function: str, out: IndentedBuffer) -> None:
        """Calls a part with what of a work-item's columns is in it, and takes columns for it."""
        numel = int(kernel.lane_tree.numel)
        start = self.columns
        self.columns += -(-numel // self.width) * self.width
        tensors, numbers = kernel.call_parameters()
        arguments = [f"p{i}_{inner}" for inner, *_ in (*tensors, *numbers)]
        places = f"max(first - {start}, 0), min(end - {start}, {numel})"
        out.writeline(f"if (first < {start + numel} && end > {start})")
        with out.indent():
            out.writeline(f"{function}({', '.join(arguments)}, {places}, {numel});")

    def _assemble(self, name: str, out: IndentedBuffer, body: IndentedBuffer) -> None:
        tensors, numbers = self.call_parameters()
        out.writeline("typedef struct {")
        with out.indent():
            out.writelines(struct_members(tensors, numbers))
            out.writeline("long columns_each, rows_each;")
        out.writeline(f"}} {name}_arguments;")
        out.writeline("")
        buffers = " ".join(f"BUFFER({inner})" for inner, _ in tensors)
        items = "ITEM_BY_ITEM " if self.is_cpu_form else ""
        out.writeline(f"kernel {items}void {name}({buffers} const {name}_arguments a) {{")
        with out.indent():
            out.writelines(declarations(tensors, numbers, self.host_numbers, torch.int32))
            t = c_type(self.index_torch_dtype)
            each = f"({t})a.columns_each" if self.is_cpu_form else str(self.width)
            out.writeline(f"const {t} first = ({t})get_global_id(0) * {each};")
            out.writeline(f"const {t} end = first + {each};")
            out.splice(body)
        out.writeline("}")

    def call_parameters(self) -> tuple[list[tuple[str, str]], list[tuple[str, Any, str]]]:
        """Those of all parts, named by the part's number."""
        all_tensors, all_numbers = [], []
        for i, kernel in enumerate(self.kernels):
            tensors, numbers = kernel.call_parameters()
            all_tensors += [(f"p{i}_{inner}", outer) for inner, outer in tensors]
            all_numbers += [(f"p{i}_{inner}", outer, kind) for inner, outer, kind in numbers]
        return all_tensors, all_numbers

    def _sizes(self) -> list[sympy.Expr]:
        return [sympy.Integer(size) for size in (self.columns, 1, 1)]

    def work(self) -> int:
        """Elementary operations for an element of the costliest part."""
        return max(kernel.work() for kernel in self.kernels)

    launch_sizes = OclKernel.launch_sizes
    call_kernel = OclKernel.call_kernel
    form = OclKernel.form
