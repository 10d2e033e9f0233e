"""Compiles a network for an OpenCL device, for run_model.cpp: python export_model.py model.pt2"""

import sys

import torch
from torch import nn


def network():
    """16 numbers to 4 probabilities, for any number of rows."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4), nn.Softmax(-1)
    )


def main():
    rows = torch.export.Dim("rows", min=2, max=1024)
    example = torch.randn(8, 16, device="ocl")
    with torch.no_grad():
        exported = torch.export.export(
            network().eval().to("ocl"), (example,), dynamic_shapes=({0: rows},)
        )
    print(torch._inductor.aoti_compile_and_package(exported, package_path=sys.argv[1]))


if __name__ == "__main__":
    main()
