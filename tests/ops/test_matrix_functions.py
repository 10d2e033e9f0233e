"""The matrix exponential, cross products and distances between rows against CPU torch."""

import pytest
import torch
from torch.testing import assert_close

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize(
    "rows, others, length", [(5, 16, 7), (131, 15, 40), (3, 17, 128), (9, 40, 300)]
)
def test_distances_of_many_rows(rows, others, length, p, dtype):
    """Where rows are turned: vectors, what is left of them, rows too long to be turned at once."""
    x, y = general(2, rows, length, dtype=dtype), general(2, others, length, dtype=dtype)
    x[0, 0], y[1, 3, 0] = y[0, 0], float("inf")
    if p < float("inf"):  # there CPU torch loses some NaNs
        x[1, 2, -1] = float("nan")
    mode = "donot_use_mm_for_euclid_dist"
    for function in (
        lambda d: torch.cdist(x.to(d), y.to(d), p=p, compute_mode=mode),
        *(lambda d, a=a: torch.pdist(a.to(d), p=p) for a in (*x, *y)),
    ):
        assert_close(function(DEVICE).cpu(), function("cpu"), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_renorm():
    x = torch.randn(5, 7, 3)
    for p, dim, limit in ((2, 0, 2.0), (1, 1, 3.0), (0.5, 2, 30.0), (2, -1, 1e4)):
        close(x.to(DEVICE).renorm(p, dim, limit), x.renorm(p, dim, limit))
