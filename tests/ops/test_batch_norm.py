"""Batch norm against CPU torch: forward, backward, running statistics."""

import math

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu
from tests.ops.norms import CHANNEL_SHAPES, FLOATING, aten, check, made


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", CHANNEL_SHAPES, ids=str)
def test_batch_norm(dtype, shape):
    channels = shape[1]
    inputs = [made(shape, dtype), made(channels, dtype, 1), made(channels, dtype, 2)]
    mean, var = made(channels, dtype, 3), made(channels, dtype, 4).abs() + 0.5

    def evaluated(x, *parameters):
        running = [t.to(x.device, x.dtype) for t in (mean, var)]
        return functional.batch_norm(x, *running, *parameters, training=False)

    for function in (
        evaluated,
        lambda x, *p: functional.batch_norm(x, None, None, *p, training=True),
    ):
        check(function, inputs)
        if shape == (4, 12, 33):
            check(function, inputs[:1])
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        if len(shape) in formats:
            check(function, [inputs[0].to(memory_format=formats[len(shape)]), *inputs[1:]])


def test_running_statistics_with_strides():
    x = made((30, 4, 5), torch.float32)
    both = {}
    for device in ("ocl", "cpu"):
        storage = torch.ones(4, 2, 2).to(device)
        mean, var = storage[:, 0, 0], storage[:, 1, 1]
        functional.batch_norm(x.to(device), mean, var, training=True, momentum=0.3)
        both[device] = storage.cpu()
    assert_close(both["ocl"], both["cpu"])


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize(
    "shape", [(3, 64, 20, 21), (2, 3, 40, 41), (3, 520, 5, 5), (64, 7, 30, 30), (2, 1100, 1, 3)]
)
def test_channels_last(dtype, shape):
    """Channels that make up vectors and those that don't, few and many of them, at positions that
    one work-group takes, and several."""
    x = (made(shape, dtype) + 5).to(memory_format=torch.channels_last)
    parameters = made(shape[1], dtype, 1), made(shape[1], dtype, 2)

    def normalized(*operands):
        return functional.batch_norm(operands[0], None, None, *operands[1:], training=True)

    check(normalized, [x, *parameters])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(64, 40, 9, 9), (16, 2, 64, 64), (8, 9, 70, 70)])
def test_variance_far_from_zero(shape, last):
    """As exact as the input's own rounding lets it be, however many parts a channel has."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 1000
    x = x.to(memory_format=torch.channels_last) if last else x
    expected = x.double().var((0, 2, 3))
    mean, var = (torch.zeros(shape[1], device="ocl") for _ in range(2))
    functional.batch_norm(x.to("ocl"), mean, var, training=True, momentum=1.0)
    assert_close(var.cpu().double(), expected, rtol=8e-7 if last else 3e-7, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "shape, strides",
    [
        ((2, 3, 1, 1), (3, 1, 3, 3)),  # contiguous, too
        ((2, 1, 4, 4), (16, 1, 4, 1)),
        ((1, 3, 4, 4), (3, 1, 12, 3)),  # an image with channels last, unsqueezed
        ((1, 3, 2, 4, 4), (1, 1, 48, 12, 3)),
    ],
)
def test_formats(shape, strides, training):
    x, w = made(shape, torch.float32), made(shape[1], torch.float32, 1)

    def run(device):
        a = torch.empty_strided(shape, strides, device=device).copy_(x).requires_grad_()
        p = w.to(device)
        out = functional.batch_norm(a, p.clone(), p.exp(), p, p, training=training)
        return [out, *torch.autograd.grad(out.square().sum(), a)]

    (out, grad), (expected, expected_grad) = run("ocl"), run("cpu")
    assert out.stride() == expected.stride()
    assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert_close(grad.cpu(), expected_grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 16, 5, 7), (2, 16, 5, 7), (1, 6, 3, 4, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_gradient_with_other_strides_than_the_input(shape, training):
    """The reference has a contiguous gradient: CPU torch misreads one with channels last
    where the batch is 1 and the input contiguous."""
    inputs = [made(shape, torch.float32), *(made(shape[1], torch.float32, i) for i in (1, 2))]
    mean, var = made(shape[1], torch.float32, 3), made(shape[1], torch.float32, 4).abs() + 0.5
    flowing = made((shape[0], math.prod(shape[2:]), shape[1]), torch.float32, 5).transpose(1, 2)

    def run(device, flowing):
        leaves = [t.to(device).requires_grad_() for t in inputs]
        running = [t.to(device) for t in (mean, var)]
        out = functional.batch_norm(leaves[0], *running, *leaves[1:], training=training)
        return torch.autograd.grad(out, leaves, flowing)

    expected = run("cpu", flowing.reshape(shape).contiguous())
    flowing = flowing.transpose(1, 2).to("ocl").transpose(1, 2).view(shape)
    assert not flowing.is_contiguous()
    for actual, e in zip(run("ocl", flowing), expected, strict=True):
        assert_close(actual.cpu(), e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("last", [False, True])
def test_infinite_means(last):
    """One infinity makes the mean infinite, however many parts of the channel come after it."""
    x = made((3, 9, 20, 70), torch.float32)
    x[0, 2, 0, 1], x[1, 3, 4, 5], x[:, 4, 0, 0] = torch.inf, -torch.inf, torch.inf
    x = x.to(memory_format=torch.channels_last) if last else x
    means = []
    for device in ("ocl", "cpu"):
        mean, var = torch.zeros(9, device=device), torch.ones(9, device=device)
        functional.batch_norm(x.to(device), mean, var, training=True)
        means.append(mean.cpu())
    assert_close(*means)


def test_every_batch_norm_function():
    x, w = made((5, 3, 4), torch.float32), made(3, torch.float32, 1)

    def run(device):
        a, p = x.to(device), w.to(device)
        out = []
        for training in (True, False):
            for function in (aten.native_batch_norm, aten._native_batch_norm_legit):
                mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
                out += [*function(a, p, p, mean, var, training, 0.1, 1e-5), mean, var]
                mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
                given = [torch.empty(0, device=device) for _ in range(3)]
                function.out(
                    a, p, p, mean, var, training, 0.1, 1e-5,
                    out=given[0], save_mean=given[1], save_invstd=given[2],
                )  # fmt: skip
                out += [*given, mean, var]
        out += aten._native_batch_norm_legit.no_stats(a, p, p, True, 0.1, 1e-5)
        given = [torch.empty(0, device=device) for _ in range(3)]
        aten._native_batch_norm_legit.no_stats_out(
            a, p, p, True, 0.1, 1e-5, out=given[0], save_mean=given[1], save_invstd=given[2]
        )
        out += given
        mean, var = torch.zeros(3, device=device), torch.ones(3, device=device)
        out += aten._batch_norm_with_update(a, p, p, mean, var, 0.1, 1e-5)
        out += aten._batch_norm_no_update(a, p, p, mean, var, 0.1, 1e-5)
        out += aten._native_batch_norm_legit_no_training(a, p, p, mean, var, 0.1, 1e-5)
        out += aten.batch_norm_update_stats(a, mean, var, 0.1)
        out += aten.batch_norm_backward(
            a,
            a,
            p,
            mean,
            var,
            mean,
            var,
            True,
            1e-5,
            [True] * 3,
            torch.empty(0, dtype=torch.uint8, device=device),
        )
        layer = [torch.empty(0, device=device) for _ in range(3)]
        q = made(4, torch.float32, 2).to(device)
        aten.native_layer_norm.out(a, [4], q, q, 1e-5, out0=layer[0], out1=layer[1], out2=layer[2])
        return out + layer + [mean, var]

    for i, (a, e) in enumerate(zip(run("ocl"), run("cpu"), strict=True)):
        assert a.dtype == e.dtype
        assert_close(a.cpu(), e, rtol=1e-4, atol=1e-5, msg=lambda m, i=i: f"result {i}: {m}")


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_gpu():
    """The kernels for GPUs, in a process of their own."""
    run_as_gpu(__file__)
