"""Functions that initialise CUDA in torch.cuda initialise OpenCL here, and no others do."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

#: A call of each function of torch.cuda whose code begins by initialising CUDA.
INITIALISE = {
    "can_device_access_peer": "(0, 0)",
    "current_device": "()",
    "current_stream": "()",
    "default_stream": "()",
    "get_device_properties": "(0)",
    "get_per_process_memory_fraction": "()",
    "get_rng_state": "()",
    "get_sync_debug_mode": "()",
    "init": "()",
    "initial_seed": "()",
    "ipc_collect": "()",
    "set_per_process_memory_fraction": "(1.0)",
    "set_sync_debug_mode": "(0)",
    "synchronize": "()",
}
#: A call of those that initialise it by another function.
BY_ANOTHER = {
    "get_device_name": "()",
    "is_bf16_supported": "()",
    "is_tf32_supported": "()",
}
#: Those that have no counterpart, or that need more than a call: the reason.
OTHERS = {
    "cudart": "CUDA's library",
    "current_blas_handle": "CUDA's library",
    "current_solver_handle": "CUDA's library",
    "get_stream_from_external": "needs a queue",
}
#: Functions that programs call before they decide, each of which leaves OpenCL alone.
LEAVE_ALONE = {
    "is_available": "()",
    "device_count": "()",
    "is_initialized": "()",
    "memory_stats": "()",
    "memory_allocated": "()",
    "max_memory_reserved": "()",
    "memory_stats_as_nested_dict": "()",
    "host_memory_stats": "()",
    "empty_cache": "()",
    "manual_seed": "(0)",
    "manual_seed_all": "(0)",
    "seed": "()",
    "reset_peak_memory_stats": "()",
    "get_arch_list": "()",
}


def upstream_names():
    """Public functions of torch.cuda that call _lazy_init(), by upstream's source."""
    found = set()
    for name in ("__init__", "memory", "random", "streams"):
        source = (Path(torch.cuda.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                if "_lazy_init()" in ast.get_source_segment(source, node):
                    found.add(node.name)
    return found


def test_the_lists_are_upstreams():
    assert upstream_names() == set(INITIALISE) | set(OTHERS)


def started(name, call):
    """Whether OpenCL is initialised after a process's first call, and what memory_stats() lacks."""
    code = f"""
import torch
torch.ocl.{name}{call}
print(torch.ocl.is_initialized(), "reserved_bytes.all.current" in torch.ocl.memory_stats())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*INITIALISE, *BY_ANOTHER])
def test_it_initialises(name):
    assert started(name, (INITIALISE | BY_ANOTHER)[name]) == ["True", "True"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAVE_ALONE)
def test_it_leaves_the_device_alone(name):
    assert started(name, LEAVE_ALONE[name]) == ["False", "True"]


def test_torchs_own_code_does_not_initialise():
    """It asks on behalf of programs on the CPU, too: fork_rng() saves the state of each device."""
    code = """
import torch
namespace = {"__name__": "torch.somewhere", "torch": torch}
exec("torch.ocl.current_device(); torch.ocl.current_stream()", namespace)
with torch.random.fork_rng(device_type="ocl"):
    torch.rand(2)
print(torch.ocl.is_initialized())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False"], done.stderr[-2000:]
