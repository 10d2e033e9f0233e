"""The work that `python -m torch_ocl tune` times: steps of what common networks consist of.

`scale` is how many times a small device's work a device gets: launches are not to be timed."""

from collections.abc import Callable

import torch
from torch.nn import functional

#: Makes a call for a device and a scale, which enqueues the work and returns.
Workload = Callable[[str, int], Callable[[], object]]


def _gradients(function, *inputs):
    """A call of the function and of its gradients."""
    leaves = [x.requires_grad_() for x in inputs]
    upstream = torch.ones_like(function(*leaves))
    return lambda: torch.autograd.grad(function(*leaves), leaves, upstream)


def _elements(device, scale):
    x, y = torch.randn(2, scale << 22, device=device)
    return lambda: functional.gelu(x + y)


def _broadcast(device, scale):
    x, y = (torch.randn(1000 * scale, n, device=device) for n in (3001, 1))
    return lambda: x * y


def _row_sums(device, scale):
    sizes = ((4096 * scale, 768), (32 * scale, 1 << 16))
    short, long = (torch.randn(size, device=device) for size in sizes)
    return lambda: (short.sum(1), short.amax(1), long.sum(1), long.sum())


def _column_sums(device, scale):
    sizes = ((8192 * scale, 512), (64 * scale, 1 << 15))
    tall, wide = (torch.randn(size, device=device) for size in sizes)
    return lambda: (tall.sum(0), wide.sum(0))


def _softmax(device, scale):
    sizes = ((4096 * scale, 512), (256 * scale, 32000))
    short, long = (torch.randn(size, device=device) for size in sizes)
    return lambda: (short.softmax(1), long.log_softmax(1))


def _layer_norm(device, scale):
    x, w, b = (torch.randn(*s, device=device) for s in ((4096 * scale, 768), (768,), (768,)))
    return _gradients(lambda x, w, b: functional.layer_norm(x, (768,), w, b), x, w, b)


def _batch_norm(layout):
    def make(device, scale):
        x = torch.randn(16 * scale, 64, 28, 28, device=device).to(memory_format=layout)
        w, b = torch.ones(2, 64, device=device)
        norm = functional.batch_norm
        return _gradients(lambda x, w, b: norm(x, None, None, w, b, training=True), x, w, b)

    return make


def _scan(device, scale):
    sizes = ((512 * scale, 4096), (4096, 512 * scale))
    rows, columns = (torch.randn(size, device=device) for size in sizes)
    return lambda: (rows.cumsum(1), columns.cumsum(0))


def _fourier(device, scale):
    sizes = ((1024 * scale, 1024), (32 * scale, 128, 128))
    lines, planes = (torch.randn(size, device=device) for size in sizes)
    return lambda: (torch.fft.rfft(lines), torch.fft.fft2(planes))


def _product(m, k, n, dtype=torch.float32):
    def make(device, scale):
        rows = m * scale if m > 16 else m
        a, b = torch.randn(rows, k, device=device), torch.randn(n, k, device=device)
        a, b = a.to(dtype), b.to(dtype)
        return lambda: functional.linear(a, b)

    return make


def _convolution(channels, size, kernel, dtype=torch.float32, groups=1, batch=8):
    def make(device, scale):
        x = torch.randn(batch * scale, channels, size, size, device=device).to(dtype)
        w = torch.randn(channels, channels // groups, kernel, kernel, device=device).to(dtype)
        conv = functional.conv2d
        return _gradients(lambda x, w: conv(x, w, None, 1, kernel // 2, 1, groups), x, w)

    return make


def _attention(positions, dtype=torch.float32):
    def make(device, scale):
        q, k, v = torch.randn(3, 2 * scale, 8, positions, 64, device=device).to(dtype)
        attend = functional.scaled_dot_product_attention
        return _gradients(lambda q, k, v: attend(q, k, v, is_causal=True), q, k, v)

    return make


WORKLOADS: dict[str, Workload] = {
    "elements": _elements,
    "broadcast": _broadcast,
    "row sums": _row_sums,
    "column sums": _column_sums,
    "softmax": _softmax,
    "layer norm": _layer_norm,
    "batch norm": _batch_norm(torch.contiguous_format),
    "batch norm, channels last": _batch_norm(torch.channels_last),
    "scan": _scan,
    "Fourier": _fourier,
    "product": _product(512, 768, 768),
    "product float16": _product(512, 768, 768, torch.float16),
    "product of few rows": _product(8, 1024, 4096),
    "convolution 3x3": _convolution(64, 28, 3),
    "convolution 1x1": _convolution(256, 14, 1),
    "convolution 3x3 float16": _convolution(64, 28, 3, torch.float16),
    "depthwise": _convolution(96, 28, 3, groups=96),
    "attention": _attention(512),
    "attention float16": _attention(512, torch.float16),
}

#: Rows, depth, columns and dtype of the products of ViT-B, BERT, GPT-2 and a Llama, forward. Their
#: gradients have the same sizes in another order and layout, and are tuned with them.
PRODUCTS = (
    (1024, 768, 768, torch.float32),
    (1024, 768, 3072, torch.float32),
    (1024, 3072, 768, torch.float32),
    (1024, 768, 3072, torch.float16),
    (1024, 768, 3072, torch.bfloat16),
    (1, 2048, 2048, torch.float32),
    (1, 2048, 8192, torch.float16),
    (64, 512, 1000, torch.float32),
    (512, 512, 512, torch.float32),
)


def linear_layer(m, k, n, dtype):
    """A linear layer, and its gradients where there are several rows."""

    def make(device, scale):
        rows = m * scale if m > 1 else m
        x, w = (torch.randn(size, k, device=device).to(dtype) for size in (rows, n))
        if m == 1:
            return lambda: functional.linear(x, w)
        return _gradients(functional.linear, x, w)

    return make


#: The products' layers, by their names in the table.
LAYERS: dict[str, Workload] = {
    f"linear {m}x{k}x{n} {str(dtype).removeprefix('torch.')}": linear_layer(m, k, n, dtype)
    for m, k, n, dtype in PRODUCTS
}
