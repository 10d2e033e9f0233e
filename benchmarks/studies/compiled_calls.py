"""The cost of a compiled graph's call: python -m benchmarks.studies.compiled_calls

Least times of many windows, in microseconds, for graphs of 1, 8 and 32 kernels on few elements.
Every kernel reads what the one before wrote. `graph` is what inductor makes; `all` has Dynamo's and
AOTAutograd's parts, too. `a package` is AOTInductor's, called from Python.
"""

import argparse
import tempfile
import time

import torch
from torch._inductor import config, output_code

WINDOW = 5e-4  # seconds: shorter than what a scheduler gives a process
ROUNDS = 400


class Kernels(torch.nn.Module):
    """As many kernels: a softmax over rows of 16 elements and one over rows of 4 by turns, which
    can't be fused."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        for i in range(self.count):
            x = (x * 1.5).view((4, 16) if i % 2 else (16, 4)).softmax(1)
        return x


def microseconds(call):
    """The least time of a call, over many windows."""
    least, calls = float("inf"), 1
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        torch.ocl.synchronize()
        least = min(least, (time.perf_counter() - begin) / calls)
        calls = max(1, round(WINDOW / least))
    return least * 1e6


def compiled(model, x, **options):
    """The compiled model, and the call of its graph alone."""
    torch._dynamo.reset()
    graphs = []
    upstream = output_code.CompiledFxGraph.__call__

    def remembered(self, inputs):
        graphs.append(self)
        return upstream(self, inputs)

    output_code.CompiledFxGraph.__call__ = remembered
    try:
        whole = torch.compile(model, **options)
        for _ in range(4):
            whole(x)
    finally:
        output_code.CompiledFxGraph.__call__ = upstream
    before = torch.ocl.launch_count()
    whole(x)
    launches = torch.ocl.launch_count() - before
    call = graphs[-1].current_callable
    return whole, lambda: call([x]), launches


def packaged(model, x):
    exported = torch.export.export(model, (x,))
    with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
        path = torch._inductor.aoti_compile_and_package(exported, package_path=file.name)
        return torch._inductor.aoti_load_package(path)


def show(kernels, name, graph, whole):
    print(f"{kernels:8} {name:24}{graph:9.2f}{whole:9.2f}{graph / kernels:10.2f}", flush=True)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, nargs="*", default=[1, 8, 32])
    counts = parser.parse_args().kernels
    x = torch.randn(4, 16, device="ocl")
    print(f"{torch.ocl.get_device_name(0)}, microseconds")
    print(f"{'kernels':>8} {'calls by':24}{'graph':>9}{'all':>9}{'a kernel':>10}")
    for count in counts:
        model, kernels = Kernels(count), count
        for name, cpp in (("Python", False), ("C++", True)):
            for mode in (None, "reduce-overhead"):
                with config.patch(cpp_wrapper=cpp):
                    whole, graph, launches = compiled(model, x, mode=mode)
                    if mode is None:  # a replay counts what it copies, too
                        kernels = launches
                    label = f"{name}, captured" if mode else name
                    show(kernels, label, microseconds(graph), microseconds(lambda w=whole: w(x)))
        package = packaged(model, x)
        took = microseconds(lambda package=package: package(x))
        show(kernels, "a package", took, took)


if __name__ == "__main__":
    main()
