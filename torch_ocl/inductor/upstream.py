"""All that this backend changes in torch itself, in one place.

Each change says why, and tests for the part that it changes by feature: tests/compile has a test
of each that fails once it is no longer needed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torch_ocl.inductor import float_guards, mutations, refused


def install() -> None:
    """Applies all of them, once."""
    _gpu_types()
    _system()
    _create_backend()
    _current_backend()
    _aligned_inputs()
    _big_gpu()
    _no_atomic_sums()
    _flex_attention()
    _products()
    _scores_of_templates()
    _foreach_writes()
    _convolution_bias()
    _layouts()
    _whole_graphs()
    _captured()
    _cpp_builds()
    _cpp_projects()
    _cpp_headers()
    _cpp_names()
    _cpp_captures()
    float_guards.install()
    mutations.install()
    refused.install()


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
    _replace("needs_fallback_due_to_atomic_add_limitations", upstream, ours)


def _flex_attention() -> None:
    """flex_attention's lowerings know CPUs and Triton."""
    # Their modules register the lowerings.
    import torch._inductor.kernel.flex.flex_attention
    from torch._inductor.lowering import lowerings

    from torch_ocl.inductor.templates import flex

    ops = torch.ops.higher_order
    replacements = {
        ops.flex_attention: flex.forward,
        ops.flex_attention_backward: flex.backward,
    }
    for op, ours in replacements.items():
        lowerings[op] = _for_ocl(lowerings[op], ours)


def _products() -> None:
    """Matrix products are calls of eager ops, which nothing is fused with."""
    from torch_ocl.inductor.templates import products

    products.install()


def _scores_of_templates() -> None:
    """What reads a product's result in another shape may follow it. PyTorch 2.13 compares names
    where a node is a template. Before, both had to go by the same indices to have a score."""
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
            # Of what is no input, the name goes to the results, and nothing is written.
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
    """What nodes after the current one of a GraphLowering take from nodes before it."""
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
    _replace("check_multiple_devices_or_any_cpu_nodes", upstream, ours)


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
        _replace(name, upstream, replacement(upstream))


class _ConvolutionIr:
    """inductor's module `ir`, as the lowering of convolutions has it: the device is like a CPU."""

    def __init__(self, upstream: Any) -> None:
        self._upstream = upstream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._upstream, name)

    def get_device_type(self, x: Any) -> Any:
        kind = self._upstream.get_device_type(x)
        return "cpu" if kind == "ocl" else kind


def _replace(name: str, upstream: Any, ours: Any) -> None:
    """A function of inductor's, in all modules that have imported it by name."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("torch._inductor") and vars(module).get(name) is upstream:
            setattr(module, name, ours)


def _for_ocl(upstream: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(upstream)
    def lowering(query: Any, *args: Any, **kwargs: Any) -> Any:
        function = ours if query.get_device().type == "ocl" else upstream
        return function(query, *args, **kwargs)

    return lowering


def _aligned_inputs() -> None:
    """Inputs of a GPU that are not aligned are copied. Generated kernels take elements as they
    lie."""
    from torch._inductor import utils

    upstream = utils.should_assume_input_aligned

    @functools.wraps(upstream)
    def should_assume_input_aligned(example_input: torch.Tensor) -> bool:
        return example_input.device.type != "ocl" and upstream(example_input)

    _replace("should_assume_input_aligned", upstream, should_assume_input_aligned)


def _big_gpu() -> None:
    """Whether a GPU is one for triton's products, with a warning where it is not."""
    from torch._inductor import utils

    upstream = utils.is_big_gpu

    @functools.wraps(upstream)
    def is_big_gpu(index_or_device: int | torch.device = 0) -> bool:
        if isinstance(index_or_device, torch.device):
            kind = index_or_device.type
        else:
            kind = utils.get_gpu_type()
        return kind != "ocl" and upstream(index_or_device)

    _replace("is_big_gpu", upstream, is_big_gpu)


def _gpu_types() -> None:
    """A device in inductor's list of GPUs gets device guards, numbers from 0-dimensional operands
    on the CPU, and copies of inputs that are not aligned any more."""
    from torch._inductor import utils

    if "ocl" not in utils.GPU_TYPES:
        utils.GPU_TYPES.append("ocl")
    upstream = utils.get_gpu_type
    upstream.cache_clear()

    # Upstream's asserts that there is one at most; beside a CUDA device it is that one.
    @functools.lru_cache(None)
    def get_gpu_type() -> str:
        others = [t for t in utils.GPU_TYPES if t != "ocl" and getattr(torch, t).is_available()]
        return others[0] if others else "ocl" if torch.ocl.is_available() else "cuda"

    _replace("get_gpu_type", upstream, get_gpu_type)


def _system() -> None:
    """The key of caches names a CUDA device. After cuda_to_ocl() torch.cuda has
    devices, which a torch without CUDA and HIP would take for those of HIP."""
    from torch._inductor import codecache

    upstream = codecache.CacheBase.get_system

    @functools.wraps(upstream)
    def get_system() -> Any:
        if torch.version.cuda is not None or torch.version.hip is not None:
            return upstream()
        # Upstream's answer where torch.cuda has no devices.
        return {"hash": codecache.SYSTEM_CACHE_KEY_STRATEGY.key_from_json({})}

    codecache.CacheBase.get_system = staticmethod(get_system)


def _create_backend() -> None:
    """Without triton a scheduler refuses every GPU but `mps`."""
    from torch._inductor import scheduler
    from torch._inductor.virtualized import V

    upstream = scheduler.Scheduler.create_backend

    @functools.wraps(upstream)
    def create_backend(self: Any, device: torch.device) -> Any:
        if device.type != "ocl":
            return upstream(self, device)
        from torch_ocl.inductor.scheduling import OclScheduling

        V.graph.add_device_info(device)
        return OclScheduling(self)

    scheduler.Scheduler.create_backend = create_backend


def _current_backend() -> None:
    """An unknown device's backend would be CUDA's, triton."""
    from torch._inductor import utils

    upstream = utils.get_current_backend

    @functools.wraps(upstream)
    def get_current_backend(device_type: str | None = None) -> str:
        from torch._inductor.virtualized import V

        if not device_type:
            device_type = V.graph.get_current_device_or_throw().type
        return "ocl" if device_type == "ocl" else upstream(device_type)

    _replace("get_current_backend", upstream, get_current_backend)


def _cpp_builds() -> None:
    """What generated C++ is compiled with beside torch's own: include folders, libraries."""
    from torch._inductor import cpp_builder

    upstream = cpp_builder.get_cpp_torch_device_options
    package = Path(__file__).parent.parent

    @functools.wraps(upstream)
    def get_cpp_torch_device_options(device_type: str, *args: Any, **kwargs: Any) -> Any:
        options = upstream(device_type, *args, **kwargs)
        if device_type == "ocl":
            _, include_dirs, _, _, libraries_dirs, libraries, _ = options
            include_dirs.append(str(package / "include"))
            libraries_dirs.append(str(package))
            libraries.append("torch_ocl")
        return options

    _replace("get_cpp_torch_device_options", upstream, get_cpp_torch_device_options)


def _cpp_projects() -> None:
    """The CMake projects of packages of C++ alone: where their libraries are found."""
    from torch._inductor import cpp_builder

    upstream = cpp_builder.CppBuilder.save_compile_cmd_to_cmake

    @functools.wraps(upstream)
    def save_compile_cmd_to_cmake(self: Any, cmake_path: str, device_type: str) -> None:
        upstream(self, cmake_path, device_type)
        if device_type == "ocl":
            # Libraries are listed by their names later on.
            with Path(cmake_path).open("a", encoding="utf-8") as file:
                file.write("find_package(TorchOCL REQUIRED)\n")
                file.write("add_library(torch_ocl ALIAS TorchOCL::torch_ocl)\n")

    cpp_builder.CppBuilder.save_compile_cmd_to_cmake = save_compile_cmd_to_cmake


def _cpp_headers() -> None:
    """The header that generated C++ begins with, which is compiled once for all."""
    from torch._inductor import codecache

    upstream = codecache._get_cpp_wrapper_header

    @functools.wraps(upstream)
    def _get_cpp_wrapper_header(device: str, aot_mode: bool = False) -> str:
        if device.split(":")[0] != "ocl":
            return upstream(device, aot_mode)
        return f"torch_ocl/aoti/{'model' if aot_mode else 'wrapper'}.h"

    _replace("_get_cpp_wrapper_header", upstream, _get_cpp_wrapper_header)


def _cpp_names() -> None:
    """What C++ calls the device's type, and its number for a model's checks of its inputs."""
    from torch._inductor.codegen import cpp_utils

    cpp_utils.DEVICE_TO_ATEN.setdefault("ocl", "at::kPrivateUse1")
    cpp_utils.DEVICE_TO_INT.setdefault("ocl", 20)


def _cpp_captures() -> None:
    """The C++ wrapper can't leave parts of a graph to CUDA graphs, so it turns them off. A graph on
    ocl is captured as a whole."""
    from torch._inductor import compile_fx, config, utils
    from torch._inductor.virtualized import V

    upstream = compile_fx.get_cpp_wrapper_config

    @functools.wraps(upstream)
    def get_cpp_wrapper_config(*args: Any, **kwargs: Any) -> dict[str, object]:
        if utils.get_gpu_type() != "ocl":
            return upstream(*args, **kwargs)
        with config.patch(graph_partition=False):
            found = upstream(*args, **kwargs)
        return found | {"triton.cudagraphs": config.triton.cudagraphs and not V.aot_compilation}

    _replace("get_cpp_wrapper_config", upstream, get_cpp_wrapper_config)
