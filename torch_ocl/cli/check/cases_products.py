"""Cases that make the engines of products, convolutions and attention choose."""

import torch
from torch.nn import functional


def product(m, k, n, dtype=torch.float32):
    def call(device):
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randn(s, generator=generator).to(dtype) for s in ((m, k), (k, n)))
        return a.to(device) @ b.to(device)

    return call


def convolution(shape, weight, last=False, transposed=False, dtype=torch.float32, **window):
    """A convolution with the gradients of its input and weight."""

    def call(device):
        generator = torch.Generator().manual_seed(0)
        x, w = (torch.randn(s, generator=generator).to(dtype) for s in (shape, weight))
        if last:
            x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
        x, w = (t.to(device).requires_grad_() for t in (x, w))
        name = f"conv{'_transpose' if transposed else ''}{len(shape) - 2}d"
        y = getattr(functional, name)(x, w, **window)
        gradient = torch.randn(y.shape, generator=generator).to(dtype)
        if last:
            gradient = gradient.contiguous(memory_format=torch.channels_last)
        gradient = gradient.to(device)
        return y.detach(), *torch.autograd.grad(y, (x, w), gradient)

    return call


def attention(queries, keys, heads=4, key_heads=4, depth=32, dtype=torch.float32, **options):
    """Scaled dot product attention with gradients."""

    def call(device):
        generator = torch.Generator().manual_seed(0)
        shapes = ((2, heads, queries, depth), (2, key_heads, keys, depth), (2, key_heads, keys, 24))
        tensors = [torch.randn(s, generator=generator).to(dtype) for s in shapes]
        tensors = [t.to(device).requires_grad_() for t in tensors]
        out = functional.scaled_dot_product_attention(*tensors, **options)
        gradient = torch.randn(out.shape, generator=generator).to(dtype).to(device)
        return out.detach(), *torch.autograd.grad(out, tensors, gradient)

    return call


def distances(rows, others, p=1.0, length=19):
    """Distances between two lists of rows."""

    def call(device):
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randn(2, n, length, generator=generator) for n in (rows, others))
        return torch.cdist(a.to(device), b.to(device), p=p)

    return call


def pairs(rows, p=2.0, length=7):
    """Distances between the rows of one list."""

    def call(device):
        a = torch.randn(rows, length, generator=torch.Generator().manual_seed(0))
        return functional.pdist(a.to(device), p)

    return call


def lstm(width, hidden, rows=3, steps=4):
    """A layer of an LSTM with the gradients of its input and weights."""

    def call(device):
        torch.manual_seed(0)
        layer = torch.nn.LSTM(width, hidden)
        x = torch.randn(steps, rows, width)
        layer, x = layer.to(device), x.to(device).requires_grad_()
        y, _ = layer(x)
        return y.detach(), *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])

    return call


CASES = {
    "attention": [
        attention(70, 90),
        attention(2, 600),
        attention(1, 70, key_heads=2, enable_gqa=True),
        attention(65, 65, depth=96, is_causal=True, dtype=torch.float64),
    ],
    "gemm": [product(4, 5, 3), product(64, 70, 300), product(1, 300, 200), product(65, 4096, 66)],
    "convolution": [
        # Depthwise: channels last, planes of long and of short lines.
        convolution((2, 24, 9, 10), (24, 1, 3, 3), last=True, padding=1, groups=24),
        convolution((2, 40, 9, 40), (40, 1, 3, 3), padding=1, groups=40),
        convolution((3, 64, 7, 7), (64, 1, 3, 3), padding=1, groups=64),
        convolution((2, 12, 9, 11), (12, 1, 3, 3), last=True, padding=2, dilation=2, groups=12),
        # Products, and what is nearly one.
        convolution((2, 20, 12, 13), (30, 20, 1, 1), last=True),
        convolution((1, 8, 12, 13), (9, 8, 1, 1)),
        convolution((4, 64, 25, 24), (24, 64, 1, 1), last=True),
        convolution((2, 16, 5, 6), (16, 32, 2, 2), last=True, transposed=True, stride=2),
        # Windows of 3 x 3, then many channels and few, long sums and short.
        convolution((2, 24, 17, 19), (32, 24, 3, 3), padding=1),
        convolution((2, 12, 17, 19), (70, 12, 3, 3), stride=2, padding=1),
        convolution((2, 16, 64, 48), (2, 16, 3, 3), padding=1),
        convolution((2, 16, 20, 21), (16, 2, 3, 3), padding=1, groups=8),
        convolution((2, 16, 7, 3), (96, 16, 3, 3), padding=(0, 1)),
        convolution((2, 3, 5, 6, 7), (4, 3, 2, 3, 2), stride=(1, 2, 1)),
        # Strides and gradients of inputs.
        convolution((2, 9, 5, 6), (9, 5, 2, 3), transposed=True, stride=(2, 3)),
        convolution((2, 9, 7, 6), (9, 3, 4, 4), transposed=True, stride=2, padding=1),
        convolution((2, 9, 7, 6), (5, 9, 3, 3)),
        convolution((2, 3, 8, 16), (8, 3, 4, 4), stride=4),
    ],
    "distance": [distances(9, 40), distances(9, 40, p=2.5), distances(5, 7, p=2.0), pairs(33)],
    "lstm": [lstm(5, 32), lstm(5, 7)],
    "sdpa": [attention(3, 5), attention(3, 5, depth=300)],
}
