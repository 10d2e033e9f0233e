"""Errors of torch.compile: kernels that a driver refuses, and what it can't compile."""

import pytest
import torch

from torch_ocl.inductor import refused
from torch_ocl.inductor.call import runtime
from torch_ocl.inductor.templates import epilogue


@pytest.fixture
def a_driver_without_sines(monkeypatch):
    """Refuses programs with a sine."""
    upstream = runtime.build

    def build(device, text, label):
        if "= SIN(" in text:
            raise RuntimeError("the driver's log")
        upstream(device, text, label)

    monkeypatch.setattr(runtime, "build", build)
    torch._dynamo.reset()


def waves(x):
    return x.sin() * 2 + x.cos()


@torch._inductor.config.patch(force_disable_caches=True)
def test_a_refused_kernel(a_driver_without_sines):
    with pytest.raises(refused.RefusedKernel) as raised:
        torch.compile(waves)(torch.ones(5, device="ocl"))
    text = str(raised.value)
    assert "aten.sin" in text
    assert "test_compile_errors.py" in text
    assert "x.sin() * 2 + x.cos()" in text
    assert "the driver's log" in text
    kept = text.split("kept in ")[1].split(". TORCH")[0]
    with open(kept) as file:
        assert "sin(" in file.read()


@torch._inductor.config.patch(force_disable_caches=True)
def test_a_refused_product(monkeypatch):
    """Its kernel is built when it is called."""
    upstream = epilogue.write

    def write(*arguments):
        text = upstream(*arguments)
        text.source += "\nno OpenCL C"
        return text

    monkeypatch.setattr(epilogue, "write", write)
    torch._dynamo.reset()
    with pytest.raises(refused.RefusedKernel) as raised:
        torch.compile(lambda x: (x @ x).relu())(torch.ones(40, 40, device="ocl"))
    text = str(raised.value)
    assert "aten.mm" in text and "aten.relu" in text
    assert "torch.compile(lambda x: (x @ x).relu())" in text
    assert "clBuildProgram" in text
    with open(text.split("kept in ")[1].split(". TORCH")[0]) as file:
        assert "no OpenCL C" in file.read()


@torch._inductor.config.patch(force_disable_caches=True)
def test_its_ops_run_eagerly(a_driver_without_sines, monkeypatch):
    monkeypatch.setenv("TORCH_OCL_INDUCTOR_FALLBACK", "1")
    before = refused.fallback_counts().get("aten.sin.default", 0)
    x = torch.linspace(-1, 1, 5)
    torch.testing.assert_close(torch.compile(waves)(x.to("ocl")).cpu(), waves(x))
    assert refused.fallback_counts()["aten.sin.default"] == before + 1
    # Other graphs' sines are generated as ever.
    monkeypatch.undo()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(waves)(x.to("ocl")).cpu(), waves(x))
