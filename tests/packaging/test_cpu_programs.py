"""A program that only uses the CPU runs with torch_ocl installed as without it."""

import json
import os
import subprocess
import sys

import pytest

from tests.packaging import cpu_programs


@pytest.fixture(scope="module")
def outcomes():
    """The events in each program: without torch_ocl, and with it."""
    runs = [
        subprocess.Popen(
            [sys.executable, cpu_programs.__file__],
            env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for autoload in "01"
    ]
    return [json.loads(run.communicate(timeout=300)[0].splitlines()[-1]) for run in runs]


@pytest.mark.parametrize("name", [program.__name__ for program in cpu_programs.all_programs()])
def test_it_runs_as_without_torch_ocl(name, outcomes):
    without, installed = (outcome[name] for outcome in outcomes)
    assert not installed.pop("initialized")
    del without["initialized"]
    assert installed == without
