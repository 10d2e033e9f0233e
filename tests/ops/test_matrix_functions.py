"""The matrix exponential, cross products and distances between rows against CPU torch."""

import pytest
import torch

from tests.matrices import close, general

DEVICE = "ocl"
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
FEW = [torch.float32, torch.complex128]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", FEW)
@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.3, 1, 3, 20])
def test_matrix_exponential(scale, dtype):
    a = general(3, 6, 6, dtype=dtype)
    a = a / torch.linalg.matrix_norm(a, 1, keepdim=True) * scale
    close(torch.matrix_exp(a.to(DEVICE)), torch.matrix_exp(a), scale=50)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32, torch.uint8, torch.int64])
def test_cross(dtype):
    def make(*shape):
        integers = torch.randint(0, 9, shape)
        return integers.to(dtype)

    a, b = make(4, 3, 5), make(5, 3, 1)
    for x, y, dim in (
        (a, a.flip(0), 1),
        (a.permute(2, 1, 0), b, 1),
        (a.transpose(0, 1), a.transpose(0, 1).flip(1), 0),
        (a.permute(0, 2, 1), make(1, 1, 3), -1),
        (make(0, 3), make(0, 3), 1),
    ):
        expected = torch.linalg.cross(x, y, dim=dim)
        actual = torch.linalg.cross(x.to(DEVICE), y.to(DEVICE), dim=dim)
        assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p, dtype):
    x, y = general(2, 9, 6, dtype=dtype), general(7, 6, dtype=dtype)
    y[0] = x[0, 0]
    for function, arguments in (
        (torch.cdist, (x, y)),
        (torch.cdist, (x[:, :, :0], y[:, :0])),
        (torch.cdist, (x[:, :0], y)),
        (torch.cdist, (general(30, 4, dtype=dtype), general(28, 4, dtype=dtype))),
        (torch.pdist, (torch.cat([x[0], x[0, :2]]),)),
        (torch.pdist, (x[0, :1],)),
    ):
        results = []
        for device in ("cpu", DEVICE):
            leaves = [a.to(device).requires_grad_() for a in arguments]
            out = function(*leaves, p=p)
            weight = torch.arange(out.numel(), dtype=dtype).view(out.shape).to(device)
            results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
        for expected, actual in zip(*results, strict=True):
            # Equal rows: the matrix product's distance 0 is rounding error.
            close(actual, expected, scale=1000 if p == 2 and out.numel() > 100 else 10)


def test_renorm():
    x = torch.randn(5, 7, 3)
    for p, dim, limit in ((2, 0, 2.0), (1, 1, 3.0), (0.5, 2, 30.0), (2, -1, 1e4)):
        close(x.to(DEVICE).renorm(p, dim, limit), x.renorm(p, dim, limit))
