"""TORCH_OCL_AS_CUDA=1: the default tensor type is the process's, as on CUDA."""

from tests.python.test_as_cuda import run

SET = 'import threading, torch\ntorch.set_default_tensor_type("torch.cuda.FloatTensor")\n'


def test_the_default_tensor_type():
    code = """
    import torch
    torch.set_default_tensor_type("torch.cuda.FloatTensor")
    print(torch.Tensor([1.0]).is_cuda, torch.Tensor(2, 3).is_cuda, torch.Tensor([1.0]).tolist())
    print(torch.zeros(2).is_cuda, torch.tensor([1.0]).is_cuda, torch.Tensor(2, 3).numel() == 6)
    print(torch.nn.Parameter(torch.ones(2)).is_cuda, torch.cuda.FloatTensor([1.0]).is_cuda)
    torch.set_default_tensor_type(torch.cuda.HalfTensor)
    print(torch.Tensor([1.0]).dtype, torch.Tensor().numel())
    torch.set_default_tensor_type("torch.FloatTensor")
    print(torch.Tensor([1.0]).is_cuda, torch.zeros(2).is_cuda, torch.Tensor([1.0]).dtype)
    """
    assert run(code) == (
        "True True [1.0] True True True True True torch.float16 0 False False torch.float32".split()
    )


#: Each of these makes a tensor of the default type.
MADE = [
    "torch.normal(0.0, 1.0, (2,))",
    "torch.range(0, 1)",
    "torch.empty(2).normal_()",
    "torch.arange(2.0)",
    "torch.linspace(0, 1, 2)",
    "torch.bartlett_window(2)",
    "torch.Tensor([1.0, 2.0])",
    'type("S", (torch.Tensor,), {})([1.0, 2.0])',
    "torch.as_tensor([1.0, 2.0])",
    "torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,)).to_dense()",
    "torch.tril_indices(1, 1)[0]",
    "torch.nn.Linear(2, 2).bias",
    "torch.compile(lambda: torch.zeros(2) + 1)()",
    "torch.compile(lambda: torch.normal(0.0, 1.0, (2,)))()",
    "torch.compile(lambda: torch.Tensor([1.0]) + 1)()",
    "torch.randn(2)",
]


def test_what_makes_tensors():
    code = SET + "".join(f"print(({made}).is_cuda)\n" for made in MADE)
    assert run(code) == ["True"] * len(MADE)


def test_other_threads():
    code = (
        SET
        + """
def make(out):
    out.append(torch.zeros(1).is_cuda)

class Give(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, g):
        make(out)
        return g

out = []
thread = threading.Thread(target=make, args=(out,))
thread.start()
thread.join()
Give.apply(torch.ones(1, requires_grad=True)).backward()
torch.set_default_tensor_type(torch.FloatTensor)
thread = threading.Thread(target=make, args=(out,))
thread.start()
thread.join()
print(*out)
"""
    )
    assert run(code) == ["True", "True", "False"]


def test_what_stays():
    """The default device is another thing, and types without numbers of floats are refused."""
    code = (
        SET
        + """
print(torch.FloatTensor([1.0]).is_cuda, torch.zeros(1, device="cpu").is_cuda, str(torch.ones(1)))
print(torch.get_default_dtype(), torch.Storage.__name__, isinstance(torch.ones(1), torch.Tensor))
for kind in ("torch.cuda.LongTensor", torch.cuda.BoolTensor):
    try:
        torch.set_default_tensor_type(kind)
    except TypeError as error:
        print("only floating-point types are supported" in str(error), torch.ones(1).is_cuda)
"""
    )
    assert run(code) == (
        "False False tensor([1.]) torch.float32 FloatStorage True True True True True".split()
    )
