"""torch_ocl::optimizer_8bit_, which bitsandbytes' optimizers run, against the rules written out."""

import math

import pytest
import torch
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu

SETTINGS = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "rate": 1e-2, "decay": 0.1}


def quantised(x, table):
    """The nearest number of the table for each, and the largest of each 256."""
    blocks = torch.nn.functional.pad(x, (0, -len(x) % 256)).view(-1, 256)
    largest = blocks.abs().amax(1)
    scaled = (blocks / largest.clamp_min(1e-38)[:, None]).flatten()[: len(x)]
    between = (table[:-1] + table[1:]) / 2
    return torch.bucketize(scaled, between).to(torch.uint8), largest


def restored(bits, largest, table):
    return table[bits.long()] * largest.repeat_interleave(256)[: len(bits)]


def step(name, p, g, one, two, count, beta1, beta2, eps, rate, decay):
    """The parameters and states after a step, in float."""
    if name in ("adam", "lion"):
        p = p * (1 - rate * decay)
    else:
        g = g + p * decay
    if name == "adam":
        one, two = one * beta1 + g * (1 - beta1), two * beta2 + g * g * (1 - beta2)
        below = two.sqrt() / math.sqrt(1 - beta2**count) + eps
        p = p - rate / (1 - beta1**count) * one / below
    elif name == "lion":
        p = p - rate * (one * beta1 + g * (1 - beta1)).sign()
        one = one * beta2 + g * (1 - beta2)
    elif name == "momentum":
        one = g if count == 1 else one * beta1 + g
        p = p - rate * one
    else:
        one = one * beta1 + g * g * (1 - beta1) if name == "rmsprop" else one + g * g
        p = p - rate * g / (one.sqrt() + eps)
    return p, one, two


@pytest.mark.parametrize("name", ["adam", "momentum", "rmsprop", "lion", "adagrad"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("elements", [5, 256, 1000])
def test_steps(name, dtype, elements):
    g = torch.Generator().manual_seed(1)
    signed = torch.linspace(-1, 1, 256).pow(3)
    positive = torch.linspace(0, 1, 256).pow(3)
    table = signed if name in ("adam", "momentum", "lion") else positive
    p = torch.randn(elements, generator=g).to(dtype)
    one, most = quantised(torch.rand(elements, generator=g), table)
    two, most2 = quantised(torch.rand(elements, generator=g), positive)
    moved = [t.to("ocl") for t in (p, one, two, table, positive, most, most2)]
    on_device, states1, states2, table1, table2, largest1, largest2 = moved
    extra = (states2,) if name == "adam" else (None,)
    for count in (1, 2):
        gradient = torch.randn(elements, generator=g).to(dtype)
        wanted, s1, s2 = step(
            name, p.float(), gradient.float() * 0.5, restored(one, most, table),
            restored(two, most2, positive), count, **SETTINGS,
        )  # fmt: skip
        torch.ops.torch_ocl.optimizer_8bit_(
            name, gradient.to("ocl"), on_device, states1, *extra, SETTINGS["beta1"],
            SETTINGS["beta2"], SETTINGS["eps"], count, SETTINGS["rate"], table1,
            table2 if name == "adam" else None, largest1, largest2 if name == "adam" else None,
            SETTINGS["decay"], 0.5,
        )  # fmt: skip
        tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
        assert_close(on_device.cpu().float(), wanted, rtol=tolerance, atol=tolerance)
        # A state half way between two numbers goes to either.
        assert_close(largest1.cpu(), quantised(s1, table)[1], rtol=1e-4, atol=1e-6)
        apart = (states1.cpu().int() - quantised(s1, table)[0].int()).abs()
        assert apart.max() <= 1 and (apart > 0).float().mean() < 0.02
        if name == "adam":
            apart = (states2.cpu().int() - quantised(s2, positive)[0].int()).abs()
            assert apart.max() <= 1 and (apart > 0).float().mean() < 0.02
        p = on_device.cpu()
        one, most = states1.cpu(), largest1.cpu()
        two, most2 = states2.cpu(), largest2.cpu()


def test_what_is_refused():
    p, bits = torch.zeros(300).to("ocl"), torch.zeros(300, dtype=torch.uint8).to("ocl")
    table, most = torch.zeros(256).to("ocl"), torch.zeros(2).to("ocl")

    def run(name="lion", p=p, bits=bits, table=table, most=most):
        torch.ops.torch_ocl.optimizer_8bit_(
            name, p, p, bits, None, 0.9, 0.99, 1e-8, 1, 1e-2, table, None, most, None, 0.0, 1.0
        )

    run()
    with pytest.raises(NotImplementedError, match="ademamix"):
        run("ademamix")
    for bad in ({"p": p.double()}, {"bits": bits[1:]}, {"table": table[1:]}, {"most": most[1:]}):
        with pytest.raises(RuntimeError):
            run(**bad)
    with pytest.raises(RuntimeError, match="two states"):
        run("adam")


@pytest.mark.as_gpu
def test_kernels_for_gpus():
    """Blocks that a group shares."""
    run_as_gpu(__file__, "-k", "steps")
