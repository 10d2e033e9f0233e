"""Prints the host's time for inference steps of many small ops, for replays of their graphs, and
for the same compiled, without and with replays.

python -m benchmarks.studies.graphs
"""

import time

import torch
from torch import nn

from benchmarks.cases.models import resnet18

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
    """Launches, and the two times of a step, of a replay, and of the step compiled in two modes."""
    for _ in range(5):
        step()
    torch.ocl.reset_launch_count()
    step()
    launches = torch.ocl.launch_count()
    graph = torch.ocl.OclGraph()
    with torch.ocl.graph(graph):
        step()
    times = [least_seconds(step), least_seconds(graph.replay)]
    for mode in ("default", "reduce-overhead"):
        compiled = torch.compile(step, mode=mode)
        for _ in range(4):
            compiled()
        times.append(least_seconds(compiled))
    return launches, times


def main():
    others = "replay | compiled | reduce-overhead"
    print(f"| step | launches | host us | {others} | until done us | {others} |")
    print("| --- " * 10 + "|")
    for name, make in STEPS.items():
        torch.manual_seed(0)
        launches, times = measure(make())
        cells = [name, str(launches)]
        for eager, *others in zip(*times, strict=True):
            cells += [f"{eager * 1e6:.0f}", *(f"{other / eager:.2f}" for other in others)]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
