"""AOTInductor: packages of exported models, in this process, in others and without Python."""

import os
import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor.package import load_package
from torch.nn import functional

from tests.compile.test_networks import Language, vision
from tests.fresh import run_script
from torch_ocl import _loader
from torch_ocl.utils import cpp_extension

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "aoti"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """package(model, inputs, ...) of a model and its inputs on the CPU."""
    folder = tmp_path_factory.mktemp("packages")

    def package(model, inputs, dynamic_shapes=None):
        moved = tuple(x.to("ocl") for x in inputs)
        with torch.no_grad():
            exported = torch.export.export(model, moved, dynamic_shapes=dynamic_shapes)
        path = folder / f"{len(list(folder.iterdir()))}.pt2"
        return torch._inductor.aoti_compile_and_package(exported, package_path=str(path))

    return package


def rows(most=64):
    return torch.export.Dim("rows", min=2, max=most)


def linear(seed):
    torch.manual_seed(seed)
    return nn.Linear(12, 20).requires_grad_(False)


@pytest.fixture(scope="module")
def linear_package(package):
    return package(linear(0).to("ocl"), (torch.randn(3, 12),), ({0: rows()},))


@pytest.mark.slow
@pytest.mark.parametrize("network", [Language, vision], ids=["language", "vision"])
def test_networks_and_sizes(package, network):
    torch.manual_seed(0)
    model = network().eval()
    inputs = [
        torch.randint(0, 61, (n, 13)) if network is Language else torch.randn(n, 3, 10, 12)
        for n in (3, 2, 7)
    ]
    wanted = [model(x).detach() for x in inputs]
    loaded = torch._inductor.aoti_load_package(
        package(model.to("ocl"), inputs[:1], ({0: rows()},)),
    )
    for x, expected in zip(inputs, wanted, strict=True):
        found = loaded(x.to("ocl"))
        assert found.device.type == "ocl"
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


class Constants(nn.Module):
    """Parameters that lie in other ways, and a buffer that is written."""

    def __init__(self):
        super().__init__()
        self.turned = nn.Parameter(torch.randn(9, 12).t())
        self.halves = nn.Parameter(torch.randn(9).bfloat16())
        self.shared = torch.randn(40)
        self.part = nn.Parameter(self.shared[7:19])
        self.register_buffer("calls", torch.zeros(12))
        self.register_buffer("none", torch.zeros(0, 12))
        self.on_cpu = torch.arange(20.0)

    def forward(self, x):
        self.calls.add_(1)
        counted = torch.cat([self.none, x * self.calls])
        moved = self.on_cpu.to(x.device)[:12] + x.sum(0)
        return x @ self.turned + self.halves, counted, moved * self.part, self.part


def test_constants(package):
    torch.manual_seed(0)
    model, twin = Constants(), Constants()
    twin.load_state_dict(model.state_dict())
    x = torch.randn(4, 12)
    loaded = torch._inductor.aoti_load_package(package(twin.to("ocl"), (x,)))
    for _ in range(3):
        found = loaded(x.to("ocl"))
        assert {result.device.type for result in found} == {"ocl"}
        wanted = [result.detach() for result in model(x)]
        torch.testing.assert_close([result.cpu() for result in found], wanted)


def test_new_constants(linear_package):
    x = torch.randn(5, 12)
    loaded = torch._inductor.aoti_load_package(linear_package)
    torch.testing.assert_close(loaded(x.to("ocl")).cpu(), linear(0)(x))

    def check(weight, bias, **options):
        loaded.load_constants({"weight": weight, "bias": bias}, check_full_update=True, **options)
        wanted = functional.linear(x, weight.cpu(), bias.cpu())
        torch.testing.assert_close(loaded(x.to("ocl")).cpu(), wanted)

    other = linear(1)
    check(other.weight.to("ocl"), other.bias.to("ocl"))
    # Views of more than the model has room for.
    check(torch.randn(50, 12).to("ocl")[3:23], torch.randn(90).to("ocl")[70:])
    check(torch.randn(50, 12).to("ocl")[:20], torch.randn(20).to("ocl"), user_managed=True)
    check(torch.randn(20, 12), torch.randn(20), allow_h2d_copy=True)
    with pytest.raises(RuntimeError):
        check(torch.randn(20, 12), torch.randn(20))


class Ops(nn.Module):
    """Ops with kernels of their own, inputs that are written, numbers."""

    def forward(self, x, i):
        x.mul_(2)
        eye = torch.eye(x.shape[0], device=x.device)
        values, order = torch.sort(x)
        full = torch.full((2,), x.shape[0], device=x.device)
        triangle = torch.linalg.cholesky(x @ x.t() + 20 * eye)
        return triangle, values, order, x[i], full, x.index_put((i,), x[:2], accumulate=True)


def test_ops(package):
    i = torch.tensor([1, 2])
    path = package(Ops(), (torch.randn(6, 9), i), ({0: rows()}, None))
    loaded = torch._inductor.aoti_load_package(path)
    for count in (6, 17):
        x = torch.randn(count, 9)
        moved = x.to("ocl")
        found, wanted = loaded(moved, i.to("ocl")), Ops()(x, i)
        assert {result.device.type for result in found} == {"ocl"}
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(moved.cpu(), x)
    # Raised at a wait: the model's own, whose decomposition asks whether it was possible, in the
    # words of its loader, or the next one.
    with pytest.raises((RuntimeError, IndexError), match="index 99 is out of range"):
        loaded(moved, torch.tensor([1, 99]).to("ocl"))
        torch.ocl.synchronize()
    with pytest.raises(RuntimeError, match="expected a tensor on ocl, got one on cpu"):
        loaded(x, i.to("ocl"))


class Parts(nn.Module):
    """Branches, sizes from data, tensors on the CPU, random numbers, a fused network."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 12, batch_first=True)

    def forward(self, x, y):
        chosen = torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,))
        steps, _ = self.lstm(x.view(2, 3, 5))
        moved = x + y.sum().to(x.device)
        return chosen, (y * 3).sin(), x.cpu() + 1, moved, x[x > 0], steps, torch.rand_like(x)


@pytest.mark.slow
def test_parts_of_graphs(package, tmp_path):
    torch.manual_seed(0)
    model, twin = Parts().eval(), Parts().eval()
    twin.load_state_dict(model.state_dict())
    y = torch.randn(7)
    with torch.no_grad():
        exported = torch.export.export(twin.to("ocl"), (torch.randn(30).to("ocl"), y))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=f"{tmp_path}/m.pt2")
    loaded = torch._inductor.aoti_load_package(path)
    for x in (torch.randn(30) + 1, torch.randn(30) - 1):
        *found, random = loaded(x.to("ocl"), y)
        *wanted, _ = (result.detach() for result in model(x, y))
        assert [result.device.type for result in found] == ["ocl", "cpu", "cpu", *["ocl"] * 3]
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)
        assert random.min() >= 0 and random.max() < 1 and len(random.cpu().unique()) > 20


def test_flex_attention(package):
    from torch.nn.attention.flex_attention import flex_attention

    class Capped(nn.Module):
        def forward(self, q, k, v):
            return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: 9 * torch.tanh(s / 9))

    inputs = [torch.randn(1, 2, 40, 16) for _ in range(3)]
    loaded = torch._inductor.aoti_load_package(package(Capped(), inputs))
    found = loaded(*(x.to("ocl") for x in inputs)).cpu()
    torch.testing.assert_close(found, Capped()(*inputs), rtol=1e-4, atol=1e-5)


def test_weights_of_bytes(package):
    """Products read them as they lie, with batches of any size."""

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            weight = torch.arange(20 * 48).view(20, 48).char()
            self.register_buffer("weight", weight)
            self.register_buffer("scale", torch.linspace(0.01, 0.02, 20)[:, None])

        def forward(self, x):
            return torch.relu(x @ (self.weight.to(x.dtype) * self.scale).t())

    model, x = Quantised(), torch.randn(6, 48)
    shapes = {"x": {0: rows()}}
    loaded = torch._inductor.aoti_load_package(package(Quantised().to("ocl"), [x], shapes))
    for m in (6, 2, 33):
        x = torch.randn(m, 48)
        torch.testing.assert_close(loaded(x.to("ocl")).cpu(), model(x), rtol=1e-4, atol=1e-4)


def test_streams_and_threads(linear_package):
    loaded = load_package(linear_package, num_runners=2)
    x = torch.randn(40, 12)
    found = []

    def run():
        with torch.ocl.stream(torch.ocl.Stream()):
            found.extend(loaded(x.to("ocl")).cpu() for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 60
    for result in found:
        torch.testing.assert_close(result, linear(0)(x))


def test_another_process_and_device(linear_package):
    code = """
import sys
import torch
loaded = torch._inductor.aoti_load_package(sys.argv[1], device_index=1)
x = torch.linspace(-1, 1, 36).view(3, 12).to("ocl:1")
weight, bias = torch.ones(20, 12, device="ocl:1"), torch.ones(20, device="ocl:1")
for _ in range(2):
    result = loaded(x)
    assert result.device == x.device
    assert torch.ocl.current_device() == 0
    print(result.sum().item())
    loaded.load_constants({"weight": weight, "bias": bias}, check_full_update=True)
"""
    environment = {**os.environ, "TORCH_OCL_PARTITION": "2"}
    done = run_script(code, linear_package, environment=environment)
    first, second = map(float, done.stdout.split() or [done.stderr[-3000:]])
    x = torch.linspace(-1, 1, 36).view(3, 12)
    torch.testing.assert_close(first, linear(0)(x).sum().item(), rtol=1e-4, atol=1e-4)
    ones = functional.linear(x, torch.ones(20, 12), torch.ones(20)).sum().item()
    torch.testing.assert_close(second, ones, rtol=1e-4, atol=1e-4)
    assert "outdated" not in done.stderr


@pytest.mark.slow
def test_a_program_without_python(package, tmp_path):
    """The example, built by CMake. Its input is known: results must be the same."""
    example = runpy.run_path(str(EXAMPLE / "export_model.py"))
    model = example["network"]().eval()
    path = package(example["network"]().eval().to("ocl"), (torch.randn(8, 16),), ({0: rows()},))
    tools = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    if icds := _loader.find_icd_files():
        environment["OCL_ICD_FILENAMES"] = ":".join(icds)

    def run(*command):
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    prefix = cpp_extension.cmake_prefix_path
    run(
        *("cmake", "-S", EXAMPLE, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"),
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    run("cmake", "--build", tmp_path)
    linked = run("ldd", tmp_path / "run_model")
    assert "libtorch_ocl" in linked and "libpython" not in linked
    for count in (3, 9):
        output = run(tmp_path / "run_model", path, count)
        assert f"output [{count}, 4] on ocl:0" in output
        numbers = [float(x) for x in re.findall(r"^ *([\d.e-]+)$", output, re.M)]
        x = torch.linspace(-1, 1, count * 16).view(count, 16)
        torch.testing.assert_close(
            torch.tensor(numbers), model(x).detach().view(-1), rtol=1e-3, atol=1e-4
        )
    failed = subprocess.run(
        [tmp_path / "run_model", tmp_path / "none.pt2"], capture_output=True, env=environment
    )
    assert failed.returncode == 1
