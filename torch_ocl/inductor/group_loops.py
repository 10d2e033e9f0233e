"""Loops that the work-items of a GPU's work-group share, by way of local memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch._inductor.utils import IndentedBuffer
from torch._inductor.virtualized import V

from torch_ocl.inductor import device as devices
from torch_ocl.inductor.access import is_multiple
from torch_ocl.inductor.emit import Emitter
from torch_ocl.inductor.types import c_type
from torch_ocl.inductor.values import Reduction

if TYPE_CHECKING:
    from torch_ocl.inductor.kernel import OclKernel

# A GPU's squares in local memory, and the lines of work-items that share one.
GPU_SQUARE, GPU_SQUARE_LINES = 32, 8
# Columns that are enough for a GPU without work-items that share their rows, and the rows that are
# worth one of these. The bytes of local memory of a work-item's accumulators.
GPU_COLUMNS, GPU_LINE_ROWS, GPU_LINE_BYTES = 1 << 17, 4, 64


class GroupLoops:
    """The part of Loops that is about these.

    Attributes:
        lines: Of work-items of a group that share rows.
    """

    lines = 1

    def _group_tiles(self: OclKernel, emitter: Emitter, out: IndentedBuffer) -> None:
        """A work-group's square of columns and the next loop, by way of local memory: both what is
        read along the one and what is read along the other is then read line by line."""
        tree, trees = self._trees()
        assert tree is not None
        across, side = trees[0], GPU_SQUARE
        p, q, t = tree.prefix, across.prefix, c_type(self.index_torch_dtype)
        self.width = 1
        reads, symbols = emitter.square_reads(self.transposed, across, f"j * {side + 1} + lane")
        names = {load: f"tile_{load.name}[lane * {side + 1} + j]" for load in self.transposed}
        body = emitter.columns(1, names, across)
        for load in self.transposed:
            out.writeline(f"local {c_type(load.dtype)} tile_{load.name}[{side * (side + 1)}];")
        out.writeline("const int lane = get_local_id(0), line = get_local_id(1);")
        out.writeline(f"const {t} row = get_group_id(1);")
        blocks = f"(({q}numel + {side - 1}) / {side})"
        out.writeline(f"const {t} {q}first = row % {blocks} * {side};")
        out.writelines(self._declare_outer(emitter, trees[1:], f"(row / {blocks})"))
        out.writeline(f"const {t} {p}first = get_group_id(0) * {side};")

        def lines(along: str, beside: str, inner: IndentedBuffer) -> None:
            head = f"for (int j = line; j < {side}; j += {GPU_SQUARE_LINES})"
            with emitter.block(head, out):
                places = f"{along}index = {along}first + lane, {beside}index = {beside}first + j"
                out.writeline(f"const {t} {places};")
                with emitter.block(f"if ({p}index < {p}numel && {q}index < {q}numel)", out):
                    out.splice(inner)

        whole = IndentedBuffer()
        whole.writelines(symbols)
        whole.splice(reads)
        lines(q, p, whole)
        out.writeline("barrier(CLK_LOCAL_MEM_FENCE);")
        lines(p, q, body)

    def _shared_columns(self: OclKernel) -> int:
        """The work-items of a line, where a GPU's work-group has lines that share the rows of its
        columns; 0 if it has none."""
        rows = self.features.reduction_numel
        reductions = [i for i in self.plan.needed if isinstance(i, Reduction)]
        if not self.is_gpu_form or not reductions:
            return 0
        tree, outer = self._trees()
        assert tree is not None
        hint = V.graph.sizevars.optimization_hint
        width = self.width if is_multiple(tree.numel, self.width) else 1
        parts = sum(len(i.results) * i.dtype.itemsize for i in reductions)
        vectors = -(-hint(tree.numel) // width)
        others = math.prod(hint(each.numel) for each in outer)
        if parts * width > GPU_LINE_BYTES or vectors * others >= GPU_COLUMNS:
            return 0
        _, most = devices.work_group_sizes(self.device.index)
        line = 1
        while line < 32 and line < vectors:
            line *= 2
        while line < most and hint(rows) * line < GPU_LINE_ROWS * most:
            line *= 2
        return line if line < most else 0

    def _lines_loop(self: OclKernel, emitter: Emitter, out: IndentedBuffer) -> None:
        """A work-group's lines of work-items share the rows of its columns."""
        tree, trees = self._trees()
        assert tree is not None
        if not is_multiple(tree.numel, self.width):
            self.width = 1
        body = emitter.columns(self.width)
        p, t = tree.prefix, c_type(self.index_torch_dtype)
        out.writeline(f"const {t} row = get_group_id(1);")
        out.writeline("const int lane = get_local_id(0), line = get_local_id(1);")
        out.writelines(self._declare_outer(emitter, trees, "row"))
        # What is past the end meets the others at barriers, and stores nothing.
        out.writeline(f"const {t} own = ({t})get_global_id(0) * {self.width};")
        out.writeline(f"const int inside = own < {p}numel;")
        out.writeline(f"const {t} {p}index = inside ? own : 0;")
        out.splice(body)
