"""Prints the host's time for inference steps of many small ops, and for replays of their graphs.

python -m benchmarks.graphs
"""

import time

import torch
from torch import nn

from benchmarks.networks import resnet18

TURNS = 30


def small_adds():
    a = torch.rand(16, device="ocl")

    def step():
        r = a
        for _ in range(100):
            r = r + a
        return r

    return step


def of_module(module, *shape):
    module, x = module.to("ocl").eval(), torch.rand(shape, device="ocl")
    return lambda: module(x)


def perceptron():
    layers = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(33)]
    return of_module(nn.Sequential(*layers), 8, 64)


def transformer():
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)
    return of_module(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), 1, 16, 64)


STEPS = {
    "100 sums of 16 elements": small_adds,
    "33 linear layers, norms and GELUs": perceptron,
    "6 transformer layers of width 64": transformer,
    "ResNet-18, an image of 64x64": lambda: of_module(resnet18(), 1, 3, 64, 64),
}


def least_seconds(call):
    """Until the call returns, and until its work is done."""
    host = whole = float("inf")
    for _ in range(TURNS):
        torch.ocl.synchronize()
        start = time.perf_counter()
        call()
        host = min(host, time.perf_counter() - start)
        torch.ocl.synchronize()
        whole = min(whole, time.perf_counter() - start)
    return host, whole


@torch.no_grad()
def measure(step):
    """Launches, and the two times of a step and of a replay."""
    for _ in range(5):
        step()
    torch.ocl.reset_launch_count()
    step()
    launches = torch.ocl.launch_count()
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        step()
    return launches, least_seconds(step), least_seconds(graph.replay)


def main():
    print("| step | launches | host us | replay | until done us | replay |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, make in STEPS.items():
        torch.manual_seed(0)
        launches, (host, whole), (replay, replayed) = measure(make())
        print(
            f"| {name} | {launches} | {host * 1e6:.0f} | {replay / host:.2f} "
            f"| {whole * 1e6:.0f} | {replayed / whole:.2f} |"
        )


if __name__ == "__main__":
    main()
