"""Each change of upstream's parts is still needed: without it, something fails.

A test that fails here says that upstream does without a change: take it out of
torch_ocl/upstream/compile.
"""

import os

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import (
    codecache,
    compile_fx,
    cpp_builder,
    cudagraph_utils,
    decomposition,
    graph,
    lowering,
    output_code,
    scheduler,
    utils,
)
from torch._inductor.codegen import common, cpp_utils
from torch._inductor.exc import InductorError
from torch._inductor.kernel import conv
from torch.nn.attention.flex_attention import flex_attention

from tests.fresh import run_script
from torch_ocl.inductor.call import runtime

PLACES = {
    "get_cpp_torch_device_options": [cpp_builder],
    "_get_cpp_wrapper_header": [codecache],
    "get_cpp_wrapper_config": [compile_fx],
    "fx_codegen_and_compile": [compile_fx],
    "create_backend": [scheduler.Scheduler],
    "get_current_backend": [utils, common],
    "should_assume_input_aligned": [utils, compile_fx],
    "is_big_gpu": [utils],
    "check_multiple_devices_or_any_cpu_nodes": [cudagraph_utils],
    "cudagraph_partition_post_compile": [output_code],
    "needs_fallback_due_to_atomic_add_limitations": [utils, lowering, decomposition],
}


@pytest.fixture(autouse=True)
def registered():
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1)(torch.ones(1, device="ocl"))
    torch._dynamo.reset()


@pytest.fixture
def without(monkeypatch):
    def without(name):
        for module in PLACES[name]:
            function = getattr(module, name)
            monkeypatch.setattr(module, name, getattr(function, "__wrapped__", function))

    return without


@torch._inductor.config.patch(force_disable_caches=True)
def test_create_backend(without):
    without("create_backend")
    with pytest.raises(Exception, match="[Tt]riton"):
        torch.compile(lambda x: x * 2)(torch.ones(3, device="ocl"))


def test_get_current_backend(without):
    assert utils.get_current_backend("ocl") == "ocl"
    without("get_current_backend")
    assert utils.get_current_backend("ocl") != "ocl"


def test_get_system(monkeypatch):
    """The key of caches where torch.cuda has a device, in a torch without CUDA."""
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: object())
    get_system = codecache.CacheBase.get_system
    assert list(get_system()) == ["hash"]
    upstream = get_system.__wrapped__
    upstream.cache_clear()
    try:
        with pytest.raises(AttributeError, match="gcnArchName"):
            upstream()
    finally:
        upstream.cache_clear()


def test_inputs_that_are_not_aligned(without):
    x = torch.ones(9, device="ocl")[1:]
    assert not utils.should_assume_input_aligned(x)
    without("should_assume_input_aligned")
    assert utils.should_assume_input_aligned(x[3:])


def test_sums_through_indices(without):
    """Sums are equal in every run, and by this package's op."""
    x, i = torch.randn(1000, 8, device="ocl"), torch.randint(0, 9, (1000,), device="ocl")
    add = torch.compile(lambda x, i: x.new_zeros(9, 8).index_put((i,), x, accumulate=True))
    torch.testing.assert_close(add(x, i), x.new_zeros(9, 8).index_put((i,), x, accumulate=True))
    assert torch.equal(add(x, i), add(x, i))
    without("needs_fallback_due_to_atomic_add_limitations")
    assert not utils.needs_fallback_due_to_atomic_add_limitations(torch.float32)


def test_gpu_types(monkeypatch):
    """A number from the CPU is an operand of a kernel because the device is a GPU to inductor."""
    assert utils.is_gpu("ocl")
    monkeypatch.setattr(utils, "GPU_TYPES", [t for t in utils.GPU_TYPES if t != "ocl"])
    assert not utils.is_gpu("ocl")


def test_get_gpu_type(monkeypatch):
    """Beside a CUDA device it is that one, where upstream's asserts that there is one kind."""
    assert utils.get_gpu_type() == "ocl"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    utils.get_gpu_type.cache_clear()
    try:
        assert utils.get_gpu_type() == "cuda"
    finally:
        monkeypatch.undo()
        utils.get_gpu_type.cache_clear()


@torch._inductor.config.patch(force_disable_caches=True)
def test_bias_of_convolutions(monkeypatch):
    """Added before the result is rounded to bfloat16, as eagerly: of those that take no text, which
    would add it so."""
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 4, 9, 9), (4, 5, 3, 3), (5,)
    x, w, b = (torch.randn(s, generator=generator).bfloat16().to("ocl") for s in shapes)

    def compiled():
        torch._dynamo.reset()
        return torch.compile(torch.nn.functional.conv_transpose2d)(x, w, b)

    expected = torch.nn.functional.conv_transpose2d(x, w, b)
    assert torch.equal(compiled(), expected)
    monkeypatch.setattr(conv, "ir", conv.ir._upstream)
    assert not torch.equal(compiled(), expected)


@torch._inductor.config.patch(force_disable_caches=True)
def launches(function, *operands):
    """How many kernels it takes once it is compiled."""
    torch._dynamo.reset()
    compiled = torch.compile(function)
    compiled(*operands)
    torch.ocl.reset_launch_count()
    compiled(*operands)
    return torch.ocl.launch_count()


def without_lowering(monkeypatch, op):
    monkeypatch.setitem(lowering.lowerings, op, lowering.lowerings[op].__wrapped__)


def test_products(monkeypatch):
    """An epilogue of a matrix product is one launch with it."""
    operands = torch.rand(70, 40, device="ocl"), torch.rand(40, 96, device="ocl")

    def function(x, w):
        return (x @ w).relu() + 1

    fused = launches(function, *operands)
    without_lowering(monkeypatch, torch.ops.aten.mm.default)
    assert launches(function, *operands) == fused + 1


def test_casts_before_products(monkeypatch):
    """A product takes over a cast of its operand."""
    operands = torch.rand(4, 64, device="ocl"), torch.ones(64, 31, device="ocl").char()

    def function(x, w):
        return x @ w.float()

    fused = launches(function, *operands)
    without_lowering(monkeypatch, torch.ops.prims.convert_element_type.default)
    assert launches(function, *operands) == fused + 1


def test_convolutions(monkeypatch):
    """An epilogue of a convolution is one launch with it."""
    operands = torch.rand(2, 32, 21, 21, device="ocl"), torch.rand(40, 32, 3, 3, device="ocl")

    def function(x, w):
        return torch.conv2d(x, w, padding=1).relu() + 1

    fused = launches(function, *operands)
    monkeypatch.setattr(conv.aten_convolution, "bind", conv.aten_convolution.bind.__wrapped__)
    assert launches(function, *operands) == fused + 1


def test_convolutions_as_products():
    """Upstream lowers those with windows of one element to matrix products where it is told to,
    which the kernels for GPUs gain by."""
    code = """
import sys
import torch
from torch._inductor import lowering
from torch._inductor.utils import run_and_get_code

@torch._inductor.config.patch(force_disable_caches=True)
def product():
    torch._dynamo.reset()
    last = {"memory_format": torch.channels_last}
    x, w = torch.rand(2, 64, 9, 9).to("ocl", **last), torch.rand(96, 64, 1, 1).to("ocl", **last)
    compiled = torch.compile(torch.conv2d)
    return ".convolution" not in "".join(run_and_get_code(compiled, x, w)[1])

print(product())
for op in (torch.ops.aten.convolution, torch.ops.aten.convolution.default):
    lowering.lowerings[op] = lowering.lowerings[op].__wrapped__
print(product())
"""
    done = run_script(code, environment=os.environ | {"TORCH_OCL_TUNE_AS": "gpu"})
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_flex_attention(monkeypatch):
    """Upstream has no kernel of it for the device."""
    operands = [torch.rand(1, 2, 32, 16, device="ocl") for _ in range(3)]
    launches(flex_attention, *operands)
    without_lowering(monkeypatch, torch.ops.higher_order.flex_attention)
    with pytest.raises(InductorError):
        launches(flex_attention, *operands)


@torch._inductor.config.patch(force_disable_caches=True)
def test_refused_kernels(without, monkeypatch):
    """Without the change, its ops don't run eagerly."""
    upstream = runtime.build

    def build(device, text, label):
        if "= SIN(" in text:
            raise RuntimeError("the driver's log")
        upstream(device, text, label)

    monkeypatch.setenv("TORCH_OCL_INDUCTOR_FALLBACK", "1")
    monkeypatch.setattr(runtime, "build", build)
    x = torch.ones(5, device="ocl")
    torch.compile(lambda x: x.sin() * 2)(x)
    torch._dynamo.reset()
    without("fx_codegen_and_compile")
    with pytest.raises(InductorError, match="RefusedKernel"):
        torch.compile(lambda x: x.sin() * 3)(x)


@torch._inductor.config.patch(force_disable_caches=True)
def test_scores_of_templates():
    """Upstream compares names since 2.13: what is for older versions is not installed there."""
    from torch._inductor.scheduler import Scheduler

    score = Scheduler.score_fusion_memory
    upstream = getattr(score, "__wrapped__", score)
    assert (upstream is score) == ("is_template" in upstream.__code__.co_names)


@torch._inductor.config.patch(force_disable_caches=True)
def test_layouts_of_convolutions(monkeypatch):
    """Weights are not copied at each call, but for kernels that are tuned as a GPU's."""
    net = torch.nn.Sequential(*(torch.nn.Conv2d(64, 64, 3) for _ in range(2))).to("ocl")
    x = torch.rand(1, 64, 9, 9, device="ocl")

    def launches():
        torch._dynamo.reset()
        compiled = torch.compile(net)
        with torch.no_grad():
            compiled(x)
            torch.ocl.reset_launch_count()
            compiled(x)
        return torch.ocl.launch_count()

    monkeypatch.setenv("TORCH_OCL_TUNE_AS", "cpu")
    plain = launches()
    upstream = graph.GraphLowering.decide_layout_opt.__wrapped__
    monkeypatch.setattr(graph.GraphLowering, "decide_layout_opt", staticmethod(upstream))
    assert launches() >= plain + 2


def test_is_big_gpu(without, caplog):
    """Upstream's takes it for one, or warns that it isn't."""
    device = torch.device("ocl", 0)
    assert not utils.is_big_gpu(device)
    assert "SMs" not in caplog.text
    without("is_big_gpu")
    utils.is_big_gpu.cache_clear()
    assert utils.is_big_gpu(device) or "SMs" in caplog.text


def captures():
    """Launches of a function compiled for less overhead, on a device alone."""
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(lambda x: (x * 2).sum() + 1, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(3):
            assert compiled(torch.ones(4, device="ocl")).item() == 9
    return counters["inductor"]["ocl_graph_captures"]


@torch._inductor.config.patch(force_disable_caches=True)
def test_graphs_of_the_device(without):
    """Upstream's graphs are those of CUDA devices."""
    assert captures() == 1
    without("check_multiple_devices_or_any_cpu_nodes")
    assert captures() == 0


@torch._inductor.config.patch(force_disable_caches=True)
def test_trees_of_graphs(without):
    without("cudagraph_partition_post_compile")
    with pytest.raises(Exception, match="CUDA|cuda"):
        captures()


def compile_by_cpp(function=lambda x: x * 2):
    """A call whose C++ has to be built, and the number of captures that mode= makes of it."""
    torch._dynamo.reset()
    counters.clear()
    patches = {"cpp_wrapper": True, "force_disable_caches": True}
    with torch._inductor.config.patch(patches):
        compiled = torch.compile(function, mode="reduce-overhead")
        for _ in range(3):
            compiled(torch.ones(3, device="ocl"))
    return counters["inductor"]["ocl_graph_captures"]


@pytest.mark.parametrize("name", ["get_cpp_torch_device_options", "_get_cpp_wrapper_header"])
def test_building_cpp(without, name):
    without(name)
    with pytest.raises(Exception, match="torch_ocl/aoti|inductor/cpp_wrapper/ocl.h|undefined"):
        compile_by_cpp(lambda x: x * 3 + 1)


def test_names_of_the_device_in_cpp(monkeypatch):
    monkeypatch.delitem(cpp_utils.DEVICE_TO_ATEN, "ocl")
    with pytest.raises(Exception, match="ocl not found"):
        compile_by_cpp(lambda x: torch.randperm(3, device=x.device) + x)
    monkeypatch.undo()
    monkeypatch.delitem(cpp_utils.DEVICE_TO_INT, "ocl")
    assert "xpu" not in cpp_utils.DEVICE_TO_INT, "upstream's checks know other devices now"


def test_packages_are_loaded_by_what_dynamo_knows():
    """torch_ocl.upstream.compile.pt2_packages tells it of the device before."""
    code = """
from torch._dynamo.device_interface import get_interface_for_device
try:
    print(get_interface_for_device("ocl"))
except NotImplementedError:
    print("unknown")
"""
    assert "unknown" in run_script(code).stdout


def test_captures_of_the_cpp_wrapper(without):
    assert compile_by_cpp() > 0
    without("get_cpp_wrapper_config")
    assert compile_by_cpp() == 0


@torch._inductor.config.patch(force_disable_caches=True)
def test_foreach_writes(monkeypatch):
    def function(xs):
        sums = torch._foreach_add(xs, xs[1:] + xs[:1])
        torch._foreach_copy_(xs, sums)
        return torch._foreach_neg(sums)

    for op in lowering.inplace_foreach_ops:
        monkeypatch.setitem(lowering.lowerings, op, lowering.lowerings[op].__wrapped__)
    found = torch.compile(function)([torch.ones(40, device="ocl") for _ in range(3)])
    assert any((negative != -2).any() for negative in found)
