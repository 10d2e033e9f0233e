"""logsumexp against CPU torch's in float64: dtypes, dimensions, layouts, infinities."""

import itertools

import pytest
import torch

from tests.as_gpu import run_as_gpu

INF, NAN = float("inf"), float("nan")
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SHAPES = [(), (1,), (5,), (3, 100), (7, 10), (4, 1000), (9, 33, 17), (2, 3, 4, 5), (3, 20000)]


def check(device, x, dim, keepdim=False):
    want = torch.logsumexp(x.double(), dim, keepdim)
    got = torch.logsumexp(x.to(device), dim, keepdim)
    assert got.dtype == x.dtype and got.shape == want.shape
    epsilon = torch.finfo(x.dtype).eps
    torch.testing.assert_close(
        got.double().cpu(), want, rtol=2 * epsilon, atol=min(2 * epsilon, 2e-6), equal_nan=True
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_dimensions(device, shape, dtype):
    torch.manual_seed(0)
    x = (torch.randn(shape) * 3).to(dtype)
    for count in range(1, len(shape) + 1):
        for dims in itertools.combinations(range(len(shape)), count):
            check(device, x, dims)
    if shape:
        check(device, x, -1, keepdim=True)
        check(device, x.transpose(0, -1), 0)
        check(device, x[..., ::2], -1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_and_nan(device, dtype):
    rows = [
        [INF, 1, 2], [-INF, -INF, -INF], [INF, -INF, 0], [NAN, 1, 2], [NAN, INF, -INF],
        [-INF, 1, 2], [INF, INF, INF], [6e4, 6e4, 6e4], [-6e4, -6e4, -6e4], [6e4, -6e4, 0],
    ]  # fmt: skip
    for row in rows:
        x = torch.tensor(row, dtype=dtype)
        check(device, x, 0)
        check(device, x.repeat(40).view(3, 40), 1)  # vectors
        check(device, x.repeat(40).view(40, 3), 1)
        check(device, x.repeat(40).view(40, 3).t().contiguous(), 0)  # columns
    check(device, torch.tensor(rows, dtype=dtype).t().contiguous(), 0)


def test_a_result_near_zero_is_exact(device):
    x = torch.full((4, 1024), -6.9314718)  # the logarithm of 1 / 1024
    for dtype in (torch.float16, torch.bfloat16):
        check(device, x.to(dtype), 1)


def test_gradients(device):
    x = torch.randn(5, 7, dtype=torch.float64)
    results = []
    for where in ("cpu", device):
        leaf = x.to(where, copy=True).requires_grad_()
        leaf.logsumexp(1).mul(torch.arange(5.0, device=where)).sum().backward()
        results.append(leaf.grad.cpu())
    torch.testing.assert_close(results[1], results[0])


def test_integers_results_and_errors(device):
    x = torch.arange(-6, 6).view(3, 4)
    torch.testing.assert_close(x.to(device).logsumexp(1).cpu(), x.logsumexp(1))
    y = torch.randn(3, 4)
    for out in (torch.empty(3), torch.empty(6)[::2], torch.empty(3, dtype=torch.float64)):
        got = torch.logsumexp(y.to(device), 1, out=out.to(device))
        torch.testing.assert_close(got.cpu(), torch.logsumexp(y, 1, out=out))
    both = torch.stack([y.to(device), y.to(device)])  # the result lies in the input
    torch.logsumexp(both[0], 1, out=both[0, :, 0])
    torch.testing.assert_close(both[0, :, 0].cpu(), y.logsumexp(1))
    torch.testing.assert_close(
        torch.ones(2, 0, 3, device=device).logsumexp(1).cpu(), torch.ones(2, 0, 3).logsumexp(1)
    )
    for bad in (lambda d: y.to(d).logsumexp(2), lambda d: y.to(d).logsumexp((0, 0))):
        with pytest.raises((IndexError, RuntimeError)) as want:
            bad("cpu")
        with pytest.raises(want.type):
            bad(device)


@pytest.mark.parametrize("shape", [(200000, 8), (300000,), (40, 5000)])
def test_large(device, shape):
    torch.manual_seed(1)
    x = torch.randn(shape)
    for dim in range(len(shape)):
        check(device, x, dim)


def test_one_launch(device):
    x = torch.randn(20, 30, device=device)
    for dim in (1, (0, 1)):
        x.logsumexp(dim)
        torch.ocl.reset_launch_count()
        x.logsumexp(dim)
        assert torch.ocl.launch_count() == 1


@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)
