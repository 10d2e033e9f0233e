"""PyTorch's own reports on this package."""

import subprocess
import sys

import torch

import torch_ocl
from tests import fresh


def test_config_names_the_package():
    text = torch.__config__.show()
    assert text.startswith(torch._C._show_config().rstrip())
    last = text.splitlines()[-1]
    assert last.startswith(f"  - torch_ocl {torch_ocl.__version__}, OpenCL {torch.version.ocl}:")
    assert "python -m torch_ocl" in last


def test_config_does_not_initialise_opencl():
    done = fresh.run_script(
        "import torch\nassert 'torch_ocl' in torch.__config__.show()\n"
        "assert not torch.ocl.is_initialized()"
    )
    assert done.returncode == 0, done.stderr


def test_collect_env_lists_the_package():
    """By what pip has, since upstream gives extensions no place of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.utils.collect_env"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert f"torch-ocl=={torch_ocl.__version__}" in done.stdout.replace("_", "-")
