"""Bad input and faults: what a user gets. Each runs in a process of its own where it needs another
environment."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import torch

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "kernels"


def run(code, **environment):
    """Runs Python code in a fresh process; returns (exit code, output)."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr


def test_float64_on_a_device_without_it():
    code = """
import torch
try:
    torch.zeros(3, dtype=torch.float64, device="ocl")
except TypeError as error:
    assert torch.ocl.get_device_name(0) in str(error), error
else:
    raise SystemExit("no TypeError")
x = torch.randn(100)
assert torch.equal(x.to("ocl").cpu(), x)
assert torch.allclose((x.to("ocl") * 2 + 1).sum().cpu(), (x * 2 + 1).sum(), atol=1e-4)
assert torch.allclose(x.to("ocl").to(device="cpu", dtype=torch.float64), x.double())
assert torch.equal(x.double().to(device="ocl", dtype=torch.float32).cpu(), x)
assert torch.ocl.host_staged_counts() == {"copy_": 2}, torch.ocl.host_staged_counts()
model = torch.nn.Linear(8, 2).to("ocl")
out = model(torch.randn(4, 8, device="ocl"))
loss = torch.nn.functional.mse_loss(out, torch.zeros(4, 2, device="ocl"))
loss.backward()
torch.optim.Adam(model.parameters()).step()
print(torch.randn(2, 2, device="ocl"))
"""
    exit_code, output = run(
        code, TORCH_OCL_WITHOUT="fp64,fp16,subgroups,int64_atomics,work_group_reduce"
    )
    assert exit_code == 0, output


def test_no_opencl():
    code = """
import torch
assert not torch.ocl.is_available()
assert torch.ones(2).sum() == 2
try:
    torch.ones(2, device="ocl")
except RuntimeError as error:
    assert "install" in str(error), error
else:
    raise SystemExit("no RuntimeError")
"""
    exit_code, output = run(code, TORCH_OCL_LOADER="/nonexistent/libOpenCL.so.1")
    assert exit_code == 0, output


def test_device_index_out_of_range():
    with pytest.raises(RuntimeError, match="99"):
        torch.ones(2, device="ocl:99")
    with pytest.raises(RuntimeError, match=re.escape(torch.ocl.get_device_name(0))):
        torch.ones(2, device="ocl:99")


# PyTorch keeps an index in 8 bits: 256 must not become 0.
@pytest.mark.parametrize("index", [128, 256, 257, 300, 2**31, 2**40])
@pytest.mark.parametrize(
    "use",
    [
        torch.ocl.set_device,
        torch.ocl.synchronize,
        torch.ocl.get_rng_state,
        torch.ocl.get_device_properties,
        torch.ocl.memory_allocated,
        torch.ocl.current_stream,
        torch.ocl.Stream,
        lambda index: torch.ocl.device(index).__enter__(),
        lambda index: torch.ocl.set_rng_state(torch.ocl.get_rng_state(), index),
    ],
)
def test_indices_past_those_of_pytorch(use, index):
    with pytest.raises(RuntimeError, match=f"index {index} is out of range"):
        use(index)
    assert torch.ocl.current_device() == 0


@pytest.mark.parametrize("before", ["", "torch.ocl.init()"])
def test_statistics_of_a_device_that_is_not_there(before):
    code = f"""
import torch
{before}
for ask in (torch.ocl.memory_allocated, torch.ocl.memory_stats, torch.ocl.mem_get_info,
            torch.ocl.reset_peak_memory_stats, torch.ocl.reset_accumulated_memory_stats):
    try:
        ask(99)
    except RuntimeError as error:
        assert "99" in str(error), error
    else:
        raise AssertionError(ask)
assert torch.ocl.memory_allocated() == torch.ocl.memory_allocated(0) == 0
"""
    exit_code, output = run(code)
    assert exit_code == 0, output


def test_out_of_memory_and_on():
    before = torch.ocl.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch.empty(1 << 45, dtype=torch.uint8, device="ocl")
    for word in ("free", "allocated", "reserved"):
        assert word in str(raised.value)
    assert torch.ocl.memory_allocated() == before
    assert torch.ones(3, device="ocl").sum().item() == 3


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d), RuntimeError),
        (lambda d: torch.ones(2, 3, device=d) @ torch.ones(4, 5, device=d), RuntimeError),
        (lambda d: torch.ones(2, 3, device=d).sum(5), IndexError),
        (lambda d: torch.ones(2, device=d) & torch.ones(2, device=d), RuntimeError),
        (
            lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]),
            RuntimeError,
        ),
        (lambda d: torch.ones(3, device=d).view(2, 2), RuntimeError),
        (lambda d: torch.ones(2, device=d).item(), RuntimeError),
        (lambda d: torch.empty(0, device=d).max(), RuntimeError),
        (lambda d: torch.ones(3, dtype=torch.int64, device=d).mean(), RuntimeError),
        (
            lambda d: torch.nn.functional.embedding(
                torch.ones(2, device=d), torch.ones(3, 2, device=d)
            ),
            RuntimeError,
        ),
    ],
)
def test_bad_input_raises_what_the_cpu_raises(call, error):
    with pytest.raises(error):
        call("cpu")
    with pytest.raises(error):
        call("ocl")


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="ocl") + torch.ones(2)


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_index_out_of_range_is_raised_at_the_next_wait(index):
    weight = torch.arange(10.0, device="ocl").view(5, 2)
    with pytest.raises((IndexError, RuntimeError), match="index_select|embedding"):
        torch.index_select(weight, 0, torch.tensor([0, index], device="ocl"))
        torch.ocl.synchronize()
    torch.ocl.synchronize()
    assert weight.sum().item() == 45.0


def test_kernel_that_does_not_build(tmp_path):
    shutil.copytree(KERNELS, tmp_path / "kernels")
    broken = tmp_path / "kernels" / "pointwise" / "contiguous.cl"
    broken.write_text(broken.read_text() + "\nthis is no OpenCL C\n")
    code = """
import torch
x = torch.ones(3, device="cpu").to("ocl")
try:
    x + x
except RuntimeError as error:
    text = str(error)
    assert "pointwise/contiguous.cl" in text and "-DOP=op_add" in text and "error" in text, text
else:
    raise SystemExit("no RuntimeError")
"""
    exit_code, output = run(
        code, TORCH_OCL_KERNEL_DIR=str(tmp_path / "kernels"), TORCH_OCL_CACHE="0"
    )
    assert exit_code == 0, output


# An op that only the CPU has, whatever the op table has by now.
CPU_OP = """
import torch
torch.library.define("test::cpu_only", "(Tensor x) -> Tensor")
torch.library.impl("test::cpu_only", "CPU", lambda x: x + 1)
cpu_only = torch.ops.test.cpu_only
"""


def test_fallback_is_counted():
    code = """
x = torch.eye(3).to("ocl")
assert cpu_only(x).device.type == "ocl" and torch.equal(cpu_only(x).cpu(), torch.eye(3) + 1)
counts = torch.ocl.fallback_counts()
assert sum(counts.values()) == 2, counts
"""
    exit_code, output = run(CPU_OP + code, TORCH_OCL_FALLBACK="1")
    assert exit_code == 0, output
    assert output.count("runs on the CPU") == 1  # warns once


def test_no_kernel_raises():
    code = """
try:
    cpu_only(torch.eye(3, device="ocl"))
except NotImplementedError as error:
    assert "TORCH_OCL_FALLBACK=1" in str(error) and "cpu_only" in str(error), error
else:
    raise AssertionError("nothing raised")
"""
    exit_code, output = run(CPU_OP + code)
    assert exit_code == 0, output


def test_what_is_said_of_quantised_tensors_is_so():
    code = """
import warnings
warnings.simplefilter("ignore")
x, scale, zero = torch.rand(3, device="ocl"), torch.ones(3, device="ocl"), torch.zeros(3).to("ocl")
host = torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.quint8)
for call in (
    lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
    lambda: torch.quantize_per_channel(x, scale, zero.long(), 0, torch.qint8),
    lambda: torch.quantize_per_tensor_dynamic(x, torch.quint8, False),
    lambda: torch.empty(3, dtype=torch.qint8, device="ocl"),
    lambda: host.to("ocl"),
):
    try:
        call()
    except NotImplementedError as error:
        assert "Quantise tensors there, after .cpu()" in str(error), error
        assert "FALLBACK" not in str(error), error
    else:
        raise AssertionError("nothing raised")
faked = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
assert torch.allclose(faked.cpu(), host.dequantize())
torch.fake_quantize_per_channel_affine(x, scale, zero.int(), 0, 0, 255)
"""
    for fallback in ("0", "1"):
        exit_code, output = run("import torch\n" + code, TORCH_OCL_FALLBACK=fallback)
        assert exit_code == 0, output


CACHE_CODE = """
import torch
x = torch.arange(9.0).to("ocl")
assert ((x * 3 + 1).cpu() == torch.arange(9.0) * 3 + 1).all()
"""


def test_corrupt_cache_files_are_rebuilt(tmp_path):
    assert run(CACHE_CODE, TORCH_OCL_CACHE="1", TORCH_OCL_CACHE_DIR=str(tmp_path))[0] == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(b"\x00garbage" * 10)
    exit_code, output = run(CACHE_CODE, TORCH_OCL_CACHE="1", TORCH_OCL_CACHE_DIR=str(tmp_path))
    assert exit_code == 0, output


def test_other_settings_of_the_compiler_make_other_binaries(tmp_path):
    def built(**settings):
        code = CACHE_CODE + "\nprint('built', torch.ocl.program_stats()['built'])"
        exit_code, output = run(
            code, TORCH_OCL_CACHE="1", TORCH_OCL_CACHE_DIR=str(tmp_path), **settings
        )
        assert exit_code == 0, output
        return int(output.split("built ")[1].split()[0])

    assert built() > 0
    assert built() == 0
    assert built(CL_CONFIG_CPU_VECTORIZER_MODE="1") > 0


def test_cache_folder_that_can_not_be_written(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    exit_code, output = run(
        CACHE_CODE, TORCH_OCL_CACHE="1", TORCH_OCL_CACHE_DIR=str(blocker / "below")
    )
    assert exit_code == 0, output
    assert output.count("cache") >= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.tensor([1j], device=d) < 1,
        lambda d: torch.tensor([1j], device=d) // 1,
        lambda d: torch.nn.functional.gelu(torch.ones(3, dtype=torch.int64, device=d)),
        lambda d: torch.ones(3, device=d) ^ torch.ones(3, device=d),
    ],
)
def test_dtype_an_op_does_not_have(call):
    for device in ("cpu", "ocl"):
        with pytest.raises((NotImplementedError, RuntimeError)) as raised:
            call(device)
        assert "not implemented for" in str(raised.value) or device == "cpu"


def test_scalars_past_the_range_of_float():
    x = torch.tensor([0.5, 2.0])
    assert torch.equal((x.to("ocl") ** 1e300).cpu(), x**1e300)
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError, match="overflow"):
            torch.empty(2, dtype=torch.float16, device=device).fill_(2.0**31)


def test_deterministic_fill_of_uninitialised_memory():
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device="ocl").isnan().all()
        assert (torch.empty_strided((2,), (1,), dtype=torch.int32, device="ocl") == 2**31 - 1).all()
        grown = torch.ones(2, device="ocl").resize_(4)
        assert grown[:2].eq(1).all() and grown[2:].isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_embedding_names_itself():
    weight = torch.ones(5, 2, device="ocl")
    with pytest.raises(IndexError, match="embedding.*99"):
        torch.nn.functional.embedding(torch.tensor([99], device="ocl"), weight)
        torch.ocl.synchronize()


def test_fallback_of_every_kind_of_op():
    code = """
convolve = torch._C._nn.slow_conv_transpose2d  # structured
image, weight = torch.ones(1, 1, 1, 1).to("ocl"), torch.ones(1, 1, 1, 3).to("ocl")
result = convolve(image, weight, (1, 3))
assert result.device.type == "ocl" and result.tolist() == [[[[1, 1, 1]]]]
out = torch.empty(1, 1, 1, 3, device="ocl")
convolve(image, weight, (1, 3), out=out)
assert out.tolist() == [[[[1, 1, 1]]]]
assert cpu_only(torch.tensor([0, 1, 1]).to("ocl")).tolist() == [1, 2, 2]
assert sum(torch.ocl.fallback_counts().values()) == 3, torch.ocl.fallback_counts()
"""
    exit_code, output = run(CPU_OP + code, TORCH_OCL_FALLBACK="1")
    assert exit_code == 0, output


def test_a_pointwise_kernel_that_does_not_build_says_why(tmp_path):
    """A mistake in a functor is no missing op: file, options and the driver's log are named."""
    folder = tmp_path / "kernels"
    shutil.copytree(KERNELS, folder)
    functors = folder / "pointwise" / "ops" / "arithmetic.clh"
    functors.write_text(
        functors.read_text() + "\n#undef op_add\n#define op_add(a, b, s) (a + nowhere)\n"
    )
    code = """
import torch
try:
    torch.ones(2, device="ocl") + torch.ones(2, device="ocl")
except RuntimeError as error:
    text = str(error)
    assert not isinstance(error, NotImplementedError), text
    assert "nowhere" in text and "pointwise/contiguous.cl" in text and "-DOP=op_add" in text, text
else:
    raise SystemExit("no error")
"""
    exit_code, output = run(code, TORCH_OCL_KERNEL_DIR=str(folder))
    assert exit_code == 0, output


def test_a_dtype_without_meaning_is_refused_without_building_again():
    x = torch.ones(2, device="ocl")
    built = []
    for _ in range(3):
        with pytest.raises(NotImplementedError, match="bitwise_and"):
            torch.bitwise_and(x, x)
        built.append(torch.ocl.program_stats()["built"])
    assert built[1] == built[2]


def test_exit_right_after_backward():
    code = """
import torch
x = torch.ones(6, device="ocl", requires_grad=True)
(x * 2).sum().backward()
"""
    for _ in range(3):
        exit_code, output = run(code)
        assert exit_code == 0, output


def test_negated_views_on_a_device_without_float64():
    """Converted on the host and counted, before they are negated there."""
    code = """
import torch
base = torch.zeros(3, dtype=torch.float64)
torch._neg_view(base).copy_(torch.tensor([1, 2, 255], dtype=torch.uint8, device="ocl"))
assert base.tolist() == [-1, -2, -255], base
assert torch.ocl.host_staged_counts() == {"copy_": 1}
"""
    code, output = run(code, TORCH_OCL_WITHOUT="fp64")
    assert code == 0, output


def test_memory_is_traced():
    script = (
        "import torch; x = torch.empty(32 << 20, dtype=torch.uint8, device='ocl'); del x;"
        "torch.ocl.empty_cache()"
    )
    code, output = run(script, TORCH_OCL_VERBOSE="memory")
    assert code == 0
    assert "memory: ocl:0: took a segment of 32 MiB, 32 MiB in all" in output
    assert "memory: ocl:0: gave back a segment of 32 MiB, 0 MiB in all" in output
