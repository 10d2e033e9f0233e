"""Runs a test file once more with the kernels, sizes and forms that GPUs get."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

#: Intel's driver for CPUs builds a program in half the time if it needn't put work-items in lanes
#: of vectors. What is tested of kernels for GPUs is results, not speed.
UNVECTORISED = {"CL_CONFIG_CPU_VECTORIZER_MODE": "1"}


def takes_gpu_kernels():
    """True on a GPU, and where a CPU is told to run the same kernels."""
    return (
        os.environ.get("TORCH_OCL_TUNE_AS") == "gpu"
        or torch.ocl.get_device_properties(0).type == "gpu"
    )


def run_as_gpu(file, *arguments, unvectorised=True):
    """The tests of `file` that are not slow, in a process of their own; of the dtypes that
    TORCH_OCL_AS_GPU_DTYPES names, where it is set, else of TORCH_OCL_TEST_DTYPES'. `unvectorised`:
    without Intel's vectorizer, which takes long."""
    if takes_gpu_kernels():
        return
    environment = {
        **os.environ,
        "TORCH_OCL_TUNE_AS": "gpu",
        **(UNVECTORISED if unvectorised else {}),
    }
    if dtypes := os.environ.get("TORCH_OCL_AS_GPU_DTYPES"):
        environment["TORCH_OCL_TEST_DTYPES"] = dtypes
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", file, *arguments]
    run = subprocess.run(
        command,
        env=environment,
        cwd=pathlib.Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    # All of a file's tests may be of other dtypes than those that are asked for.
    none_is_wanted = run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED and dtypes
    assert run.returncode == 0 or none_is_wanted, run.stdout[-4000:] + run.stderr[-1000:]
