"""Prints what profiles cost a training step, and how much of its time they find on the device.

python -m benchmarks.studies.profiling [--network ResNet-18] [--batch 4]
"""

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.cases.models import PROFILED, training_step

STEPS, TURNS = 4, 10


def seconds_of(step):
    torch.ocl.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.ocl.synchronize()
    return (time.perf_counter() - start) / STEPS


def main(arguments=None):
    import torch_ocl  # noqa: F401 - where CUDA is there, it isn't loaded by itself

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--network", choices=PROFILED, default="ResNet-18")
    parser.add_argument("--batch", type=int, default=4)
    chosen = parser.parse_args(arguments)
    step = training_step(chosen.network, chosen.batch, None, False)
    for _ in range(3):
        step()
    off, traced, listed, shares = [], [], [], []
    for _ in range(TURNS):
        off.append(seconds_of(step))
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]):
            traced.append(seconds_of(step))
        with torch.ocl.profiler(rows=0, roofline=False) as kernels:
            listed.append(seconds_of(step))
        shares.append(kernels.device_seconds / kernels.wall_seconds)
    print(f"{chosen.network}, batch of {chosen.batch}: {min(off) * 1e3:.1f} ms")
    print(f"torch.profiler: {min(traced) / min(off) - 1:+.1%}")
    print(f"torch.ocl.profiler: {min(listed) / min(off) - 1:+.1%}")
    print(f"on the device: {max(shares):.1%} of the time")


if __name__ == "__main__":
    main()
