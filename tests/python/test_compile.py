"""torch.compile on the device: what works, and what says that it does not."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional


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


def convolution(axes, transposed):
    return getattr(functional, f"conv{'_transpose' if transposed else ''}{axes}d")


def operands(axes, transposed, batch=2, window=3, channels=4, last=(True, False)):
    """An input and a weight on the device, each with its channels innermost or outermost."""
    results = 6
    shapes = (
        (batch, channels, *range(5, 5 + axes)),
        ((channels, results) if transposed else (results, channels)) + (window,) * axes,
    )
    for shape, innermost in zip(shapes, last, strict=True):
        t = torch.randn(shape).movedim(1, -1).contiguous().movedim(-1, 1)
        t = t if innermost else t.contiguous()
        yield torch.empty_strided(t.shape, t.stride(), device="ocl").copy_(t).requires_grad_()


@pytest.mark.parametrize("last", [(True, False), (False, True), (False, False)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions(axes, transposed, last):
    """Later ops are compiled for the strides that fake tensors have."""
    torch._dynamo.reset()
    conv = convolution(axes, transposed)
    x, w = operands(axes, transposed, last=last)

    def flattened(x, w):
        result = conv(x, w)
        return result, result.flatten(1), result.movedim(1, -1).flatten(1)

    results = []
    for call in (flattened, torch.compile(flattened, backend="aot_eager", fullgraph=True)):
        out = call(x, w)
        grads = torch.autograd.grad([t.square().sum() for t in out], (x, w))
        results.append([*out, *grads])
    for actual, expected in zip(results[1], results[0], strict=True):
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_strides_of_fake_convolutions(axes, transposed):
    """Forward and backward they are those of the kernels, where sizes of 1 make formats alike,
    too."""
    conv = convolution(axes, transposed)
    rest = ([1] * axes, [0] * axes, [1] * axes, transposed, [0] * axes, 1, [True, True, False])

    def strides(x, w):
        result = conv(x, w)
        flowing = torch.empty_like(result)
        grads = torch.ops.aten.convolution_backward(flowing, x, w, None, *rest)
        return [t.stride() for t in (result, *grads[:2])]

    lasts = itertools.product((True, False), repeat=2)
    for batch, window, channels, last in itertools.product((1, 2), (1, 3), (1, 4), list(lasts)):
        x, w = (t.detach() for t in operands(axes, transposed, batch, window, channels, last))
        with FakeTensorMode() as mode:
            faked = strides(mode.from_tensor(x), mode.from_tensor(w))
        assert faked == strides(x, w), (x.shape, x.stride(), w.shape, w.stride())


@pytest.mark.skipif(
    not torch.backends.mkl.is_available(), reason="strides of other devices' results"
)
@pytest.mark.parametrize(
    "call",
    [
        lambda t: functional.pixel_shuffle(t, 2),
        lambda t: functional.pixel_shuffle(t, 2).contiguous(),
        lambda t: torch.nonzero_static(t[0, 0], size=4),
    ],
)
def test_fakes_by_the_name_of_the_device(call):
    """Shapes that are decided by the name are those of the kernels, which follow CPU torch."""
    x = torch.rand(2, 8, 3, 5).to("ocl", memory_format=torch.channels_last)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        faked = call(fake)
    actual = call(x)
    for a, f in zip(*map(torch.utils._pytree.tree_leaves, (actual, faked)), strict=True):
        assert (a.shape, a.stride()) == (f.shape, f.stride())


def test_rms_norm_of_a_transposed_input():
    def loss(x, weight):
        return (
            functional.rms_norm(x.transpose(1, 2), (8,), weight)
            .transpose(1, 2)
            .contiguous()
            .sin()
            .sum()
        )

    def gradients(function):
        x, weight = (t.to("ocl").requires_grad_() for t in tensors)
        function(x, weight).backward()
        return x.grad, weight.grad

    tensors = torch.randn(2, 8, 5), torch.randn(8)
    torch.testing.assert_close(gradients(torch.compile(loss, backend="aot_eager")), gradients(loss))
