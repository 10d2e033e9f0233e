"""Inductor's layouts, scheduler and foreach ops, as far as they go by devices' names.

Each change says why, and tests for the part that it changes by feature: tests/compile has a test
of each that fails once it is no longer needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_ocl.upstream.compile import (
    clamps,
    device_types,
    dtype_views,
    fallbacks,
    float_guards,
    generated_cpp,
    graph_passes,
    mutations,
    patterns,
    powers,
    precomputed_sizes,
    quotients,
    refused_kernels,
    side_by_side,
    specialized_floats,
    templates,
    windows,
    written_inputs,
    written_views,
)
from torch_ocl.upstream.compile.replacement import replace


def install() -> None:
    """Applies all that concerns Inductor, once."""
    device_types.install()
    generated_cpp.install()
    graph_passes.install()
    _no_atomic_sums()
    templates.install()
    _scores_of_templates()
    _foreach_writes()
    _convolution_bias()
    _layouts()
    _whole_graphs()
    _captured()
    clamps.install()
    dtype_views.install()
    fallbacks.install()
    float_guards.install()
    mutations.install()
    patterns.install()
    powers.install()
    precomputed_sizes.install()
    quotients.install()
    side_by_side.install()
    specialized_floats.install()
    windows.install()
    written_inputs.install()
    written_views.install()
    refused_kernels.install()


def _no_atomic_sums() -> None:
    """Sums through indices are left to this package's ops, which are faster than atomic updates,
    and the same in every run."""
    from torch._inductor import utils
    from torch._inductor.virtualized import V

    upstream = utils.needs_fallback_due_to_atomic_add_limitations

    @functools.wraps(upstream)
    def needs_fallback_due_to_atomic_add_limitations(dtype: torch.dtype) -> bool:
        on_ocl = "ocl" in getattr(V.graph, "device_types", ())
        return on_ocl or upstream(dtype)

    ours = needs_fallback_due_to_atomic_add_limitations
    replace("needs_fallback_due_to_atomic_add_limitations", upstream, ours)


def _scores_of_templates() -> None:
    """An op that reads a product's result in another shape may follow it. PyTorch 2.13 compares
    names where a node is a template. Before, both had to go by the same indices for a score."""
    from torch._inductor import scheduler

    from torch_ocl.inductor.templates.template import Template

    upstream = scheduler.Scheduler.score_fusion_memory
    if "is_template" in upstream.__code__.co_names:
        return

    @functools.wraps(upstream)
    def score_fusion_memory(self: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> Any:
        found = upstream(self, node1, node2, *args, **kwargs)
        score, *rest = found if isinstance(found, tuple) else (found,)
        if score or not isinstance(node1.get_nodes()[0].node, Template):
            return found
        names = {dep.name for dep in node1.read_writes.writes}
        shared = [dep for dep in node2.read_writes.reads if dep.name in names]
        score = sum(map(self.dep_size_hint, shared))
        return (score, *rest) if rest else score

    scheduler.Scheduler.score_fusion_memory = score_fusion_memory


def _foreach_writes() -> None:
    """A foreach op that writes in place has its results written straight into its first list, by
    one launch. What reads that list and is not computed yet would come too late, and parts that
    read what others write would race: these ops write into memory of their own, and copy."""
    from torch._inductor import lowering
    from torch._inductor.virtualized import V

    functional = {inplace: op for op, inplace in lowering.inplaceable_foreach_ops.items()}

    def wrapped(upstream: Callable[..., Any], outplace: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(upstream)
        def in_place(targets: Any, *args: Any, **kwargs: Any) -> Any:
            if not any(target.get_device().type == "ocl" for target in targets):
                return upstream(targets, *args, **kwargs)
            # A target that is no input gives its name to the results, and nothing is written.
            written = [target for target in targets if target.is_input_buffer()]
            names = {target.get_name() for target in written}
            for value in _live_values(V.graph):
                if names & set(value.get_read_names()):
                    value.realize()
            lists = [targets, *(a for a in args if isinstance(a, (list, tuple)))]
            places: dict[str, set[int]] = {}
            for values in lists:
                for i, value in enumerate(values):
                    for name in value.get_read_names() if hasattr(value, "get_read_names") else ():
                        places.setdefault(name, set()).add(i)
            if all(len(places.get(target.get_name(), ())) < 2 for target in written):
                return upstream(targets, *args, **kwargs)
            results = outplace(targets, *args, **kwargs)
            return [lowering.mutate_to(t, r) for t, r in zip(targets, results, strict=True)]

        return in_place

    for op in lowering.inplace_foreach_ops:
        lowering.lowerings[op] = wrapped(lowering.lowerings[op], lowering.lowerings[functional[op]])


def _live_values(graph: Any) -> list[Any]:
    """Values that nodes after the current one of a GraphLowering take from nodes before it."""
    from torch._inductor import ir

    current, before = graph.current_node, []
    for node in current.graph.nodes:
        if node is current:
            break
        before.append(node)
    done = {*before, current}
    found: list[Any] = []
    for node in before:
        if any(user not in done for user in node.users):
            value = graph.env.get(node)
            found += value if isinstance(value, (list, tuple)) else [value]
    return [value for value in found if isinstance(value, ir.TensorBox)]


def _convolution_bias() -> None:
    """A GPU's bias is added by a kernel of its own, which rounds half types twice. Our convolutions
    add it before they round, as CPU torch's."""
    from torch._inductor.kernel import conv

    conv.ir = _ConvolutionIr(conv.ir)


def _layouts() -> None:
    """Inductor has convolutions channels-last on GPUs, and copies weights at each call for that.
    On a CPU such a copy can take longer than the convolution, whose kernels take both layouts."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    from torch_ocl.inductor import device

    upstream = GraphLowering.decide_layout_opt

    @functools.wraps(upstream)
    def decide_layout_opt(gm: torch.fx.GraphModule, *, is_inference: bool) -> bool:
        devices = {
            node.meta["val"].device
            for node in gm.graph.nodes
            if node.target is torch.ops.aten.convolution.default
        }
        as_cpu = any(d.type == "ocl" and device.is_cpu_form(d.index or 0) for d in devices)
        if as_cpu and not config.force_layout_optimization:
            return False
        return upstream(gm, is_inference=is_inference)

    GraphLowering.decide_layout_opt = staticmethod(decide_layout_opt)


def _whole_graphs() -> None:
    """CUDA graphs take the parts of a graph that are on CUDA devices; other devices stop them. A
    graph on ocl is captured as a whole, or not at all."""
    from torch._inductor import cudagraph_utils

    upstream = cudagraph_utils.check_multiple_devices_or_any_cpu_nodes

    @functools.wraps(upstream)
    def check_multiple_devices_or_any_cpu_nodes(nodes: dict[torch.device, Any]) -> str | None:
        devices = {device for device in nodes if device.type != "meta"}
        if not any(device.type == "ocl" for device in devices):
            return upstream(nodes)
        names = ", ".join(sorted(map(str, devices)))
        return None if len(devices) == 1 else f"skipping cudagraphs due to devices: {names}"

    ours = check_multiple_devices_or_any_cpu_nodes
    replace("check_multiple_devices_or_any_cpu_nodes", upstream, ours)


def _captured() -> None:
    """mode="reduce-overhead" is upstream's trees of CUDA graphs."""
    from torch._inductor import output_code

    from torch_ocl.inductor.call import replay

    def is_ours(compiled_graph: Any) -> bool:
        return set(compiled_graph.device_types) == {"ocl"}

    def replacement(upstream: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(upstream)
        def post_compile(inputs: Any, graph: Any, cudagraphs: Any, *rest: Any) -> None:
            if is_ours(graph):
                replay.wrap(graph, cudagraphs)
            else:
                upstream(inputs, graph, cudagraphs, *rest)

        return post_compile

    for name in ("cudagraph_post_compile", "cudagraph_partition_post_compile"):
        upstream = getattr(output_code, name)
        replace(name, upstream, replacement(upstream))


class _ConvolutionIr:
    """inductor's module `ir`, as the lowering of convolutions has it: the device is like a CPU."""

    def __init__(self, upstream: Any) -> None:
        self._upstream = upstream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._upstream, name)

    def get_device_type(self, x: Any) -> Any:
        kind = self._upstream.get_device_type(x)
        return "cpu" if kind == "ocl" else kind
