"""flex_attention, compiled, beside scaled_dot_product_attention and another device.

    python -m benchmarks.studies.flex_attention [--devices ocl,cpu] [--length 2048]
        [--dtype float32]

Times are the least of several, in ms: of a forward pass, and of a training step where the device
has one. "sdpa" is scaled_dot_product_attention, causal.
"""

import argparse
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

BATCH, HEADS, DEPTH = 1, 8, 64


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q >= k) & (q - k < 256)


def soft_cap(score, b, h, q, k):
    return 20 * torch.tanh(score / 20)


def alibi(score, b, h, q, k):
    return score + (k - q) * 0.1


CASES = {
    "none": (None, None),
    "causal": (None, causal),
    "window": (None, window),
    "soft cap": (soft_cap, causal),
    "alibi": (alibi, causal),
}


def least(function, device, repeats=7):
    """Milliseconds of the fastest of several calls."""
    wait = torch.get_device_module(device).synchronize
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        function()
        wait()
        times.append(time.perf_counter() - start)
    return min(times[2:]) * 1e3


def measure(attend, operands, device):
    """A forward pass, and a training step or None."""
    with torch.no_grad():
        forward = least(lambda: attend(*operands), device)
    if device == "cpu":  # whose flex_attention has no gradients
        return forward, None
    leaves = [x.clone().requires_grad_() for x in operands]
    grad = torch.ones_like(operands[0])
    return forward, least(lambda: attend(*leaves).backward(grad), device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", default="ocl,cpu")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    shape, dtype = (BATCH, HEADS, options.length, DEPTH), getattr(torch, options.dtype)
    print("| case | device | forward, ms | step, ms |\n| --- | --- | --- | --- |")
    for name, (mod, mask) in {"sdpa": (None, None), **CASES}.items():
        for device in options.devices.split(","):
            torch._dynamo.reset()
            operands = [torch.randn(shape, device=device, dtype=dtype) for _ in range(3)]
            if name == "sdpa":

                def attend(*operands):
                    return scaled_dot_product_attention(*operands, is_causal=True)
            else:
                sizes = None, None, options.length, options.length
                blocks = mask and create_block_mask(mask, *sizes, device=device)
                compiled = torch.compile(flex_attention)

                def attend(*operands, compiled=compiled, mod=mod, blocks=blocks):
                    return compiled(*operands, score_mod=mod, block_mask=blocks)

            forward, step = measure(attend, operands, device)
            print(f"| {name} | {device} | {forward:.2f} | {step and f'{step:.2f}' or '-'} |")


if __name__ == "__main__":
    main()
