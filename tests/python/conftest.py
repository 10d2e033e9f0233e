import pytest
import torch

from tests.python.user_kernels import SCALE


@pytest.fixture(scope="module")
def scale():
    return torch.ocl.compile_kernel(SCALE, "scale")
