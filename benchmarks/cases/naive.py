"""Ops beside the kernels that a first tutorial writes for them (naive.cl), on the same device."""

import pathlib

import torch

from benchmarks.harness.case import LOOSE, Case, tensors
from torch_ocl.cli.probe import Kernel, uint

N, ELEMENTS = 1024, 16 * 2**20


def naive_cases():
    """(case, make) for each; make(device) gives the naive call for ocl tensors."""
    source = (pathlib.Path(__file__).parent / "naive.cl").read_text(encoding="utf-8")
    local = 16 if torch.ocl.get_device_properties(0).type == "cpu" else 256

    def matmul(device):
        a, b = tensors(device, (N, N), (N, N))
        c, kernel = torch.empty_like(a), Kernel(source, "matmul")

        def call():
            kernel([N, N], [16, 16], c, a, b, uint(N))
            return c

        return call

    def elementwise(name, inputs):
        def make(device):
            values = tensors(device, *[(ELEMENTS,)] * inputs)
            out, kernel = torch.empty_like(values[0]), Kernel(source, name)

            def call():
                kernel([ELEMENTS], [local], out, *values)
                return out

            return call

        return make

    def ours(function, *shapes):
        def make(device):
            values = tensors(device, *shapes)
            return lambda: function(*values)

        return make

    vector = (ELEMENTS,)

    def squared_difference(a, b):
        return torch.nn.functional.mse_loss(a, b, reduction="none")

    return [
        (
            Case("matmul 1024", "naive", ours(torch.mm, (N, N), (N, N)), tolerance=LOOSE),
            matmul,
        ),
        (Case("relu 16M", "naive", ours(torch.relu, vector)), elementwise("relu", 1)),
        (
            Case("squared difference 16M", "naive", ours(squared_difference, vector, vector)),
            elementwise("squared_difference", 2),
        ),
    ]
