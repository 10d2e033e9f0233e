"""`import torch` works whatever the state of the backend, and torch.ocl says what is wrong."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import torch_ocl


def run(code, *, env=None, autoload=True, cwd=None):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"} | (env or {}),
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("first", ["torch", "torch_ocl"])
@pytest.mark.parametrize("autoload", [True, False])
def test_import_order_does_not_matter(first, autoload):
    code = f"import {first}, torch, torch_ocl; print(torch.ocl.device_count(), torch.device('ocl'))"
    assert run(code, autoload=autoload).split()[1] == "ocl"


def test_without_autoload_torch_knows_no_ocl():
    assert run("import torch; print(hasattr(torch, 'ocl'))", autoload=False).strip() == "False"


def test_no_opencl_loader():
    out = run(
        """
        import torch
        print(torch.ocl.is_available(), torch.accelerator.is_available(), torch.ocl.device_count())
        torch.manual_seed(0); torch.ones(2).sum()
        for use in (lambda: torch.ones(2, device="ocl"), lambda: torch.ones(2).to("ocl"),
                    torch.ocl.init, lambda: torch.nn.Linear(1, 1).ocl(),
                    lambda: torch.Generator("ocl"), torch.ocl.current_stream):
            try:
                use()
            except RuntimeError as error:
                print(error)
            else:
                print("no error")
        """,
        env={"TORCH_OCL_LOADER": "/nonexistent/libOpenCL.so"},
    )
    lines = [line for line in out.splitlines() if line.strip()]
    assert lines[0] == "False False 0"
    assert sum("nonexistent" in line and "nstall" in line for line in lines[1:]) == 6, out


def test_a_package_without_its_library(tmp_path):
    """As after an update of torch that the library does not fit."""
    package = tmp_path / "torch_ocl"
    package.mkdir()
    for file in Path(torch_ocl.__file__).parent.glob("*.py"):
        shutil.copy(file, package)
    (package / "_C.py").write_text("raise ImportError('libtorch_ocl.so: undefined symbol')")
    out = run(
        """
        import torch, torch_ocl
        print(torch_ocl.__file__)
        print(torch.ocl.is_available(), torch.ocl.device_count())
        torch.manual_seed(0)
        print(torch.ocl.unavailable_reason())
        for use in (lambda: torch.ones(2).to("ocl"), torch.ocl.synchronize):
            try:
                use()
            except RuntimeError as error:
                print(error)
        """,
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,  # the folder `python -c` looks in first
    )
    file, *lines = out.splitlines()
    assert Path(file).is_relative_to(tmp_path)
    assert lines[0] == "False 0"
    assert sum("could not be loaded" in line for line in lines) == 3, out


def test_another_backend_has_taken_the_slot():
    out = run(
        """
        import torch
        torch.utils.rename_privateuse1_backend("foo")
        torch._register_device_module("foo", type("Foo", (), {"is_available": lambda: True})())
        import torch_ocl
        assert "torch_ocl._C" not in __import__("sys").modules
        print(torch.ocl.is_available(), torch.ocl.device_count())
        uses = (lambda: torch.ones(2).to("ocl"), lambda: torch.ones(2).to(device="ocl:0"),
                lambda: torch.nn.Linear(1, 1).to("ocl"), lambda: torch.empty(2, device="ocl"),
                lambda: torch.tensor([1], device="ocl"), lambda: torch.ones(2).ocl(),
                lambda: torch.ocl.synchronize(), lambda: torch.ocl.device(0))
        for use in uses:
            try:
                use()
            except RuntimeError as error:
                print("backend 'foo'" in str(error))
            else:
                print("no error")
        assert torch.ones(2).to(torch.float64).dtype == torch.float64
        try:
            torch.ones(2).to("nonsense")
        except RuntimeError as error:
            assert "foo" not in str(error)
        """,
        autoload=False,
    )
    lines = out.splitlines()
    assert lines[0] == "False 0"
    assert lines[1:] == ["True"] * 8


def test_loaders_and_drivers_are_files():
    from torch_ocl import _loader

    for path in _loader.find_loaders() + _loader.find_icd_files():
        assert Path(path).exists()
