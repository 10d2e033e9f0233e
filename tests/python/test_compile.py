"""torch.compile on the device: what works, and what says that it does not."""

import pytest
import torch


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


def test_inductor_says_what_works():
    with pytest.raises(Exception, match="no code generator for ocl.*aot_eager"):
        torch.compile(function)(torch.ones(3, 5, device="ocl"))
    # The CPU's is not touched by that.
    torch.testing.assert_close(torch.compile(function)(torch.ones(3, 5)), torch.full((3,), 10.0))
