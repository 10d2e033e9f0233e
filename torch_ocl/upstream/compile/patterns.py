"""Patterns of Inductor's that replace a part of a graph by something else than it computes.

Changes of torch, for graphs on ocl alone. PyTorch 2.13 needs them.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def install() -> None:
    """Applies the changes, once."""
    _sums_of_constants()
    _products_with_zero()


def _sums_of_constants() -> None:
    """A cumulative sum of a constant becomes numbers in a row: pointless_cumsum_replacement() in
    torch/_inductor/fx_passes/post_grad.py. It forgets the dtype that the sum is asked for. It has
    another layout, too, which a dtype view of it can't take."""
    from torch._inductor.fx_passes import post_grad

    aten = torch.ops.aten

    def is_wrong(match: Any) -> bool:
        node = match.output_node()
        views = any(user.target is aten.view.dtype for user in node.users)
        return node.meta["val"].device.type == "ocl" and (views or "dtype" in node.kwargs)

    for patterns in post_grad.pass_patterns:
        for entry in patterns.patterns.get(("call_function", aten.cumsum.default), ()):
            if getattr(entry, "handler", None) is post_grad.pointless_cumsum_replacement:
                entry.extra_check = _but_not(entry.extra_check, is_wrong)


def _but_not(upstream: Any, is_wrong: Any) -> Any:
    @functools.wraps(upstream)
    def extra_check(match: Any) -> bool:
        return upstream(match) and not is_wrong(match)

    return extra_check


def _products_with_zero() -> None:
    """A multiplication by the integer 0 becomes zeros: UniformValueConstantFolder in
    torch/_inductor/fx_passes/joint_graph.py. That holds for integers. But NaN or an infinity times
    0 is NaN, and a negative number times 0 is -0.0."""
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder as Folder

    upstream = Folder._add_peephole_patterns

    @functools.wraps(upstream)
    def _add_peephole_patterns(self: Any) -> None:
        upstream(self)
        for node in list(self.node_replacements):
            value = node.meta["val"]
            has_nan = value.dtype.is_floating_point or value.dtype.is_complex
            if value.device.type == "ocl" and has_nan:
                del self.node_replacements[node]
                del self.node_replacements_shapes[node]
                del self.constant_data_ptrs[node]

    Folder._add_peephole_patterns = _add_peephole_patterns
