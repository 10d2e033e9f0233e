"""Convolutions by the matrix products for GPUs, which find an operand in the windows."""

import os
from pathlib import Path

import pytest
import torch

from tests import fresh
from tests.as_gpu import UNVECTORISED
from tests.dtypes import chosen
from torch_ocl import testing

ROOT = Path(__file__).resolve().parents[2]


def run_cases(name, dtypes, **environment):
    script = "import sys\nsys.path.insert(0, sys.argv[1])\nfrom tests.ops import windows\n"
    script += "windows.check(*sys.argv[2:])"
    variables = {**os.environ, **environment}
    done = fresh.run_script(script, str(ROOT), name, dtypes, environment=variables)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtypes", ["float32,bfloat16", pytest.param("float16,float64", marks=pytest.mark.slow)]
)
def test_by_tiles(dtypes):
    run_cases("tiled", chosen(dtypes), **UNVECTORISED)


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_by_matrix_instructions_of_subgroups(dtype):
    """Broadcasts do what the instructions do, where there are none."""
    if {8, 16} & set(torch.ocl.get_device_properties(0).required_sub_group_sizes):
        run_cases("subgroup_matrix", dtype, TORCH_OCL_GEMM_TILE="32x32x16")


def test_they_say_where_they_have_no_instructions():
    """Unless they are forced, CPUs leave them to others."""
    x = torch.ones(1, 8, 4, 4, dtype=torch.bfloat16, device="ocl")
    with testing.dispatches() as lines, testing.force(convolution="implicit_gemm"):
        torch.conv2d(x, x)
    reason = "the device has no tensor cores of NVIDIA"
    p = torch.ocl.get_device_properties(0)
    there = p.has_tensor_cores or p.type == "gpu" and any(", windows: " in line for line in lines)
    assert there or f"implicit_gemm refuses: {reason}" in "\n".join(lines)
