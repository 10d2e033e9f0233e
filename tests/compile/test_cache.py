"""Compiled graphs in caches: a second process builds nothing, another generator starts anew."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from torch_ocl.inductor.call import cache

PROGRAM = """
import json, sys, torch
from torch._dynamo.utils import counters
if len(sys.argv) > 1:
    from torch_ocl.inductor.call import cache
    cache._generator = lambda: sys.argv[1]
network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
torch.compile(network.to("ocl"))(torch.ones(3, 8, device="ocl")).sum().backward()
torch.ocl.synchronize()
print(json.dumps([torch.ocl.program_stats()["built"], counters["inductor"]["fxgraph_cache_hit"]]))
"""


@pytest.fixture
def run(tmp_path):
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "graphs"),
        "TORCH_OCL_CACHE_DIR": str(tmp_path / "programs"),
    }
    environment.pop("TORCHINDUCTOR_FORCE_DISABLE_CACHES", None)

    def run(*arguments, **changes):
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env={**environment, **changes},
            cwd=pathlib.Path(__file__).parents[2],
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr[-3000:]
        built, hits = json.loads(result.stdout.splitlines()[-1])
        return built, hits

    return run


@pytest.mark.slow
def test_a_second_process_builds_nothing(run):
    built, hits = run()
    assert built > 0 and hits == 0
    assert run() == (0, 2)
    # A graph that would be generated differently is no hit.
    assert run("another generator")[1] == 0
    tuned_as = "cpu" if os.environ.get("TORCH_OCL_TUNE_AS") == "gpu" else "gpu"
    assert run(TORCH_OCL_TUNE_AS=tuned_as)[1] == 0


@pytest.mark.slow
def test_the_cpp_wrapper_builds_as_much(run):
    """Each program once, by threads while the compiler is at work; a second process none."""
    built, _ = run()
    folders = {"TORCH_OCL_CACHE_DIR": "", "TORCH_OCL_CACHE": "0"}
    in_cpp = {"TORCHINDUCTOR_CPP_WRAPPER": "1"}
    assert run(**in_cpp, **folders) == (built, 0)
    run(**in_cpp)
    assert run(**in_cpp) == (0, 2)


def test_the_key():
    torch.ones(1, device="ocl")
    uuid = cache.Generator().uuid()
    assert torch.__version__ in uuid
    assert torch.ocl.get_device_properties(0).driver_version in uuid


def test_importing_torch_imports_no_inductor():
    code = "import sys, torch, torch_ocl; print('torch._inductor' in sys.modules)"
    environment = {**os.environ, "TORCH_OCL_AUTOLOAD": "always"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert result.stdout.strip() == "False", result.stderr
