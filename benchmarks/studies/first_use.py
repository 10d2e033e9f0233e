"""The cost of the first use: `import torch` and the first training step of a process, with nothing
in the kernel cache and with everything.

python -m benchmarks.studies.first_use ResNet-50 [--batch 64] [--dtype bfloat16]
    [--channels-last] [--warm]
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


def run(script, arguments, cache):
    """The times of a new process that keeps its kernels in the folder `cache` prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)],
        env={**os.environ, "TORCH_OCL_CACHE_DIR": cache, "TORCH_OCL_CACHE": "1"},
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


def main(arguments=None):
    from benchmarks.cases.models import PROFILED

    parser = argparse.ArgumentParser(description="Seconds of a network's first training step.")
    parser.add_argument("network", choices=PROFILED, metavar="NETWORK", help=", ".join(PROFILED))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), help="of autocast")
    parser.add_argument("--channels-last", action="store_true", help="how images lie in memory")
    parser.add_argument("--warm", action="store_true", help="with a cache warmed ahead")
    chosen = parser.parse_args(arguments)
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
