"""Combining many elements through indices, which GPUs sort first, against CPU torch."""

import pytest
import torch

from tests.as_gpu import run_as_gpu

DTYPES = [torch.float32, torch.float16, torch.int64, torch.complex64, torch.uint8]


def numbers(*shape, dtype=torch.float32):
    """Small integers: sums of them are exact in every dtype."""
    return torch.randint(0, 3, shape).to(dtype)


CALLS = {
    "rows": lambda x, i, v: x.index_add(0, i % 40, v),
    "columns": lambda x, i, v: x.mT.contiguous().index_add(1, i % 40, v.mT),
    "strided": lambda x, i, v: x[::2, 1:].index_add(0, i % 20, v[:, 1:]),
    "one each": lambda x, i, v: x.scatter_add(0, (i[:, None] * 7 + i[:9]) % 40, v),
    "along rows": lambda x, i, v: x.mT.scatter_add(1, (i * 3 + i[:9, None]) % 40, v.mT),
    "a vector": lambda x, i, v: x[:, 0].contiguous().index_add(0, i % 3, v[:, 0]),
    "two indices": lambda x, i, v: x.index_put((i % 40, i % 9), v[:, 0], accumulate=True),
    "from the end": lambda x, i, v: x.index_put((i % 40 - 40,), v, accumulate=True),
    "one value": lambda x, i, v: x.index_put((i % 40,), v[0, 0], accumulate=True),
    "several axes": lambda x, i, v: x.view(5, 8, 9).index_put(
        (i.view(10, 60)[:, :, None] % 5, torch.arange(9, device=x.device) % 8),
        v.view(10, 60, 9, 1)[..., :1].expand(10, 60, 9, 9),
        accumulate=True,
    ),
    "taken": lambda x, i, v: x.clone().put_(i % 360, v[:, 0], accumulate=True),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_sums(device, name, dtype):
    x, v = numbers(40, 9, dtype=dtype), numbers(600, 9, dtype=dtype)
    i = torch.randperm(600)
    expected = CALLS[name](x, i, v)
    actual = CALLS[name](x.to(device), i.to(device), v.to(device))
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_reductions(device, reduce, include_self):
    x, v, i = torch.randn(40, 9), torch.randn(600, 9), torch.randint(0, 40, (600, 9))
    v[5, 3] = torch.nan

    def call(x, i, v):
        return x.scatter_reduce(0, i, v, reduce, include_self=include_self)

    actual = call(x.to(device), i.to(device), v.to(device)).cpu()
    torch.testing.assert_close(actual, call(x, i, v), equal_nan=True)


def test_the_last_of_several_stays(device):
    x, v, i = torch.zeros(40, 9), torch.randn(600, 9), torch.arange(600) % 40
    torch.use_deterministic_algorithms(True)
    try:
        actual = x.to(device).index_put_((i.to(device),), v.to(device))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(actual.cpu(), v[-40:])


@pytest.mark.parametrize("padding", [None, 7])
def test_gradient_of_embedding(device, padding):
    i = torch.randint(0, 50, (20, 30))

    def gradient(device):
        weight = torch.ones(50, 12, device=device, requires_grad=True)
        rows = torch.nn.functional.embedding(i.to(device), weight, padding_idx=padding)
        torch.manual_seed(0)
        return torch.autograd.grad(rows, weight, numbers(20, 30, 12).to(device))[0].cpu()

    assert torch.equal(gradient(device), gradient("cpu"))


def test_out_of_range(device):
    x, i = torch.zeros(40, 9, device=device), torch.arange(600, device=device) % 40
    i[100] = 1000
    with pytest.raises(RuntimeError, match="index 1000"):
        x.index_add(0, i, torch.ones(600, 9, device=device)).cpu()


@pytest.mark.as_gpu
def test_as_a_gpu():
    run_as_gpu(__file__)
