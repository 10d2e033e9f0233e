"""The tests of convolutions share these: the functions, and a comparison with CPU torch."""

import torch
from torch.nn import functional

from tests.layouts import on_device
from tests.ops.spatial import moved, same, sample

CALLS = {
    (axes, transposed): getattr(functional, f"conv{'_transpose' if transposed else ''}{axes}d")
    for axes in (1, 2, 3)
    for transposed in (False, True)
}


def check_all(call, x, weight, bias, what="", wider=None, **tolerance):
    """The result and all gradients are CPU torch's, or those that it gets in a `wider` dtype.

    For the half types that is float32: where a processor has no instructions for them, CPU torch
    rounds sums to the type in between.
    """
    dtype = x.dtype
    if wider is None and dtype in (torch.float16, torch.bfloat16):
        wider = torch.float32

    def run(*arguments):
        leaves = [None if a is None else a.detach().requires_grad_() for a in arguments]
        result = call(*leaves)
        ones = sample(*result.shape, seed=3).to(result.dtype)
        cotangent = on_device(ones) if result.device.type == "ocl" else ones
        given = [leaf for leaf in leaves if leaf is not None]
        return [result.detach(), *torch.autograd.grad(result, given, cotangent)]

    if wider is None:
        want = run(x, weight, bias)
    else:
        want = [
            t.to(dtype)
            for t in run(*(None if a is None else a.to(wider) for a in (x, weight, bias)))
        ]
    got = run(*(None if a is None else moved(a) for a in (x, weight, bias)))
    names = ("result", "input", "weight", "bias")
    for name, g, w in zip(names, got, want, strict=False):
        same(g, w, f"{what} {name}", **tolerance)
