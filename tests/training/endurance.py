"""Trains for many steps and prints device and host memory on the way: both must stay flat.

python tests/training/endurance.py --steps 10000
"""

import argparse
import pathlib
import time

import torch
from torch import nn


def resident_mib():
    """Host memory of this process, in MiB."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--device", default="ocl")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 1)
    )
    model = model.to(arguments.device)
    optimiser = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(100, 300).to(arguments.device)
    targets = torch.randn(100, 1).to(arguments.device)
    start = time.perf_counter()
    for step in range(1, arguments.steps + 1):
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimiser.step()
        if step % max(arguments.steps // 10, 1) == 0:
            value = loss.item()
            print(
                f"step {step:6d}  loss {value:.6f}"
                f"  allocated {torch.accelerator.memory_allocated() / 2**20:.2f} MiB"
                f"  reserved {torch.accelerator.memory_reserved() / 2**20:.2f} MiB"
                f"  host {resident_mib():.1f} MiB"
                f"  {(time.perf_counter() - start) / step * 1e3:.3f} ms/step"
            )


if __name__ == "__main__":
    main()
