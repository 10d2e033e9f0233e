"""Forms: how a kernel's elements are shared out to work-items, one class for each."""

from __future__ import annotations

from torch_ocl.inductor.forms.columns import GroupColumns, GroupLanes, ItemLanes, shared_columns
from torch_ocl.inductor.forms.form import Form, Layout, Nest
from torch_ocl.inductor.forms.rows import GroupRows, ItemRows
from torch_ocl.inductor.forms.tiles import GroupTiles, ItemTiles, transposed_loads


def layout_of(nest: Nest) -> Layout:
    """A kernel's text and launch, in the form that suits it."""
    form: Form
    if nest.lanes.tree.is_reduction:
        form = ItemRows(nest) if nest.on_cpu else GroupRows(nest)
    elif loads := transposed_loads(nest):
        form = ItemTiles(nest, loads) if nest.on_cpu else GroupTiles(nest, loads)
    elif nest.on_cpu:
        form = ItemLanes(nest)
    elif shared := shared_columns(nest):
        form = GroupColumns(nest, *shared)
    else:
        form = GroupLanes(nest)
    return form.layout()
