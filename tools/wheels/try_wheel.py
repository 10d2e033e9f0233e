"""Tries a wheel in an environment that has nothing else: it is imported, trains a small network,
compiles one, and passes some hundred tests. The environment gets the torch that the wheel asks for.

    python tools/wheels/try_wheel.py dist/torch_ocl-0.1.0+torch2.15-cp313-cp313-linux_x86_64.whl

The device is PoCL's unless TORCH_OCL_DEVICES names another. The interpreter is that of the wheel's
version; --environment names one with torch in it, which then gets the wheel alone.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from contents import problems_of  # noqa: E402

from build import INDEX, ROOT, find_python  # noqa: E402

#: With what they need: they take two minutes of two cores.
TESTS = ("ops/test_binary.py", "ops/test_cat.py", "python/test_device_module.py")
NEEDED = ("pytest", "expecttest", "numpy", "packaging", "pyyaml")

IMPORT = """
import torch
print(torch.__version__, torch.ocl.get_device_name(), torch.ocl.unavailable_reason())
print(torch.ones(3, device="ocl").sum().item())
"""
#: Convolution, batch norm, pooling, product, loss, optimizer, and a reload.
SMOKE = """
import io, torch
from torch import nn
torch.manual_seed(0)
def network():
    head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*head, nn.Flatten(), nn.Linear(8 * 64, 10)).to("ocl")
model, x = network(), torch.randn(16, 3, 16, 16, device="ocl")
target, losses = torch.randint(10, (16,), device="ocl"), []
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < 0.2 * losses[0], losses
kept = io.BytesIO()
torch.save(model.state_dict(), kept), kept.seek(0)
other = network()
other.load_state_dict(torch.load(kept))
torch.testing.assert_close(other.eval()(x), model.eval()(x))
print(f"a loss of {losses[0]:.2f} became {losses[-1]:.2f}")
"""
#: Each torch has other interfaces that torch.compile's backend is written against. In a file, since
#: Dynamo reads sources.
COMPILED = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, 10)
).to("ocl")
compiled = torch.compile(model, fullgraph=True)
for rows in (4, 7):  # the second size makes it dynamic
    x = torch.randn(rows, 3, 8, 8, device="ocl")
    results = []
    for call in (model, compiled):
        loss = nn.functional.cross_entropy(call(x), torch.arange(rows, device="ocl"))
        results.append([loss.detach(), *torch.autograd.grad(loss, [*model.parameters()])])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
print("compiled: loss and gradients are eager's")
"""


def run(*command, folder=None, **environment):
    print("+", *(str(word).split("\n")[0] or "..." for word in command), flush=True)
    command = [str(word) for word in command]
    subprocess.run(command, check=True, cwd=folder, env={**os.environ, **environment})


def make_environment(wheel, folder):
    """A virtual environment with the wheel and its torch, and the path of its Python."""
    tag = wheel.name.split("-")[2]
    python = find_python(f"{tag[2]}.{tag[3:]}")
    if python is None:
        sys.exit(f"There is no Python for {tag} here")
    run(python, "-m", "venv", folder)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q"]
    # PyTorch's index first, or PyPI's build with CUDA would come.
    series = wheel.name.split("+torch")[1].split("-")[0]
    index = ["--index-url", INDEX, "--extra-index-url", "https://pypi.org/simple"]
    run(*pip, f"torch=={series}.*", *index)
    run(*pip, wheel)
    return folder / "bin" / "python"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--environment", type=Path, help="a Python that has torch")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    if wrong := problems_of(wheel):
        sys.exit(f"{wheel.name}: {'; '.join(wrong)}")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        python = options.environment
        if python is None:
            python = make_environment(wheel, work / "venv")
        else:
            run(python, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", wheel)
        run(python, "-m", "pip", "install", "-q", *NEEDED)
        # Beside the sources the package would be theirs.
        shutil.copytree(ROOT / "tests", work / "tests")
        shutil.copy(ROOT / "pyproject.toml", work)
        device = os.environ.get("TORCH_OCL_DEVICES") or "portable"
        settings = {"TORCH_OCL_DEVICES": device, "TORCH_OCL_AUTOLOAD": "always"}
        for code in (IMPORT, SMOKE):
            run(python, "-c", code, folder=work, **settings)
        (work / "compiled.py").write_text(COMPILED)
        run(python, "compiled.py", folder=work, **settings)
        run(python, "-m", "torch_ocl", folder=work, **settings)
        tests = [f"tests/{name}" for name in TESTS]
        run(python, "-m", "pytest", "-q", *tests, folder=work, **settings)
    print(f"{wheel.name} works")


if __name__ == "__main__":
    main()
