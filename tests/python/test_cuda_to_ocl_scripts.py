"""TorchScript where "cuda" means `ocl`: what a script is told of devices, and what it may name."""

from tests import fresh

#: TorchScript reads the source of what it compiles, so this is a file.
MODULE = """
import torch

def is_cuda(x):
    return x.is_cuda

def branch(x):
    if x.device.type == "cuda":
        return x + 1
    return x - 1

def texts(x):
    return str(x.device), f"{x.device}", "{} {}".format(1, x.device), x.device.type

def made(x):
    a = torch.ones(2, device="cuda") + torch.zeros(2, device=torch.device("cuda:0"))
    b = torch.tensor([1.0, 2.0], device="cuda") + x.new_zeros(2, device="cuda")
    return a + b + torch.empty_like(x, device=torch.device("cuda", 0)).zero_()

def moved(x, name: str):
    return x.cuda() + x.to("cuda") + x.to(name)

def same(x):
    return x.device == torch.device("cuda:0") and x.device != torch.device("cpu")

def mixed(x):
    with torch.autocast("cuda"):
        y = x @ x
    with torch.autocast("cuda", dtype=torch.bfloat16):
        z = x @ x
    return y, z, torch.is_autocast_enabled()

def functions():
    torch.cuda.synchronize()
    return torch.cuda.device_count(), torch.cuda.current_device()

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.device = torch.device("cuda")

    def is_there(self, x):
        return x.is_cuda

    def forward(self, x):
        if self.is_there(x):
            return self.layer(x.to(self.device)), f"{x.device}"
        return x, "no"
"""


def run(folder, code):
    (folder / "scripts.py").write_text(MODULE)
    head = "import torch, torch_ocl\ntorch_ocl.cuda_to_ocl()\nimport scripts\n"
    done = fresh.run_script(head + code, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]


def test_scripts(tmp_path):
    run(
        tmp_path,
        """
x = torch.ones(2, device="cuda")
for _ in range(3):  # the interpreter optimises a function after its first calls
    for name in ("is_cuda", "branch", "texts", "made", "same"):
        function = getattr(scripts, name)
        scripted = torch.jit.script(function)
        for _ in range(3):
            found, wanted = scripted(x), function(x)
            same = torch.equal(found, wanted) if name in ("made", "branch") else found == wanted
            assert same, (name, found, wanted)
assert not torch.jit.script(scripts.is_cuda)(x.cpu())
moved = torch.jit.script(scripts.moved)(x.cpu(), "cuda:0")
assert moved.is_cuda and moved.tolist() == [3, 3]
y = torch.ones(4, 4, device="cuda")
half, bfloat16, enabled = torch.jit.script(scripts.mixed)(y)
assert (half.dtype, bfloat16.dtype, enabled) == (torch.half, torch.bfloat16, False)
with torch.autocast("cuda"):
    assert torch.jit.script(scripts.mixed)(y)[2]
assert torch.jit.script(scripts.functions)() == (torch.cuda.device_count(), 0)
unit = torch.jit.CompilationUnit("def f(x):\\n  return x.is_cuda\\n")
assert unit.f(x) and not unit.f(x.cpu())
""",
    )


def test_files_and_traces(tmp_path):
    """A saved script has no operator of this package's: any PyTorch loads it."""
    run(
        tmp_path,
        """
x = torch.ones(1, 2, device="cuda")
module = torch.jit.script(scripts.Module())
module.save("script.pt")
for place in ("cuda", "cuda:0", torch.device("cuda")):
    loaded = torch.jit.load("script.pt", map_location=place)
    assert next(loaded.parameters()).is_cuda and loaded(x)[1] == "cuda:0", place
    assert loaded(x.cpu())[1] == "no"
assert "ocl" not in loaded.code
frozen = torch.jit.freeze(loaded.eval())
assert all(frozen(x)[1] == "cuda:0" for _ in range(4))
traced = torch.jit.trace(lambda x: x.cuda() + torch.ones(2, device="cuda"), x)
assert traced(x.cpu()).is_cuda and traced(x).tolist() == [[2, 2]]
""",
    )
