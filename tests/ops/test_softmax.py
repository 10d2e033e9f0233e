"""softmax and log_softmax against CPU torch, forward and backward."""

import pytest
import torch
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [(7,), (3, 5), (4, 33, 70), (2, 3, 1000), (300, 2), (5, 16, 4, 17), (1, 1), (9, 100000)]
OPS = [torch.softmax, torch.log_softmax]
# exp and log are within a few ulps. The gradient is computed from the rounded result, so half an
# ulp of error there comes back multiplied by the sum of the gradients.
FORWARD = {torch.float32: {"rtol": 1e-5, "atol": 1e-6}}
BACKWARD = {
    torch.float32: {"rtol": 1e-4, "atol": 2e-4},
    torch.float16: {"rtol": 2e-2, "atol": 2e-2},
    torch.bfloat16: {"rtol": 5e-2, "atol": 2e-1},
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward(op, dtype, shape):
    """CPU torch computes the reference in double: its float result is off by 1e-5 in long rows."""
    x = (torch.randn(shape) * 4).to(dtype)
    for dim in (*range(len(shape)), -1):
        a = x.to(torch.float64, copy=True).requires_grad_()
        b = x.to("ocl").requires_grad_()
        expected, actual = op(a, dim), op(b, dim)
        assert_close(actual.cpu(), expected.to(dtype), **FORWARD.get(dtype, {}))
        grad = torch.randn(shape).to(dtype)
        expected.backward(grad.double())
        actual.backward(grad.to("ocl"))
        assert_close(b.grad.cpu(), a.grad.to(dtype), **BACKWARD.get(dtype, {}))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_rows_around_the_scratch_memory(op, dtype):
    """Up to 16 KiB of a row's exponentials stay in local memory on CPUs."""
    for length in (2047, 2048, 2049, 4095, 4096, 4097):
        x = (torch.randn(5, length) * 4).to(dtype)
        expected = op(x.double(), 1).to(dtype)
        assert_close(op(x.to("ocl"), 1).cpu(), expected, **FORWARD.get(dtype, {}))


# Rows of whole vectors, odd and even numbers of them, and not; past what is kept of a row, too.
LARGE = [(torch.float32, n) for n in (1000, 1008, 1024, 2048, 2064, 8192)]
LARGE += [(torch.float64, 24), (torch.float64, 1024), (torch.float16, 768)]
LARGE += [(torch.bfloat16, n) for n in (48, 1024, 1056)]


def large(dtype, length):
    """Rows that are, with as many results, more than the caches hold, and one of zeros, one that
    has a NaN, one an infinity."""
    x = torch.randn(40 * 2**20 // dtype.itemsize // length, length)
    x[0], x[1, 7], x[2, 9] = 0, torch.nan, torch.inf
    return x.to(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype,length", LARGE, ids=str)
def test_results_larger_than_the_caches(op, dtype, length):
    """They are stored past them, where rows are whole vectors."""
    x = large(dtype, length)
    here = x.to("ocl").requires_grad_()
    there = x.to(torch.float64, copy=True).requires_grad_()
    results = [op(here, 1), op(there, 1)]
    expected = results[1].detach().to(dtype)
    near = FORWARD.get(dtype, {})
    assert_close(results[0].detach().cpu(), expected, equal_nan=True, **near)
    grad = torch.randn_like(x)
    results[0].backward(grad.to("ocl"))
    results[1].backward(grad.double())
    near = BACKWARD.get(dtype, {})
    assert_close(here.grad.cpu(), there.grad.to(dtype), equal_nan=True, **near)


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_gradient_in_place_of_its_operand(name):
    backward = getattr(torch.ops.aten, f"{name}_backward_data")
    # At most 0: an exponential above 1 would scale the sum's error by as much.
    y, grad = -torch.randn(4000, 1024).abs(), torch.randn(4000, 1024)
    expected = backward(grad, y, 1, torch.float32)
    actual = grad.to("ocl")
    result = {"out" if name == "_log_softmax" else "grad_input": actual}
    backward.out(actual, y.to("ocl"), 1, torch.float32, **result)
    assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-3)


def test_gradient_of_any_numbers():
    """Not only of results, which are at most 0: exponentials down to nothing and up to infinity."""
    backward = torch.ops.aten._log_softmax_backward_data
    for rows, dtype in ((3, torch.float32), (4000, torch.float32), (8000, torch.bfloat16)):
        y = torch.linspace(-110, 95, 1024).repeat(rows, 1).to(dtype)
        grad = torch.full_like(y, 0.5)
        actual = backward(grad.to("ocl"), y.to("ocl"), 1, dtype).cpu()
        expected = backward(grad.double(), y.double(), 1, torch.float64)
        near = 2e-2 if dtype == torch.bfloat16 else 1e-5
        assert_close(actual, expected.to(dtype), rtol=near, atol=1e-5)


@pytest.mark.parametrize("op", OPS)
def test_layouts(op):
    x = torch.randn(6, 20, 34)
    d = x.to("ocl")
    for view in (
        lambda t: t.transpose(0, 2),
        lambda t: t[:, ::2],
        lambda t: t[1:, 1:, 1:],
        lambda t: t[:1].expand(4, -1, -1),
    ):
        for dim in (0, 1, 2):
            assert_close(op(view(d), dim).cpu(), op(view(x), dim))


@pytest.mark.parametrize("op", OPS)
def test_special_values(op):
    nan, inf = float("nan"), float("inf")
    x = torch.randn(6, 40)
    x[0, 3] = nan
    x[1, 5] = inf
    x[2, 7] = -inf
    x[3] = -inf
    x[4] = 1e30
    x[5] = nan
    for dim in (0, 1):
        assert_close(op(x.to("ocl"), dim).cpu(), op(x, dim), equal_nan=True)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("place", [3, 50000])
def test_special_values_of_long_rows(op, place):
    """Registers of a GPU's work-group hold the beginning of such a row."""
    x = torch.randn(8, 50257)
    x[0, place], x[1, place], x[2, place] = torch.nan, torch.inf, -torch.inf
    x[3], x[4, place] = -torch.inf, 1e30
    x[5, :45000], x[6, 20000:], x[7] = -torch.inf, -torch.inf, -torch.inf
    x[7, place] = -3e38
    here, there = x.to("ocl").requires_grad_(), x.double().requires_grad_()
    results = op(here, 1), op(there, 1)
    assert_close(results[0].cpu(), results[1].float(), equal_nan=True, **FORWARD[torch.float32])
    grad = torch.randn_like(x)
    results[0].backward(grad.to("ocl"))
    results[1].backward(grad.double())
    expected = there.grad.float()
    assert_close(here.grad.cpu(), expected, equal_nan=True, **BACKWARD[torch.float32])


# The payload of a NaN may not make a number of it: memory filled with ones is such a NaN.
PAYLOADS = [0x7FC00001, 0x7F800001, 0x7FC000FF, 0x7FFFFFFF, -1, -0x400000]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("bits", PAYLOADS)
def test_any_nan(op, bits):
    x = torch.randn(5, 40)
    x.view(torch.int32)[2, 7] = bits
    for dim in (0, 1):
        assert_close(op(x.to("ocl"), dim).cpu(), op(x, dim), equal_nan=True)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("first", [0, 8, 32])
@pytest.mark.parametrize("length", [32, 96, 1056, 4096])
def test_rows_of_bfloat16(op, first, length):
    """CPUs take two elements of a word at a time, where rows are whole words of 64 bytes."""
    bits = (torch.randn(300 * length + first) * 4).bfloat16()
    bits.view(torch.int16)[first + length + 5] = -1  # a NaN
    bits[first + 2 * length : first + 3 * length : 3] = -float("inf")
    x = bits[first:].view(300, length)
    actual = op(bits.to("ocl")[first:].view(300, length), 1)
    assert_close(actual.cpu(), op(x.double(), 1).bfloat16(), equal_nan=True)


@pytest.mark.parametrize("first", [0, 1])
def test_exact_differences_of_bfloat16(first):
    """Beside a dominant element log_softmax is a difference, rounded as ever."""
    bits = torch.zeros(64 * 256 + first).bfloat16()
    x = bits[first:].view(64, 256)
    x.copy_(torch.randint(-255, 256, (64, 256)) / 2)
    x[:, 0] = 256
    assert torch.equal(bits.to("ocl")[first:].view(64, 256).log_softmax(1).cpu(), x.log_softmax(1))


@pytest.mark.parametrize("dim", [0, 1])
def test_exponentials_down_to_nothing(dim):
    """Shares of every size that a float has, each to a few ulps; smaller ones may be 0."""
    x = torch.linspace(0, -110, 4001).expand(3, -1).contiguous()
    x = x if dim == 1 else x.t().contiguous()
    expected = torch.softmax(x.double(), dim)
    actual = torch.softmax(x.to("ocl"), dim).cpu().double()
    normal = expected > 2 * torch.finfo(torch.float32).tiny
    assert ((actual - expected)[normal] / expected[normal]).abs().max() < 4 * 2**-23
    assert (actual[~normal] <= 3 * torch.finfo(torch.float32).tiny).all()


@pytest.mark.parametrize("op", OPS)
def test_empty_and_scalar(op):
    for x in (
        torch.empty(0),
        torch.empty(3, 0),
        torch.empty(0, 3),
        torch.tensor(2.0),
        torch.empty(0, 3, dtype=torch.int64),
    ):
        for dim in range(-1, max(1, x.dim())):
            assert_close(op(x.to("ocl"), dim).cpu(), op(x, dim))


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_to_float(name, dtype):
    x = torch.randn(5, 30).to(dtype)
    for dim in (0, 1):
        actual = getattr(torch, name)(x.to("ocl"), dim, True).cpu()
        assert actual.dtype == torch.float32
        assert_close(actual, getattr(torch, name)(x.float(), dim, False))
        result = actual.to("ocl")
        grad = torch.randn(5, 30)
        backward = getattr(torch.ops.aten, f"{name}_backward_data")
        assert_close(
            backward(grad.to("ocl"), result, dim, dtype).cpu(),
            # Upstream gives a gradient in half only, not in bfloat16.
            backward(grad, actual, dim, torch.float32).to(
                dtype if dtype == torch.float16 else torch.float32
            ),
            rtol=1e-2,
            atol=1e-2,
        )


@pytest.mark.parametrize("op", OPS)
def test_dtype_argument_and_out(op):
    x = torch.randn(4, 9)
    assert_close(op(x.to("ocl"), 1, dtype=torch.float64).cpu(), op(x, 1, dtype=torch.float64))
    assert_close(
        op(x.to("ocl").int(), 1, dtype=torch.float32).cpu(), op(x.int(), 1, dtype=torch.float32)
    )
    out = torch.empty(9, 4, device="ocl").t()
    op(x.to("ocl"), 1, out=out)
    assert_close(out.cpu(), op(x, 1))
    inplace = x.to("ocl")
    op(inplace, 1, out=inplace)
    assert_close(inplace.cpu(), op(x, 1))


@pytest.mark.parametrize("op", OPS)
def test_errors(op):
    for device in ("cpu", "ocl"):
        with pytest.raises(IndexError):
            op(torch.ones(2, 3, device=device), 2)
        with pytest.raises(NotImplementedError):
            op(torch.ones(2, 3, dtype=torch.int32, device=device), 1)


@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)
