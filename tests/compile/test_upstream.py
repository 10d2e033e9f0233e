"""Each change of upstream's parts is still needed: without it, something fails.

A test that fails here says that upstream does without a change: take it out of
torch_ocl/inductor/upstream.py.
"""

import inspect

import pytest
import torch
from torch._inductor import compile_fx, decomposition, lowering, scheduler, utils
from torch._inductor.codegen import common

from torch_ocl.inductor import ops

PLACES = {
    "create_backend": [scheduler.Scheduler],
    "get_current_backend": [utils, common],
    "should_assume_input_aligned": [utils, compile_fx],
    "is_big_gpu": [utils],
    "needs_fallback_due_to_atomic_add_limitations": [utils, lowering, decomposition],
    "fx_codegen_and_compile": [compile_fx],
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


def test_inputs_that_are_not_aligned(without):
    x = torch.ones(9, device="ocl")[1:]
    assert not utils.should_assume_input_aligned(x)
    without("should_assume_input_aligned")
    assert utils.should_assume_input_aligned(x[3:])


def test_is_big_gpu(without, caplog):
    """Upstream's logs a warning of each device that has few processors."""
    device = torch.device("ocl", 0)
    with caplog.at_level("WARNING", logger="torch._inductor.utils"):
        assert not utils.is_big_gpu(device)
        assert not caplog.records
        without("is_big_gpu")
        utils.is_big_gpu.cache_clear()
        assert utils.is_big_gpu(device) or caplog.records


def test_sums_through_indices(without):
    """The same in every run, and by this package's op."""
    x, i = torch.randn(1000, 8, device="ocl"), torch.randint(0, 9, (1000,), device="ocl")
    add = torch.compile(lambda x, i: x.new_zeros(9, 8).index_put((i,), x, accumulate=True))
    torch.testing.assert_close(add(x, i), x.new_zeros(9, 8).index_put((i,), x, accumulate=True))
    assert torch.equal(add(x, i), add(x, i))
    without("needs_fallback_due_to_atomic_add_limitations")
    assert not utils.needs_fallback_due_to_atomic_add_limitations(torch.float32)


def test_the_list_of_gpus():
    """Without it there is no guard of the device, and a number on the CPU is an address."""
    assert utils.is_gpu("ocl")
    assert inspect.getsource(utils).split("GPU_TYPES = ")[1].startswith('["cuda"')
    assert "ocl" not in inspect.getsource(utils).split("GPU_TYPES = ")[1].split("]")[0]
    assert utils.get_gpu_type() == ("cuda" if torch.cuda.is_available() else "ocl")


def test_every_op_has_a_method():
    assert ops.missing_ops() == []
    for name in ops.NOT_GIVEN:
        assert name in dir(torch._inductor.ops_handler.OpsHandler), name


def test_methods_take_what_upstream_hands_over():
    handler = torch._inductor.ops_handler.OpsHandler
    for name, method in vars(ops.Overrides).items():
        upstream = getattr(handler, name, None)
        if name.startswith("_") or upstream is None:
            continue
        function = method.__func__ if isinstance(method, staticmethod) else method
        own = inspect.signature(function).parameters.values()
        if any(p.kind == p.VAR_POSITIONAL for p in own):
            continue
        assert len(own) == len(inspect.signature(upstream).parameters) - 1, name
