"""What the first use costs: `import torch` and the first training step of a process, with nothing
in the kernel cache and with everything."""

import json
import os
import subprocess
import sys
import tempfile

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


def first_step(name, cache):
    """Seconds and programs of a new process that keeps its kernels in the folder `cache`: a dict of
    "import" (of torch alone), "whole" (import to the end of the first step), and what
    torch.ocl.program_stats() says."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(NETWORKS[name])],
        env={**os.environ, "TORCH_OCL_CACHE_DIR": cache, "TORCH_OCL_CACHE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def table():
    """Lines of a Markdown table: each network cold, then the faster of two warm runs."""
    yield (
        "| import and first step | programs | none cached | all cached | of it `import torch` |\n"
        "| --- | --- | --- | --- | --- |"
    )
    for name in NETWORKS:
        with tempfile.TemporaryDirectory() as cache:
            cold = first_step(name, cache)
            warm = min((first_step(name, cache) for _ in range(2)), key=lambda run: run["whole"])
        yield (
            f"| {name} | {cold['built']} | {cold['whole']:.1f} s | {warm['whole']:.1f} s "
            f"| {warm['import']:.1f} s |"
        )
