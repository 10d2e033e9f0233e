"""Small kernels that are independent of each other share a launch, without config.combo_kernels.

A launch costs more than they compute. The option, which is the user's, groups all kernels.
"""

from __future__ import annotations

import functools
from typing import Any


def install() -> None:
    """Applies the changes, once."""
    from torch._inductor import config, scheduler
    from torch._inductor.virtualized import V

    node_class = scheduler.ForeachKernelSchedulerNode
    if not hasattr(node_class, "combinable_nodes"):  # PyTorch 2.12 and before
        return
    upstream_init = scheduler.Scheduler._init
    upstream_nodes = node_class.combinable_nodes

    @functools.wraps(upstream_init)
    def _init(self: Any, nodes: Any) -> None:
        on_ocl = "ocl" in V.graph.device_types
        self.ocl_groups_small = on_ocl and not config.combo_kernels
        if not self.ocl_groups_small:
            return upstream_init(self, nodes)
        # Small results take no memory to speak of.
        limits = {
            "combo_kernel_peak_memory_increase_gb": None,
            "combo_kernel_peak_memory_pct_threshold": None,
        }
        known = {name: value for name, value in limits.items() if hasattr(config, name)}
        with config.patch(combo_kernels=True, **known):
            return upstream_init(self, nodes)

    @functools.wraps(upstream_nodes)
    def combinable_nodes(cls: Any, nodes: list[Any]) -> list[Any]:
        found = upstream_nodes(nodes)
        if not found or not getattr(found[0].scheduler, "ocl_groups_small", False):
            return list(found)
        from torch_ocl.inductor import combo

        return [node for node in found if combo.is_small(node)]

    scheduler.Scheduler._init = _init
    node_class.combinable_nodes = classmethod(combinable_nodes)
