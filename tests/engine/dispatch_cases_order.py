"""What makes the engine of sorting choose (test_dispatch.py)."""

import torch


def sort(*shape):
    def call(device):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
        return tuple(x.sort(stable=True))

    return call


CASES = {"sort": [sort(3, 1), sort(70, 5), sort(5, 32), sort(6, 300), sort(2, 40000)]}
