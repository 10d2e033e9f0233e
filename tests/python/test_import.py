"""`import torch` works whatever the state of the backend, and torch.ocl says what is wrong."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

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


#: torch's use of the entry point, of a torch that has as many CUDA devices.
AUTOLOAD = """
import importlib.metadata, sys, torch
torch.version.cuda, torch.cuda.device_count = "12.8", lambda: {devices}
for point in importlib.metadata.entry_points(group="torch.backends"):
    point.load()()
print("torch_ocl" in sys.modules)
try:
    print(torch.device("ocl"))
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("devices", "choice", "loads"),
    [(0, None, True), (1, None, False), (1, "always", True), (0, "never", False)],
)
def test_autoload_beside_cuda(devices, choice, loads):
    environment = {name: text for name, text in os.environ.items() if name != "TORCH_OCL_AUTOLOAD"}
    environment |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    environment |= {} if choice is None else {"TORCH_OCL_AUTOLOAD": choice}
    code = AUTOLOAD.format(devices=devices) + "import torch_ocl; print(torch.ones(1).ocl().item())"
    lines = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout.splitlines()
    assert lines[0] == str(loads)
    assert lines[1] == "ocl" if loads else lines[1].startswith("Expected one of cpu, cuda"), lines
    assert lines[-1] == "1.0", "import torch_ocl adds the device"


def test_autoload_of_an_unknown_choice():
    code = "import torch, warnings; print(torch.device('ocl'))"
    env = {"TORCH_OCL_AUTOLOAD": "yes", "PYTHONWARNINGS": "error"}
    assert run(code, env=env).strip() == "ocl"


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


def test_another_version_of_torch(tmp_path):
    """It is found out before the library is loaded, which would fail for want of a symbol."""
    package = tmp_path / "torch_ocl"
    package.mkdir()
    for file in Path(torch_ocl.__file__).parent.glob("*.py"):
        shutil.copy(file, package)
    built = 'TORCH_VERSION, VERSION, WHEELS = "2.3.1+cpu", "0.1.0", ""'
    (package / "_built_for.py").write_text(built)
    (package / "_C.py").write_text("raise ImportError('undefined symbol')")
    code = "import torch; print(torch.ocl.unavailable_reason()); torch.ones(2).sum()"
    out = run(code, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert "built for torch 2.3.1" in out and "undefined symbol" not in out
    assert f"this is torch {torch.__version__}" in out
    assert "pip install 'torch==2.3.*'" in out and "--force-reinstall" in out


def test_without_a_device_none_is_made_current():
    out = run(
        """
        import torch
        torch.ocl.set_device(-1)
        for use in (lambda: torch.ones(1, device="ocl"), lambda: torch.ocl.set_device(0)):
            try:
                use()
            except RuntimeError as error:
                print(str(error).splitlines()[0])
        """,
        env={"TORCH_OCL_DEVICES": "no such device"},
    )
    made, set_device = out.splitlines()
    assert made == set_device


CONFLICT = """
import io, torch
from torch import nn
stored = io.BytesIO()
torch.save(torch.ones(2), stored)
torch.utils.rename_privateuse1_backend("foo")
module = dict(is_available=lambda: False, current_device=lambda: 0, device_count=lambda: 0)
module = {name: staticmethod(function) for name, function in module.items()}
torch._register_device_module("foo", type("Foo", (), module))
import torch_ocl
assert "torch_ocl._C" not in __import__("sys").modules
x = torch.ones(2)
"""

USES_IN_A_CONFLICT = """
x.to("ocl"); x.to(device="ocl:0"); x.ocl()
x.new_zeros(2, device="ocl"); x.new_empty(2, device="ocl")
x.new_full((2,), 1, device="ocl"); x.new_tensor([1], device="ocl"); x.new(2, device="ocl")
nn.Linear(1, 1).to("ocl"); nn.Linear(1, 1).ocl(); nn.Linear(1, 1).to_empty(device="ocl")
nn.Linear(1, 1, device="ocl"); torch.ocl.synchronize(); torch.ocl.device(0)
torch.empty(2, device="ocl"); torch.tensor([1], device="ocl"); torch.asarray([1], device="ocl")
torch.as_tensor([1], device="ocl"); torch.scalar_tensor(1, device="ocl")
torch.normal(0.0, 1.0, (2,), device="ocl"); torch.logspace(0, 1, 2, device="ocl")
torch.empty_permuted((2,), (0,), device="ocl"); torch.randint_like(x, 3, device="ocl")
torch.tril_indices(2, 2, device="ocl"); torch.triu_indices(2, 2, device="ocl")
torch.fft.fftfreq(3, device="ocl"); torch.hann_window(3, device="ocl")
torch.sparse_coo_tensor([[0]], [1.0], device="ocl"); torch.nested.nested_tensor([x], device="ocl")
torch.set_default_device("ocl"); torch.get_device_module("ocl"); torch.is_autocast_enabled("ocl")
torch.Generator("ocl"); torch.Stream("ocl"); torch.Event("ocl:0")
torch.accelerator.synchronize("ocl")
torch.autocast("ocl"); torch.amp.GradScaler("ocl"); stored.seek(0)
torch.load(stored, map_location="ocl")
"""


def test_another_backend_has_taken_the_slot():
    out = run(
        CONFLICT
        + f"uses = {[u.strip() for u in USES_IN_A_CONFLICT.replace(chr(10), ';').split(';')]}"
        + """
print(torch.ocl.is_available(), torch.ocl.device_count())
for use in filter(None, uses):
    try:
        exec(use)
    except RuntimeError as error:
        named = "backend 'foo'" in str(error)
    else:
        named = use == "stored.seek(0)"
    if not named:
        print(use)
""",
        autoload=False,
    )
    assert out.split() == ["False", "0"], out


def test_torch_is_as_before_beside_another_backend(tmp_path):
    (tmp_path / "scripted.py").write_text(
        "import torch\n\ndef function(a):\n    return a + torch.ones(2)\n"
    )
    run(
        CONFLICT
        + """
assert x.to(torch.float64).dtype == torch.float64
try:
    x.to("nonsense")
except RuntimeError as error:
    assert "foo" not in str(error)
with torch.device("meta"):
    assert torch.empty(2).device.type == torch.tensor(2).device.type == "meta"
generator = torch.Generator().manual_seed(3)
assert isinstance(generator, torch.Generator) and not isinstance(x, torch.Generator)
assert torch.rand(2, generator=generator).equal(torch.rand(2, generator=generator.manual_seed(3)))
class Own(torch.Generator):
    pass
assert type(Own()) is Own and not isinstance(generator, Own) and issubclass(Own, torch.Generator)
stored.seek(0)
assert torch.load(stored).equal(x)
import scripted
assert torch.jit.script(scripted.function)(x).equal(x + 1)
compiled = torch.compile(lambda a: torch.ones(2) + a, backend="eager", fullgraph=True)
assert compiled(x).equal(x + 1)
""",
        autoload=False,
        cwd=tmp_path,
    )


def test_loaders_and_drivers_are_files():
    from torch_ocl import _loader

    for path in _loader.find_loaders() + _loader.find_icd_files():
        assert Path(path).exists()
