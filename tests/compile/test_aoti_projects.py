"""Packages of C++ alone: their CMake project is built, and what comes out is loaded."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import torch
from torch import nn
from torch._inductor.package import load_package

from torch_ocl.upstream.compile import generated_cpp
from torch_ocl.utils import cpp_extension

TOOLS = Path(sys.executable).parent


def exported(folder):
    """A network on the CPU, and its unpacked package of C++ alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).eval()
    moved = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).eval().to("ocl")
    moved.load_state_dict(model.state_dict())
    sizes = ({0: torch.export.Dim("rows", min=2, max=64)},)
    with torch.no_grad():
        program = torch.export.export(
            moved, (torch.randn(8, 16, device="ocl"),), dynamic_shapes=sizes
        )
    path = torch._inductor.aoti_compile_and_package(
        program,
        package_path=str(folder / "model.pt2"),
        inductor_configs={"aot_inductor.package_cpp_only": True},
    )
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return model, folder / "model"


def run(*command):
    environment = os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_project_is_built(tmp_path):
    model, package = exported(tmp_path)
    (project,) = package.rglob("CMakeLists.txt")
    prefixes = f"{cpp_extension.cmake_prefix_path};{torch.utils.cmake_prefix_path}"
    run(
        *("cmake", "-S", project.parent, "-B", tmp_path / "build", "-G", "Ninja"),
        *(f"-DCMAKE_PREFIX_PATH={prefixes}", f"-DPython_EXECUTABLE={sys.executable}"),
    )
    run("cmake", "--build", tmp_path / "build")
    (library,) = (tmp_path / "build").glob("lib*.so")
    # A package with the library in it, beside the sources.
    (source,) = package.rglob("*.wrapper.cpp")
    library.rename(source.with_suffix(".so"))
    with zipfile.ZipFile(tmp_path / "built.pt2", "w") as archive:
        for file in package.rglob("*"):
            if file.is_file():
                archive.write(file, Path("built") / file.relative_to(package))
    loaded = load_package(str(tmp_path / "built.pt2"))
    for rows in (3, 8):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(
            loaded(x.to("ocl")).cpu(), model(x).detach(), rtol=1e-4, atol=1e-5
        )


def test_upstreams_project_lacks_the_device(tmp_path, monkeypatch):
    """Needless once upstream asks devices for their packages of CMake."""
    from torch._inductor.cpp_builder import CppBuilder

    assert hasattr(generated_cpp, "_projects")
    ours = CppBuilder.save_compile_cmd_to_cmake
    monkeypatch.setattr(CppBuilder, "save_compile_cmd_to_cmake", ours.__wrapped__)
    _, package = exported(tmp_path)
    (project,) = package.rglob("CMakeLists.txt")
    assert "TorchOCL" not in project.read_text()
