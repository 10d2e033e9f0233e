"""Cases that make the engine of sorting choose."""

import torch


def sort(*shape):
    def call(device):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
        return tuple(x.sort(stable=True))

    return call


def unique(function, *sizes):
    def call(device):
        x = torch.randint(0, 9, sizes, generator=torch.Generator().manual_seed(0)).to(device)
        return function(x, return_inverse=True, return_counts=True)

    return call


CASES = {
    "sort": [
        *(sort(3, 1), sort(70, 5), sort(5, 32), sort(6, 300), sort(2, 40000)),
        unique(torch.unique, 3000),
    ],
    "unique": [
        *(unique(torch.unique, 3000), unique(torch.unique_consecutive, 3000)),
        unique(torch.unique_consecutive, 0),
    ],
}
