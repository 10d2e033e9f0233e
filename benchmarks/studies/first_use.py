"""The cost of the first use: `import torch` and the first training step of a process, with nothing
in the kernel cache and with everything.

python -m benchmarks.studies.first_use ResNet-50 [--batch 64] [--dtype bfloat16]
    [--channels-last] [--warm]
python -m benchmarks.studies.first_use large [--device cuda] [--compile] [--case ResNet-50]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

#: name -> (layers' widths, batch, optimiser, loss)
NETWORKS = {
    "MLP 784-512-512-10, batch 128, AdamW": ((784, 512, 512, 10), 128, "AdamW", "cross_entropy"),
    "MLP 300-300-300-1, batch 100, SGD": ((300, 300, 300, 1), 100, "SGD", "mse_loss"),
}
SCRIPT = """
import json, sys, time
start = time.perf_counter()
import torch
from torch import nn
imported = time.perf_counter()
widths, batch, optimiser, loss = json.loads(sys.argv[1])
layers = [f for a, b in zip(widths, widths[1:]) for f in (nn.Linear(a, b), nn.ReLU())][:-1]
model = nn.Sequential(*layers).to("ocl")
optimiser = getattr(torch.optim, optimiser)(model.parameters(), lr=1e-3)
inputs = torch.randn(batch, widths[0]).to("ocl")
targets = torch.rand(batch, 1) if loss == "mse_loss" else torch.randint(widths[-1], (batch,))
getattr(nn.functional, loss)(model(inputs), targets.to("ocl")).backward()
optimiser.step()
torch.ocl.synchronize()
end = time.perf_counter()
programs = torch.ocl.program_stats()
print(json.dumps({"import": imported - start, "whole": end - start, **programs}))
"""


#: A training step of cases/models.py: seconds of the first one alone, on a device in use.
STEP = """
import json, sys, time
import torch, torch_ocl
from benchmarks.cases.models import training_step
name, batch, dtype, channels_last = json.loads(sys.argv[1])
step = training_step(name, batch, dtype and getattr(torch, dtype), channels_last)
torch.ocl.synchronize()
start = time.perf_counter()
step()
torch.ocl.synchronize()
print(json.dumps({"step": time.perf_counter() - start, **torch.ocl.program_stats()}))
"""


#: The first and the tenth call of a network of cases/large_models.py on a device in use. The time
#: of the first call holds the programs' builds, on CUDA the loading of its libraries.
LARGE = """
import json, sys, time
import torch
name, device, compiled = json.loads(sys.argv[1])
from benchmarks.cases.large_models import NETWORKS, step_of
step = step_of(NETWORKS[name], device, torch.compile if compiled else lambda model: model)
wait = getattr(torch, device).synchronize
def seconds():
    wait()
    start = time.perf_counter()
    step()
    wait()
    return time.perf_counter() - start
first = seconds()
programs = torch.ocl.program_stats() if device == "ocl" else {}
steady = min(seconds() for _ in range(10))
print(json.dumps({"first": first, "steady": steady, **programs}))
"""

#: Networks whose first step is a figure of docs/performance.md.
FIRST_STEPS = (
    "ResNet-50 b64 f32",
    "EfficientNet-B0 b64 f32",
    "ViT-B/16 b64 bf16",
    "Llama-1B token bf16",
    "MLP 4096 b1024 f32",
)


def run(script, arguments, cache, **variables):
    """The times of a new process that keeps its kernels in the folder `cache` prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)],
        env={
            **os.environ,
            "TORCH_OCL_CACHE_DIR": cache,
            "TORCH_OCL_CACHE": "1",
            "TORCHINDUCTOR_CACHE_DIR": cache + "/inductor",
            **variables,
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def first_step(name, cache):
    """Seconds and programs of a new process that keeps its kernels in the folder `cache`: a dict of
    "import" (of torch alone), "whole" (import to the end of the first step), and what
    torch.ocl.program_stats() says."""
    return run(SCRIPT, NETWORKS[name], cache)


def table():
    """Lines of a Markdown table: each network cold, then the faster of two warm runs."""
    yield (
        "| import and first step | programs | none cached | all cached | of it `import torch` |\n"
        "| --- | --- | --- | --- | --- |"
    )
    for name in NETWORKS:
        with tempfile.TemporaryDirectory() as cache:
            cold = first_step(name, cache)
            warm = min((first_step(name, cache) for _ in range(2)), key=lambda one: one["whole"])
        yield (
            f"| {name} | {cold['built']} | {cold['whole']:.1f} s | {warm['whole']:.1f} s "
            f"| {warm['import']:.1f} s |"
        )


def large(device, compiled, names):
    """Lines of a Markdown table: each network's first step in a new process, cold, then warm."""
    yield "| network | none cached | programs | all cached | steady step |"
    yield "| --- | --- | --- | --- | --- |"
    # Autograd takes one accelerator.
    alone = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if device == "cuda" else {}
    for name in names:
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (run(LARGE, (name, device, compiled), cache, **alone) for _ in range(2))
        built = f"{cold['built']} in {cold['build_seconds']:.1f} s" if "built" in cold else ""
        times = f"| {cold['first']:.2f} s | {built} | {warm['first']:.2f} s |"
        yield f"| {name} {times} {warm['steady'] * 1e3:.2f} ms |"


def main(arguments=None):
    from benchmarks.cases.models import PROFILED

    parser = argparse.ArgumentParser(description="Seconds of a network's first training step.")
    choices = (*PROFILED, "large")
    parser.add_argument("network", choices=choices, metavar="NETWORK", help=", ".join(choices))
    parser.add_argument("--device", choices=("ocl", "cuda"), default="ocl", help="of `large`")
    parser.add_argument("--compile", action="store_true", help="`large` under torch.compile")
    parser.add_argument("--case", default="", help="networks of `large` whose name contains this")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), help="of autocast")
    parser.add_argument("--channels-last", action="store_true", help="how images lie in memory")
    parser.add_argument("--warm", action="store_true", help="with a cache warmed ahead")
    chosen = parser.parse_args(arguments)
    if chosen.network == "large":
        names = [name for name in FIRST_STEPS if chosen.case in name]
        for line in large(chosen.device, chosen.compile, names):
            print(line, flush=True)
        return
    options = (chosen.network, chosen.batch, chosen.dtype, chosen.channels_last)

    def show(title, found):
        built = f"{found['built']} programs built in {found['build_seconds']:.2f} s"
        loaded = f"{found['loaded']} loaded in {found['load_seconds']:.2f} s"
        print(f"{title}: {found['step']:.2f} s, {built}, {loaded}", flush=True)

    with tempfile.TemporaryDirectory() as cache:
        show("nothing cached", run(STEP, options, cache))
        again = (run(STEP, options, cache) for _ in range(2))
        show("all cached", min(again, key=lambda found: found["step"]))
    if not chosen.warm:
        return
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "torch_ocl", "cache", "warm"],
            env={**os.environ, "TORCH_OCL_CACHE_DIR": cache, "TORCH_OCL_CACHE": "1"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        took = time.perf_counter() - start
        show(f"after `cache warm`, which took {took:.1f} s", run(STEP, options, cache))


if __name__ == "__main__":
    main()
