"""Dropout: what is kept, how it is scaled, its gradient."""

import pytest
import torch

from tests.refusals import raise_the_same

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout(device, dtype):
    x = torch.full((100, 200), 3.0, dtype=dtype, device=device, requires_grad=True)
    for inputs in (x, x.t(), x[:, ::2]):
        y = torch.nn.functional.dropout(inputs, 0.25)
        host = y.detach().cpu()
        assert ((host == 0) | ((host - 4).abs() < 0.05)).all()
        assert abs((host == 0).double().mean().item() - 0.25) < 0.02
        (grad,) = torch.autograd.grad(y.sum(), inputs)
        torch.testing.assert_close(grad.cpu() * 3, host, rtol=1e-2, atol=1e-2)


def test_native_dropout(device):
    x = torch.randn(64, 65, device=device)
    y, mask = torch.native_dropout(x, 0.5, True)
    assert mask.dtype == torch.bool and mask.shape == x.shape
    torch.testing.assert_close(y.cpu(), x.cpu() * mask.cpu() * 2)
    for p, train, kept in [(0.5, False, 1), (0.0, True, 1), (1.0, True, 0)]:
        y, mask = torch.native_dropout(x, p, train)
        torch.testing.assert_close(y.cpu(), x.cpu() * kept)
        assert (mask.cpu() == bool(kept)).all()
    strides = [
        torch.native_dropout(torch.randn(6, 8, device=d)[:, ::2].t(), p, True)[0].stride()
        for d in ("cpu", device)
        for p in (0.0, 0.5)
    ]
    assert len(set(strides)) == 1
    torch.manual_seed(3)
    a = torch.nn.functional.dropout(x).cpu()
    torch.manual_seed(3)
    assert torch.equal(a, torch.nn.functional.dropout(x).cpu())


def test_dtypes_without_dropout():
    raise_the_same(
        [
            lambda d: torch.nn.functional.dropout(torch.ones(8, dtype=torch.complex64, device=d)),
            lambda d: torch.nn.functional.dropout(torch.ones(8, dtype=torch.int64, device=d)),
            lambda d: torch.native_dropout(torch.ones(8, dtype=torch.int64, device=d), 0.0, True),
            lambda d: torch.native_dropout(torch.ones(8, dtype=torch.bool, device=d), 1.0, True),
        ]
    )
    for p in (0.0, 1.0):
        x = torch.ones(8, dtype=torch.complex64)
        expected = torch.native_dropout(x, p, True)[0]
        torch.testing.assert_close(torch.native_dropout(x.to("ocl"), p, True)[0].cpu(), expected)
