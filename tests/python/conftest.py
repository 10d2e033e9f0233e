import pytest
import torch

from tests.python import unused_programs
from tests.python.user_kernels import SCALE


@pytest.fixture(scope="module")
def scale():
    return torch.ocl.compile_kernel(SCALE, "scale")


@pytest.fixture
def run(tmp_path):
    """Runs a program that is given the device (unused_programs.py)."""
    return unused_programs.runner(tmp_path)
