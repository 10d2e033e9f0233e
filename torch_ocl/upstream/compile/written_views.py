"""Ops that write in place write through views.

A lowering hands a view to the eager op as strides: realize_input() in torch/_inductor/ir.py. A view
whose index has no strides, as one of a view of another shape may, is copied first, and what the op
writes into the copy was lost. Here the copy is written back. The CPU's Inductor has a kernel of its
own for most of these ops, and its own copies are lost, too. PyTorch 2.13 needs it.
"""

from __future__ import annotations

import functools
from typing import Any

from torch_ocl.upstream.compile.replacement import replace


def install() -> None:
    """Applies the changes, once."""
    from torch._inductor import lowering

    _write_back("index_put_fallback", lowering.index_put_fallback, 0)
    _write_back("scatter_fallback", lowering.scatter_fallback, 1)


def _write_back(name: str, upstream: Any, place: int) -> None:
    """`place`: that of the argument that is written."""
    from torch._inductor import lowering

    @functools.wraps(upstream)
    def fallback(*args: Any, **kwargs: Any) -> Any:
        target = args[place]
        if target.get_device().type != "ocl" or has_strides(target):
            return upstream(*args, **kwargs)
        copy = lowering.clone(target)
        copy.realize()
        if upstream(*args[:place], copy, *args[place + 1 :], **kwargs) is None:
            return None  # another kernel takes it
        return lowering.mutate_to(target, copy)

    replace(name, upstream, fallback)


def has_strides(box: Any) -> bool:
    """Whether what a TensorBox holds can be given to an eager op as it lies."""
    from torch._inductor import ir

    view = box.data
    if not isinstance(view, ir.BaseView) or isinstance(view, ir.ReinterpretView):
        return True
    view.realize()
    try:
        ir.ExternKernel.convert_to_reinterpret_view(view)
    except NotImplementedError:
        return False
    return True
