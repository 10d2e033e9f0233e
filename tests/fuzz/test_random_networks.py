"""Random small networks, eager and compiled: results and gradients are float64's of CPU torch."""

import copy

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.fuzz import networks, tensors


@pytest.fixture(autouse=True)
def _graphs_are_compiled_afresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def step(network, x, function=None):
    """The result, and the gradients of the input and all parameters, as float64 on the CPU."""
    network.zero_grad()
    leaf = x.clone().requires_grad_()
    result = (function or network)(leaf)
    result.square().mean().backward()
    found = [result.detach(), leaf.grad, *(p.grad for p in network.parameters())]
    return [None if t is None else t.double().cpu() for t in found]


def difference(found, wanted):
    """The largest one, as a part of the largest number; infinite if one is NaN alone."""
    if not torch.equal(found.isfinite(), wanted.isfinite()):
        return float("inf")
    finite = wanted.isfinite()
    most = wanted[finite].abs().max().item() if finite.any() else 0
    apart = (found - wanted)[finite].abs().max().item() if finite.any() else 0
    return apart / most if most > 1e-20 else apart


# Compiling takes a hundred times as long as a case of an op.
@settings(max_examples=max(3, settings.default.max_examples // 20))
@given(st.data())
def test_networks(data):
    """Rounding may choose the other side of a kink in float32: those networks are of float64."""

    def choose(values):
        return data.draw(st.sampled_from(list(values)))

    dtype = choose((torch.float32, torch.float32, torch.float64))
    network, shape = networks.Maker(choose, dtype == torch.float64).network()
    torch.manual_seed(choose(range(100)))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(shape, dtype=torch.float64)
    note(f"{network}\n{shape} {dtype}")

    def of(kind):
        """A copy with the same numbers, and the same statistics to begin with."""
        return copy.deepcopy(network).to(dtype=kind)

    wanted = step(of(torch.float64), x)
    plain = step(of(dtype), x.to(dtype))
    known = [w if w is None else difference(f, w) for f, w in zip(plain, wanted, strict=True)]
    eager, compiled = of(dtype).to("ocl"), of(dtype).to("ocl")
    torch._dynamo.reset()
    results = {
        "eager": step(eager, x.to(dtype).to("ocl")),
        "compiled": step(compiled, x.to(dtype).to("ocl"), torch.compile(compiled)),
    }
    floor = 200 * torch.finfo(dtype).eps
    for name, found in results.items():
        for i, (f, w, cpu) in enumerate(zip(found, wanted, known, strict=True)):
            assert (f is None) == (w is None), f"{name}, result {i}"
            if w is not None:
                apart = difference(f, w)
                assert apart <= 20 * cpu + floor, f"{name}, result {i}: {apart}, CPU torch {cpu}"
    tensors.cases["networks"] += 1
