"""Writes into a dtype view store what the view would read.

Changes of torch, for graphs on ocl alone. PyTorch 2.13 needs them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch


def install() -> None:
    """Applies the changes, once."""
    _writes_through_dtype_views()
    _dtypes_of_memory()


def _writes_through_dtype_views() -> None:
    """An op that writes in place asks a view where its elements lie. DtypeView in
    torch/_inductor/ir.py doesn't say: each lies where the viewed one does, since both have one
    size."""
    from torch._inductor.ir import DtypeView

    upstream = DtypeView.make_reindexer

    @functools.wraps(upstream)
    def make_reindexer(self: Any) -> Any:
        return list if self.get_device().type == "ocl" else upstream(self)

    DtypeView.make_reindexer = make_reindexer


def _dtypes_of_memory() -> None:
    """Values written into a view have the view's dtype: store_output() in torch/_inductor/ir.py.
    The memory's is another one where a dtype view is between them, and a store converts to that.
    So it is the value's bits, viewed as the memory's dtype, that are stored."""
    from torch._inductor import ir
    from torch._inductor.virtualized import ops

    def stores(kind: Any) -> None:
        upstream = kind.store_output

        @functools.wraps(upstream)
        def store_output(self: Any, output_name: str | None, indexer: Any, place: Any) -> Any:
            own, memory = self.dtype, _memory_dtype(output_name)
            if memory in (None, own) or self.get_device().type != "ocl":
                return upstream(self, output_name, indexer, place)
            load = self.make_loader()

            def bits(index: Any) -> Any:
                return ops.to_dtype_bitcast(load(index), memory, own)

            stored = dataclasses.replace(self, dtype=memory, inner_fn=bits)
            return upstream(stored, output_name, indexer, place)

        kind.store_output = store_output

    stores(ir.Pointwise)
    stores(ir.Scatter)


def _memory_dtype(name: str | None) -> torch.dtype | None:
    """The dtype of the memory that a buffer is written into; None where it has its own."""
    from torch._inductor.ir import MutationLayoutSHOULDREMOVE
    from torch._inductor.virtualized import V

    buffer = V.graph.name_to_buffer.get(name)
    layout = buffer.layout if buffer is not None else None
    while isinstance(layout, MutationLayoutSHOULDREMOVE):
        layout = layout.real_layout()
    return layout.dtype if layout is not None and layout is not buffer.layout else None
