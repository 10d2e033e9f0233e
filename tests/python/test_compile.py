"""torch.compile on the device: what works, and what says that it does not."""

import copy

import pytest
import torch
from torch import nn


def function(x):
    return (x * 2).relu().sum(1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_without_a_code_generator(backend):
    x = torch.randn(3, 5)
    leaves = [x.clone().requires_grad_(), x.to("ocl").requires_grad_()]
    compiled = torch.compile(function, backend=backend)
    results = [function(leaves[0]), compiled(leaves[1])]
    for result in results:
        result.sum().backward()
    torch.testing.assert_close(results[1].cpu(), results[0])
    torch.testing.assert_close(leaves[1].grad.cpu(), leaves[0].grad)


MODULES = {
    "GRUCell": (nn.GRUCell(4, 6), (3, 4)),
    "LSTMCell": (nn.LSTMCell(4, 6), (3, 4)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (3, 2, 8)),
}


@pytest.mark.parametrize("name", MODULES)
def test_training_of_modules(name):
    """Ops with functions of our own for autograd, and those that save more than their operands."""
    module, shape = MODULES[name]
    x = torch.randn(shape)

    def train(device):
        moved = copy.deepcopy(module).to(device)
        run = torch.compile(moved, backend="aot_eager") if device == "ocl" else moved
        out = run(x.to(device))
        (out[0] if isinstance(out, tuple) else out).square().sum().backward()
        return [p.grad.cpu() for p in moved.parameters()]

    for actual, expected in zip(train("ocl"), train("cpu"), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_inductor_says_what_works():
    with pytest.raises(Exception, match="no code generator for ocl.*aot_eager"):
        torch.compile(function)(torch.ones(3, 5, device="ocl"))
    # The CPU's is not touched by that.
    torch.testing.assert_close(torch.compile(function)(torch.ones(3, 5)), torch.full((3,), 10.0))
