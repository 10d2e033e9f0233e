"""TORCH_OCL_AS_CUDA=1: a program's kernels for CUDA, written in Python, serve `ocl`."""

from tests.python.test_as_cuda import run

HEAD = """
import torch
from torch.library import Library, custom_op, impl, register_autocast, register_kernel

def on(t):
    return t.device.type + str(t.tolist())

c = torch.tensor([1.0], device="cuda")
h = torch.tensor([1.0])
"""
DEFINED = """
torch.library.define("u::f", "(Tensor x) -> Tensor")
"""
OF_BOTH = """
@custom_op("u::g", mutates_args=())
def g(x: torch.Tensor) -> torch.Tensor:
    return x + 1
"""
#: Each registers u::f, which adds 2, for CUDA alone.
ALONE = {
    "custom_op": """
@custom_op("u::f", mutates_args=(), device_types="cuda")
def f(x: torch.Tensor) -> torch.Tensor:
    return x + 2
""",
    "custom_op of several": """
@custom_op("u::f", mutates_args=(), device_types=["cuda", "xpu"])
def f(x: torch.Tensor) -> torch.Tensor:
    return x + 2
""",
    "impl": DEFINED
    + """
@impl("u::f", "cuda")
def f(x):
    return x + 2
""",
    "impl by key": DEFINED + 'impl("u::f", "CUDA", lambda x: x + 2)',
    "impl by name": DEFINED + 'impl("u::f", types=("cuda",), func=lambda x: x + 2)',
    "register_kernel": DEFINED + 'register_kernel("u::f", "cuda", lambda x: x + 2)',
    "Library.impl": """
library = Library("u", "DEF")
library.define("f(Tensor x) -> Tensor")
library.impl("f", lambda x: x + 2, "CUDA")
""",
    "Library.impl by name": """
library = Library("u", "FRAGMENT")
library.define("f(Tensor x) -> Tensor")
library.impl("f", lambda x: x + 2, dispatch_key="CUDA")
""",
    "Library": DEFINED
    + """
library = Library("u", "IMPL", "CUDA")
library.impl("f", lambda x: x + 2)
""",
    "impl of old": """
library = Library("u", "FRAGMENT")
library.define("f(Tensor x) -> Tensor")
@impl(library, "f", "CUDA")
def f(x):
    return x + 2
""",
}


def test_kernels_for_cuda_alone():
    code = HEAD
    for i, how in enumerate(ALONE.values()):
        # Nothing is registered for the CPU.
        code += f"""
{how.strip().replace('"u', f'"u{i}').replace("ops.u", f"ops.u{i}")}
try:
    print(on(torch.ops.u{i}.f(c)))
    torch.ops.u{i}.f(h)
except NotImplementedError:
    print("none")
"""
    assert run(code) == ["cuda[3.0]", "none"] * len(ALONE)


def test_kernels_for_cuda_beside_others():
    code = HEAD
    beside = (
        '@g.register_kernel("cuda")', '@register_kernel("u::g", "cuda")',
        '@register_kernel(g, ("xpu", "cuda"))',
    )  # fmt: skip
    for i, how in enumerate(beside):
        code += (
            OF_BOTH.replace("u::", f"u{i}::")
            + how.replace("u::", f"u{i}::")
            + """
def _(x):
    return x + 2

g.register_fake(torch.empty_like)
print(on(g(c)), on(g(h)), on(torch.compile(lambda x: g(x))(c)))
with g.set_kernel_enabled("cuda", enabled=False):
    print(on(g(c)))
"""
        )
    assert run(code) == ["cuda[3.0]", "cpu[2.0]", "cuda[3.0]", "cuda[2.0]"] * len(beside)


def test_autocast():
    code = HEAD
    for i, how in enumerate(('register_autocast("u::g", ', "g.register_autocast(")):
        code += (
            OF_BOTH.replace("u::", f"u{i}::")
            + how.replace("u::", f"u{i}::")
            + """\
"cuda", torch.float16)
with torch.autocast("cuda", dtype=torch.float16):
    print(g(c).dtype, g(h).dtype)
print(g(c).dtype)
"""
        )
    assert run(code) == ["torch.float16", "torch.float32", "torch.float32"] * 2


def test_a_gradient_for_cuda():
    code = (
        HEAD
        + """
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 5

library = Library("u", "DEF")
library.define("f(Tensor x) -> Tensor")
library.impl("f", F.apply, "AutogradCUDA")
x = c.clone().requires_grad_()
torch.ops.u.f(x).backward()
print(on(x.grad))
"""
    )
    assert run(code) == ["cuda[5.0]"]


def test_op_with_kernels_of_torch():
    """Libraries of torch's own register for CUDA and for PrivateUse1, one beside the other."""
    code = (
        HEAD
        + """
import torch.distributed.fsdp, torch.distributed._symmetric_memory, torch.nested
print(torch._C._dispatch_has_kernel_for_dispatch_key("fsdp::all_gather_copy_in", "PrivateUse1"))
"""
    )
    assert run(code) == ["True"]
