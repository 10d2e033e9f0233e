"""What makes the engines of products, convolutions and attention choose (test_dispatch.py)."""

import torch


def product(m, k, n, dtype=torch.float32):
    def call(device):
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randn(s, generator=generator).to(dtype) for s in ((m, k), (k, n)))
        return a.to(device) @ b.to(device)

    return call


CASES = {
    "gemm": [product(4, 5, 3), product(64, 70, 300), product(1, 300, 200), product(65, 4096, 66)],
}
