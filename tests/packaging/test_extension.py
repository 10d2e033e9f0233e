"""C++ extensions: the example built by pip, by CMake and while a program runs, and its op."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests import fresh
from torch_ocl.utils import cpp_extension

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "extension"
if not EXAMPLE.exists():
    pytest.skip("not run from the source tree", allow_module_level=True)

#: cmake and ninja of this environment, whether or not it is activated.
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def copy_of_the_example(folder):
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("build", "*.so", "*.egg-info"))
    return folder


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=ENVIRONMENT, **options
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.fixture(scope="session")
def extension(tmp_path_factory):
    """The package, as pip installs it. Its ops can be registered once in a process."""
    folder = tmp_path_factory.mktemp("extension")
    source = copy_of_the_example(folder / "source")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps")
    run(*pip, "--target", folder / "site", source)
    sys.path.insert(0, str(folder / "site"))
    import ocl_swiglu

    assert Path(ocl_swiglu.__file__).is_relative_to(folder / "site")
    yield ocl_swiglu
    sys.path.remove(str(folder / "site"))


def expected(gate, up):
    return functional.silu(gate) * up


def operands(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(shape, generator=generator) * 3).to(dtype) for _ in range(2)]


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 7), (2, 3, 129)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_results(extension, shape, dtype):
    gate, up = operands(*shape, dtype=dtype)
    wanted = expected(gate.double(), up.double()).to(dtype)
    assert_close(extension.swiglu(gate.ocl(), up.ocl()).cpu(), wanted)
    assert_close(extension.swiglu(gate, up), expected(gate, up))


def test_large_gates(extension):
    gate = torch.tensor([-1000.0, -90.0, 90.0, float("inf"), float("nan")])
    out = extension.swiglu(gate.ocl(), torch.ones(5).ocl()).cpu()
    assert_close(out, expected(gate, torch.ones(5)), equal_nan=True)


def test_views(extension):
    """A view has its place in a larger buffer; one that is not contiguous is copied."""
    both = torch.randn(6, 20)
    on_device = both.ocl()
    gate, up = both[2:4], both[4:6]
    assert_close(extension.swiglu(on_device[2:4], on_device[4:6]).cpu(), expected(gate, up))
    gate, up = both.chunk(2, dim=1)
    assert_close(extension.swiglu(*on_device.chunk(2, dim=1)).cpu(), expected(gate, up))
    assert_close(extension.swiglu(on_device.mT, on_device.mT).cpu(), expected(both, both).mT)


def test_gradient(extension):
    gate, up = operands(4, 33)
    weight = torch.randn(4, 33)
    grads = []
    for function, device in ((expected, "cpu"), (extension.swiglu, "ocl")):
        leaves = [x.detach().to(device).requires_grad_() for x in (gate, up)]
        (function(*leaves) * weight.to(device)).sum().backward()
        grads.append([x.grad.cpu() for x in leaves])
    assert_close(grads[1], grads[0])


def test_opcheck(extension):
    # The check of gradients' registration knows PyTorch's own devices only.
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    leaves = [x.ocl().requires_grad_() for x in operands(3, 5)]
    torch.library.opcheck(torch.ops.ocl_swiglu.swiglu, tuple(leaves), test_utils=checks)
    without = [x.detach() for x in (leaves[0], *leaves)]
    torch.library.opcheck(
        torch.ops.ocl_swiglu.swiglu_backward, tuple(without), test_utils=checks[:2]
    )


def test_compile(extension):
    gate, up = operands(3, 5)
    compiled = torch.compile(lambda g, u: extension.swiglu(g, u) + 1, backend="eager")
    assert_close(compiled(gate.ocl(), up.ocl()).cpu(), expected(gate, up) + 1)


def test_errors(extension):
    x = torch.ones(3, device="ocl")
    with pytest.raises(NotImplementedError, match="\"swiglu\" not implemented for 'Int'"):
        extension.swiglu(x.int(), x.int())
    with pytest.raises(RuntimeError, match="gate is Float, up is Half"):
        extension.swiglu(x, x.half())
    with pytest.raises(RuntimeError, match="shape"):
        extension.swiglu(x, x[:2])


def test_kernel_folder(extension, tmp_path):
    """TORCH_OCL_KERNEL_DIR has edited kernels of the extension; the rest comes from libraries."""
    folder = tmp_path / "ocl_swiglu"
    shutil.copytree(EXAMPLE / "kernels" / "ocl_swiglu", folder)
    source = folder / "swiglu.cl"
    source.write_text(source.read_text().replace("g * SIGMOID(g) * u", "7 * u"))
    code = (
        f"import sys; sys.path.insert(0, {str(Path(extension.__file__).parents[1])!r})\n"
        "import torch, ocl_swiglu\n"
        "x = torch.ones(2, device='ocl')\n"
        "print(ocl_swiglu.swiglu(x, x + 1).tolist())"
    )
    environment = ENVIRONMENT | {"TORCH_OCL_KERNEL_DIR": str(tmp_path)}
    done = fresh.run_script(code, environment=environment, cwd=tmp_path)
    assert done.stdout.split("\n")[0] == "[14.0, 14.0]", done.stderr
    environment["TORCH_OCL_KERNEL_DIR"] = "/nowhere"
    done = fresh.run_script(code, environment=environment, cwd=tmp_path)
    assert 'no folder "/nowhere"' in done.stderr


@pytest.mark.slow
def test_cmake(tmp_path):
    source = copy_of_the_example(tmp_path / "source")
    prefix = f"-DCMAKE_PREFIX_PATH={cpp_extension.cmake_prefix_path}"
    python = f"-DPython_EXECUTABLE={sys.executable}"
    run("cmake", "-G", "Ninja", "-S", source, "-B", tmp_path / "build", prefix, python)
    run("cmake", "--build", tmp_path / "build")
    code = (
        "import torch, ocl_swiglu\n"
        "x = torch.ones(2, device='ocl')\n"
        "assert torch.allclose(ocl_swiglu.swiglu(x, x), torch.nn.functional.silu(x))"
    )
    done = fresh.run_script(code, environment=ENVIRONMENT, cwd=source)
    assert done.returncode == 0, done.stderr


#: A library without ops, whose kernel is launched by a function of C.
SOURCE = """
#include <torch_ocl/extension.h>
extern "C" void fill(void* out, uint64_t n) {
  static const ocl::KernelFamily family{"%s", "fill"};
  ocl::Queue& queue = ocl::current_queue(0);
  ocl::launch(family.get(queue.device(), {{"VALUE", 3}}), queue, ocl::NDRange::linear(n, 1),
              ocl::Pointer{out}, n);
}
"""
KERNEL = """// Sets elements to VALUE.
#include "%s/common.clh"
kernel void fill(global char* out, ulong offset, ulong n) {
  if (get_global_id(0) < n) ((global float*)(out + offset))[get_global_id(0)] = VALUE * FACTOR;
}
"""
LOAD = """
import ctypes, sys, torch
from torch_ocl.utils.cpp_extension import load
for name, kernels in zip(sys.argv[1::2], sys.argv[2::2]):
    path = load(name, f"{kernels}/../{name}.cpp", kernels=kernels, is_python_module=False,
                build_directory=f"{kernels}/../{name}_build")
    library = ctypes.CDLL(path)
    x = torch.zeros(4, device="ocl")
    library.fill(ctypes.c_void_p(x.data_ptr()), ctypes.c_uint64(4))
    print(x.tolist())
"""


def write_small_extension(root, name, folder, factor):
    kernels = root / f"{name}_kernels" / folder
    kernels.mkdir(parents=True)
    (kernels / "fill.cl").write_text(KERNEL % folder)
    (kernels / "common.clh").write_text(f"// Of the tests.\n#define FACTOR {factor}\n")
    (root / f"{name}.cpp").write_text(SOURCE % f"{folder}/fill.cl")
    return name, kernels.parent


def test_load(tmp_path):
    first = write_small_extension(tmp_path, "first", "first", 2)
    second = write_small_extension(tmp_path, "second", "second", 5)
    arguments = [str(word) for word in (*first, *second)]
    done = fresh.run_script(LOAD, *arguments, environment=ENVIRONMENT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["[6.0, 6.0, 6.0, 6.0]", "[15.0, 15.0, 15.0, 15.0]"]
    # An edited kernel is seen.
    header = first[1] / "first" / "common.clh"
    header.write_text(header.read_text().replace("2", "4"))
    done = fresh.run_script(LOAD, *arguments[:2], environment=ENVIRONMENT, cwd=tmp_path)
    assert done.stdout.startswith("[12.0, 12.0"), done.stderr


def test_two_files_of_one_name(tmp_path):
    """It is no crash while a library is loaded, but an error of who asks for the file."""
    from torch_ocl.utils import embed_kernels

    source = tmp_path / "files.cpp"
    kernels = tmp_path / "kernels" / "include"
    kernels.mkdir(parents=True)
    (kernels / "dtype.clh").write_text("// Not torch_ocl's.\n")
    source.write_text(embed_kernels.generate_extension(kernels.parent))
    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    library = tmp_path / "libfiles.so"
    links = [*(f"-L{path}" for path in cpp_extension.library_paths()), "-ltorch_ocl"]
    run("g++", "-std=c++20", "-shared", "-fPIC", *includes, source, "-o", library, *links)
    code = f"import ctypes, torch; ctypes.CDLL({str(library)!r}); torch.ones(2, device='ocl') + 1"
    done = fresh.run_script(code, environment=ENVIRONMENT | {"TORCH_OCL_CACHE": "0"}, cwd=tmp_path)
    assert 'several libraries have a kernel file "include/dtype.clh"' in done.stderr


def test_arguments(tmp_path):
    with pytest.raises(ValueError, match="no folder"):
        cpp_extension.OclExtension("x", ["x.cpp"], kernels=tmp_path / "absent")
    with pytest.raises(ValueError, match="has no kernel files"):
        cpp_extension.OclExtension("x", ["x.cpp"], kernels=tmp_path)
    extension = cpp_extension.OclExtension("x", ["x.cpp"], extra_compile_args={"cxx": ["-O1"]})
    assert extension.extra_compile_args["cxx"] == ["-O1", "-std=c++20"]
    extension = cpp_extension.OclExtension("x", ["x.cpp"], extra_compile_args=["-std=c++23"])
    assert extension.extra_compile_args == ["-std=c++23"]
    assert "torch_ocl" in extension.libraries
