"""Functions of torch.ocl.graphs.auto() beside the function alone."""

import array

import torch
from torch import nn

auto = torch.ocl.graphs.auto


class Calls:
    """A count that auto() doesn't see, since an array in C shows no attributes."""

    def __init__(self):
        self._counts = array.array("q", [0])

    @property
    def count(self):
        return self._counts[0]

    @count.setter
    def count(self, value):
        self._counts[0] = value


def ones(*shape):
    return torch.ones(shape or (3,), device="ocl")


def both(make, calls=9):
    """Compares the function alone with the captured one.

    `make(wrap)` returns a function of a call's number, which returns what is to be equal."""
    found = []
    for wrap in (lambda f: f, auto):
        torch.manual_seed(3)
        call = make(wrap)
        found.append([plain(call(i)) for i in range(calls)])
    assert found[0] == found[1]


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def net_and_step():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 2)).to(
        "ocl"
    )
    return net, lambda x: net(x) * 2
