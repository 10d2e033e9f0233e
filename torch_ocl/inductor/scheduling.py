"""Decides which nodes are fused, and puts kernels into the graph's module."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.scheduler import BaseSchedulerNode, ForeachKernelSchedulerNode
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_ocl.inductor import combo, refused
from torch_ocl.inductor.call import launch, runtime
from torch_ocl.inductor.kernel import OclKernel
from torch_ocl.inductor.templates import fusion
from torch_ocl.inductor.text.program import KERNEL


class OclScheduling(SIMDScheduling):
    """See SIMDScheduling."""

    kernel_type = OclKernel

    @classmethod
    def get_backend_features(cls, device: torch.device) -> OrderedSet[BackendFeature]:
        return OrderedSet(
            [
                BackendFeature.FOREACH,
                BackendFeature.INPLACE_BUFFERS,
                BackendFeature.MASKED_SCATTER_WITH_INDEX,
            ]
        )

    def can_fuse_vertical(self, node1: Any, node2: Any) -> bool:
        if node1.is_template() or node2.is_template():
            return fusion.can_fuse(node1, node2)
        return self.can_fuse(node1, node2)

    def can_fuse_horizontal(self, node1: Any, node2: Any) -> bool:
        # Nothing of one graph's products shares a kernel with what reads the same operands.
        if node1.is_template() or node2.is_template():
            return False
        return self.can_fuse(node1, node2)

    def codegen_template(  # type: ignore[override]
        self, template_node: Any, epilogue_nodes: Any, prologue_nodes: Any, **kwargs: Any
    ) -> None:
        fusion.codegen(self, template_node, epilogue_nodes)

    def codegen_sync(self) -> None:
        V.graph.wrapper_code.writeline("torch.ocl.synchronize()")

    def can_fuse(self, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
        """See SIMDScheduling."""
        allowed = bool(super().can_fuse(node1, node2))
        if allowed and (node1.is_foreach() or node2.is_foreach()):
            return combo.are_apart(node1, node2)
        return allowed

    def codegen_combo_kernel(self, combo_kernel_node: ForeachKernelSchedulerNode) -> None:
        """Writes the nodes' kernels side by side, in as few launches as they fit into."""
        made: dict[OclKernel, list[BaseSchedulerNode]] = {}
        for part in combo_kernel_node.get_subkernel_nodes():
            nodes = part.get_nodes()
            _, (numel, rnumel) = max(nodes, key=lambda n: int(n.is_reduction())).group
            schedule = self.generate_node_schedule(nodes, numel, rnumel)
            tiling = self.select_tiling(schedule, numel, rnumel)
            kernel = OclKernel(tiling, features=SIMDKernelFeatures(schedule, numel, rnumel))
            self.process_kernel(kernel, schedule)
            made[kernel] = nodes
        for group in combo.groups(made):
            kernel = group[0] if len(group) == 1 else combo.ComboKernel(group)
            nodes = [node for part in group for node in made[part]]
            with V.set_kernel_handler(group[0]):
                text = kernel.codegen_kernel()
            name = self.define_kernel(text, nodes, kernel)
            self.codegen_comment(nodes, name)
            kernel.call_kernel(name)
        self.free_buffers_in_scheduler()

    def define_kernel(
        self, src_code: str, node_schedule: Any, kernel: OclKernel | combo.ComboKernel
    ) -> str:
        wrapper = V.graph.wrapper_code
        rest = launch.description_of(kernel)
        key = f"{kernel.device} {src_code} {rest}"
        if key in wrapper.src_to_kernel:
            return wrapper.src_to_kernel[key]
        fused = get_fused_kernel_name(node_schedule, config.triton.descriptive_names)
        name = f"ocl_{fused}_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        origins, details = get_kernel_metadata(node_schedule, wrapper)
        source = src_code.replace(KERNEL, name)
        nodes = refused.origins(node_schedule)
        rest["origin"] = refused.describe(nodes)
        made = runtime.Kernel(name=name, source=source, **rest)
        if refused.runs_eagerly():
            self._try(made, kernel, nodes)
        comments = [*origins.splitlines(), *details.splitlines()]
        wrapper.add_kernel(kernel.device.index, made, comments)
        return name

    def _try(self, made: runtime.Kernel, kernel: OclKernel, nodes: list[torch.fx.Node]) -> None:
        """Builds a kernel now, so that the graph can do without it."""
        text = runtime.source_of([made])
        try:
            runtime.build(kernel.device.index, text, made.name)
        except RuntimeError as error:
            message = refused.explain(made.name, made.origin, text, error)
            ops = {n.target for n in nodes if isinstance(n.target, torch._ops.OpOverload)}
            raise refused.RefusedKernel(message, ops) from None
