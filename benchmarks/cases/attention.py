"""Cases of attention: forward and backward, causal, half types, decoding with a cache, layers."""

import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness.case import add, tensors

TOLERANCES = {
    torch.float32: {"rtol": 1e-3, "atol": 1e-4},
    torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2},
}


def attention(shape, *, keys=None, key_heads=None, dtype=torch.float32, target=1.0, **options):
    """Forward of (batch, heads, queries, width), and backward unless there is but one query."""
    batch, heads, queries, width = shape
    keys, key_heads = keys or queries, key_heads or heads
    key_shape = (batch, key_heads, keys, width)
    options["enable_gqa"] = key_heads != heads
    size = torch.empty(0, dtype=dtype).element_size()
    products = 4.0 * batch * heads * queries * keys * width
    products /= 2 if options.get("is_causal") else 1
    name = f"{batch}x{heads}x{queries}x{width}"
    name += f" over {key_heads} x {keys}" if (keys, key_heads) != (queries, heads) else ""
    name += " causal" if options.get("is_causal") else ""
    name += f" {str(dtype)[6:]}" if dtype != torch.float32 else ""
    common = {"dtype": str(dtype)[6:], "target": target, "tolerance": TOLERANCES[dtype]}

    def make_forward(device):
        q, k, v = tensors(device, shape, key_shape, key_shape, dtype=dtype)
        return lambda: functional.scaled_dot_product_attention(q, k, v, **options)

    def make_backward(device):
        q, k, v, grad = tensors(device, shape, key_shape, key_shape, shape, dtype=dtype)
        leaves = [t.requires_grad_() for t in (q, k, v)]
        out = functional.scaled_dot_product_attention(*leaves, **options)
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)

    moved = size * batch * width * 2 * (heads * queries + key_heads * keys)
    add(f"attention {name}", "attention", make_forward, flops=products, bytes=moved, **common)
    if queries > 1:
        backward = {"flops": 2.5 * products, "bytes": 2 * moved, **common}
        add(f"attention backward {name}", "attention", make_backward, **backward)


attention((2, 8, 512, 64))
attention((2, 8, 512, 64), dtype=torch.bfloat16)
attention((2, 8, 512, 128))
attention((1, 8, 4096, 64), is_causal=True)
attention((1, 8, 1, 64), keys=2048, target=1.2)
attention((1, 32, 1, 128), keys=2048, key_heads=8, target=1.2)


def make_encoder(device):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True).eval().to(device)
    (x,) = tensors(device, (4, 256, 256))

    @torch.no_grad()
    def call():
        return layer(x)

    return call


add(
    "encoder layer 4x256x256, inference",
    "attention",
    make_encoder,
    flops=4 * 256 * (2.0 * 256 * 256 * 4 + 4 * 256 * 1024 + 4 * 256 * 256),
    tolerance=TOLERANCES[torch.float32],
)
