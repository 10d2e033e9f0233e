"""Cases of softmax, norms, reductions, scans, random numbers, which choose."""

import torch
from torch.nn import functional


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def softmax(shape, dim, log=False):
    """Forward and backward."""

    def call(device):
        x = normal(*shape).to(device).requires_grad_()
        y = x.log_softmax(dim) if log else x.softmax(dim)
        (gradient,) = torch.autograd.grad(y, x, normal(*shape).cos().to(device))
        return y.detach(), gradient

    return call


def gradients(function, device, x, *parameters):
    """The function's result, and the gradients of all it takes."""
    leaves = [t.to(device).requires_grad_() for t in (x, *parameters)]
    y = function(*leaves)
    flowing = normal(*y.shape).cos().to(device)
    return y.detach(), *torch.autograd.grad(y, leaves, flowing)


def layer_norm(rows, length):
    def call(device):
        def function(x, w, b):
            return functional.layer_norm(x, [length], w, b)

        return gradients(
            function, device, normal(rows, length), normal(length), normal(length).cos()
        )

    return call


def rms_norm(rows, length):
    def call(device):
        def function(x, w):
            return functional.rms_norm(x, [length], w)

        return gradients(function, device, normal(rows, length), normal(length))

    return call


def group_norm(samples, groups, channels, positions):
    def call(device):
        def function(x, w, b):
            return functional.group_norm(x, groups, w, b)

        x = normal(samples, channels, positions)
        return gradients(function, device, x, normal(channels), normal(channels).cos())

    return call


def batch_norm(shape, memory_format=torch.contiguous_format, training=True):
    def call(device):
        mean, var = (t.to(device) for t in (normal(shape[1]), normal(shape[1]).abs() + 0.5))

        def function(x, w, b):
            return functional.batch_norm(x, mean, var, w, b, training)

        x = normal(*shape).to(memory_format=memory_format)
        return gradients(function, device, x, normal(shape[1]), normal(shape[1]).cos()), mean, var

    return call


def reduction(name, shape, dim, **kwargs):
    def call(device):
        return getattr(normal(*shape).to(device), name)(dim, **kwargs)

    return call


def drawn(fill, *shape, low=0.0, high=1.0, strided=False):
    """Whether numbers lie where they should, and their mean, too; no device has another's."""

    def call(device):
        torch.manual_seed(0)
        x = torch.zeros(shape, device=device)
        x = fill(x.t() if strided else x)
        centred = (x.mean() - (low + high) / 2).abs() < 0.05 * (high - low)
        return ((x >= low) & (x <= high)).all(), centred

    return call


def permutation(n):
    def call(device):
        return torch.randperm(n, device=device).sort().values

    return call


CASES = {
    "random": [
        drawn(torch.Tensor.uniform_, 100, 130),
        drawn(torch.Tensor.uniform_, 100, 130, strided=True),
        drawn(lambda x: x.random_(0, 8), 70, 90, high=7),
        drawn(torch.Tensor.bernoulli_, 9000),
        drawn(lambda x: torch.dropout(x + 1, 0.5, True), 9000, high=2),
        permutation(1000),
        permutation(70000),
    ],
    "scan": [
        reduction("cumsum", (5, 300), 1),
        reduction("cumsum", (3, 9000), 1),
        reduction("cumprod", (70, 40), 0),
        reduction("cummax", (4, 600, 7), 1),
        reduction("logcumsumexp", (6, 5, 3), 1),
    ],
    "reduce": [
        reduction("sum", (70, 64), 1),
        reduction("sum", (3, 20000), 1),
        reduction("sum", (3, 700, 90), 1),
        reduction("argmax", (3, 700, 5), 1),
        reduction("max", (6, 18, 35), -1),
        reduction("var", (65, 1024), 1),
        reduction("std", (2, 50, 300), 1),
        reduction("amin", (4, 5, 6), (0, 2)),
    ],
    "norm": [
        layer_norm(70, 64),
        layer_norm(5, 33),
        layer_norm(3, 9000),
        rms_norm(33, 512),
        group_norm(3, 2, 8, 35),
        batch_norm((3, 5, 7, 9)),
        batch_norm((4, 24, 7, 9), torch.channels_last),
        batch_norm((4, 3, 70, 9), torch.channels_last),
        batch_norm((70, 36), training=False),
    ],
    "softmax": [
        softmax((70, 64), 1),
        softmax((5, 33), 1, log=True),
        softmax((6, 9000), -1),
        softmax((3, 20, 37), 1),
        softmax((2048, 256), 1),
        softmax((4, 18, 5), 0, log=True),
    ],
}
