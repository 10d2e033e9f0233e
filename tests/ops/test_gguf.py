"""torch_ocl::gguf_*, the ops on blocks of GGUF files, against the package gguf's own numbers."""

import pytest
import torch
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu
from tests.gguf_files import FORMATS, blocks, numbers
from torch_ocl import gguf  # noqa: F401

OPS = torch.ops.torch_ocl
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def matrix(name, n, k):
    """Blocks on the device, and their numbers in double."""
    made = blocks(name, n, k, n)
    return torch.from_numpy(made).to("ocl"), numbers(name, made)


def near(found, exact, dtype, scale=None):
    """Within a rounding of the dtype and what sums in float32 lose."""
    assert found.dtype == dtype and found.device.type == "ocl" and found.shape == exact.shape
    largest = exact.abs().max() if scale is None else scale
    allowed = torch.finfo(dtype).eps * exact.abs() + 4e-6 * largest
    assert ((found.cpu().double() - exact).abs() <= allowed).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("name", FORMATS)
def test_dequantize(name, count, dtype):
    for n in (1, 5):
        bits, exact = matrix(name, n, count * FORMATS[name][0])
        found = OPS.gguf_dequantize(bits, name, dtype)
        near(found, exact, dtype)
        as_one = OPS.gguf_dequantize(bits.view(1, n, -1), name, dtype)
        assert torch.equal(as_one[0].cpu(), found.cpu())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 33])
@pytest.mark.parametrize("name", FORMATS)
def test_linear(name, rows, dtype):
    torch.manual_seed(rows)
    for n, count in ((37, 1), (3, 3), (70, 5)):
        k = count * FORMATS[name][0]
        bits, exact = matrix(name, n, k)
        x, bias = torch.randn(rows, k).to(dtype), torch.randn(n).to(dtype)
        # Numbers that are in memory are rounded, too.
        weights = exact if rows <= 8 else exact.float().to(dtype).double()
        wanted = x.double() @ weights.t()
        near(OPS.gguf_linear(x.to("ocl"), bits, name, None), wanted, dtype)
        found = OPS.gguf_linear(x.to("ocl")[None], bits, name, bias.to("ocl"))
        near(found[0], wanted + bias.double(), dtype, wanted.abs().max())


@pytest.mark.parametrize("rows", [3, 9])
def test_operands_that_begin_anywhere(rows):
    bits, exact = matrix("Q4_K", 6, 512)
    x = torch.randn(2 * rows, 513)
    part = x.to("ocl")[::2, 1:]
    wanted = x[::2, 1:].double() @ exact.t()
    near(OPS.gguf_linear(part, bits, "Q4_K", None), wanted, torch.float32)
    turned = x[::2, 1:].t().contiguous().to("ocl").t()
    near(OPS.gguf_linear(turned, bits, "Q4_K", None), wanted, torch.float32)
    store = torch.zeros(bits.numel() + 1, dtype=torch.uint8, device="ocl")
    moved = store[1:].view(bits.shape).copy_(bits)
    near(OPS.gguf_linear(part, moved, "Q4_K", None), wanted, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("name", FORMATS)
def test_gradient(name, rows, dtype):
    torch.manual_seed(rows)
    bits, exact = matrix(name, 35, 2 * FORMATS[name][0])
    grad = torch.randn(rows, 35).to(dtype)
    found = OPS.gguf_linear_gradient(grad.to("ocl"), bits, name)
    near(found, grad.double() @ exact.float().to(dtype).double(), dtype)


def test_a_matrix_that_is_unpacked_in_parts():
    """2^24 numbers are in memory at a time."""
    bits, exact = matrix("Q4_0", 530, 32768)
    x, grad = torch.randn(9, 32768), torch.randn(9, 530)
    bias = torch.randn(530)
    found = OPS.gguf_linear(x.to("ocl"), bits, "Q4_0", bias.to("ocl"))
    near(found, x.double() @ exact.t() + bias.double(), torch.float32)
    found = OPS.gguf_linear_gradient(grad.to("ocl"), bits, "Q4_0")
    near(found, grad.double() @ exact, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_embedding(name, dtype):
    bits, exact = matrix(name, 11, 3 * FORMATS[name][0])
    for indices in (torch.tensor([[0, 10, 3], [3, 3, 1]]), torch.tensor(7, dtype=torch.int32)):
        found = OPS.gguf_embedding(bits, indices.to("ocl"), name, dtype)
        near(found, exact[indices.long()], dtype)


@pytest.mark.parametrize("index", [11, -1])
def test_an_index_out_of_range(index):
    bits, _ = matrix("Q8_0", 11, 32)
    OPS.gguf_embedding(bits, torch.tensor([0, index], device="ocl"), "Q8_0", torch.float32)
    with pytest.raises(IndexError, match=f"index {index} is out of range"):
        torch.ocl.synchronize()


def test_nothing():
    bits, _ = matrix("Q6_K", 5, 256)
    none = torch.empty(0, 256, device="ocl")
    assert OPS.gguf_linear(none, bits, "Q6_K", None).shape == (0, 5)
    assert OPS.gguf_linear(none[None], bits, "Q6_K", None).shape == (1, 0, 5)
    assert OPS.gguf_linear_gradient(none[:, :5], bits, "Q6_K").shape == (0, 256)
    assert OPS.gguf_linear(torch.ones(2, 256, device="ocl"), bits[:0], "Q6_K", None).shape == (2, 0)
    empty = OPS.gguf_linear_gradient(torch.ones(2, 0, device="ocl"), bits[:0], "Q6_K")
    assert empty.shape == (2, 256) and not empty.any()
    assert OPS.gguf_dequantize(bits[:0], "Q6_K", torch.half).shape == (0, 256)
    indices = torch.empty(2, 0, dtype=torch.long, device="ocl")
    assert OPS.gguf_embedding(bits, indices, "Q6_K", torch.half).shape == (2, 0, 256)
    no_features = OPS.gguf_linear(none[:0, :0].view(0, 0), bits[:, :0], "Q6_K", None)
    assert no_features.shape == (0, 5)


def test_what_is_refused():
    bits, _ = matrix("Q8_0", 4, 64)
    x = torch.ones(2, 64, device="ocl")
    for match, call in (
        ("Q2_K", lambda: OPS.gguf_dequantize(bits, "Q2_K", torch.float32)),
        ("multiple of 34 bytes", lambda: OPS.gguf_linear(x, bits[:, 1:], "Q8_0", None)),
        ("as bytes", lambda: OPS.gguf_linear(x, bits.char(), "Q8_0", None)),
        ("expected float32", lambda: OPS.gguf_dequantize(bits, "Q8_0", torch.double)),
        ("expected float32", lambda: OPS.gguf_linear(x.double(), bits, "Q8_0", None)),
        ("64 features", lambda: OPS.gguf_linear(x[:, 1:], bits, "Q8_0", None)),
        ("4 features", lambda: OPS.gguf_linear_gradient(x, bits, "Q8_0")),
        ("bias of 4", lambda: OPS.gguf_linear(x, bits, "Q8_0", x[0])),
        ("bias of 4", lambda: OPS.gguf_linear(x, bits, "Q8_0", x[0, :4].half())),
        ("2 dimensions", lambda: OPS.gguf_linear(x, bits[None], "Q8_0", None)),
        ("int64 or int32", lambda: OPS.gguf_embedding(bits, x, "Q8_0", torch.float32)),
    ):
        with pytest.raises(RuntimeError, match=match):
            call()


@pytest.mark.parametrize("rows", [1, 9])
def test_ops_as_pytorch_checks_them(rows):
    """Their schemas, what traces them and what differentiates them."""
    bits, _ = matrix("Q5_K", 6, 512)
    x = torch.randn(rows, 512, device="ocl", requires_grad=True)
    bias = torch.randn(6, device="ocl", requires_grad=True)
    indices = torch.tensor([3], device="ocl")
    # A fourth of its checks knows three kinds of devices.
    kinds = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    for op, operands in (
        (OPS.gguf_linear, (x, bits, "Q5_K", bias)),
        (OPS.gguf_linear_gradient, (x[:, :6].detach(), bits, "Q5_K")),
        (OPS.gguf_dequantize, (bits, "Q5_K", torch.bfloat16)),
        (OPS.gguf_embedding, (bits, indices, "Q5_K", torch.half)),
    ):
        torch.library.opcheck(op.default, operands, test_utils=kinds)


def test_the_same_numbers_on_the_cpu():
    bits, exact = matrix("Q4_K", 6, 512)
    x, indices = torch.randn(3, 512), torch.tensor([[5], [0]])
    on_cpu = OPS.gguf_linear(x, bits.cpu(), "Q4_K", None)
    assert_close(on_cpu.double(), x.double() @ exact.t(), rtol=1e-5, atol=1e-4)
    rows = OPS.gguf_embedding(bits.cpu(), indices, "Q4_K", torch.float32)
    assert torch.equal(rows.double(), exact[indices])
    back = OPS.gguf_linear_gradient(on_cpu, bits.cpu(), "Q4_K")
    assert_close(back.double(), on_cpu.double() @ exact, rtol=1e-5, atol=1e-3)


@pytest.mark.slow
@pytest.mark.as_gpu
def test_kernels_for_gpus():
    run_as_gpu(__file__, "-k", "dequantize or linear or gradient or embedding or anywhere")
