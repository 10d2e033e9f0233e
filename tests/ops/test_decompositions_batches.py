"""Eigenvalues and singular values of batches whose matrices iterate side by side in a vector's
lanes: each at its own pace, whatever its neighbours are."""

import pytest
import torch
from torch.testing import assert_close

from tests.matrices import close, general

DEVICE = "ocl"
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
INF = float("inf")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def mixed(batch, n, dtype):
    """Matrices that are done at once, hard, large and small ones, and ordinary ones."""
    a = general(batch, n, n, dtype=dtype)
    kinds = [
        torch.zeros(n, n),
        torch.eye(n),
        torch.ones(n, n),
        torch.diag(torch.logspace(0, -12, n)) + torch.diag(torch.ones(n - 1) * 1e-3, 1),
        torch.diag(torch.ones(n - 1), 1),
        torch.diag(torch.arange(n).fmod(2)),
    ]
    for i, kind in enumerate(kinds):
        if 2 * i + 1 < batch:
            a[2 * i + 1] = kind.to(dtype)
    if batch > 4:
        a[2] *= 1e25
        a[4] *= 1e-25
    return a


def check(actual, expected):
    """Relative to each matrix, which may be small."""
    size = expected.abs().amax(-1, keepdim=True).clamp(min=1e-37)
    close(actual / size.to(DEVICE), expected / size, scale=50)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 7, 24, 65])
@pytest.mark.parametrize("batch", [2, 3, 5, 9, 17, 35])
def test_eigenvalues(batch, n, dtype):
    a = mixed(batch, n, dtype)
    a = a + a.mH
    given = a.to(DEVICE)
    check(torch.linalg.eigvalsh(given), torch.linalg.eigvalsh(a))
    values, vectors = torch.linalg.eigh(given)
    check(values, torch.linalg.eigvalsh(a))
    product = (vectors * values.unsqueeze(-2)) @ vectors.mH
    check(product.flatten(1), a.flatten(1))
    close(vectors.mH @ vectors, torch.eye(n, dtype=dtype).expand_as(a), scale=100)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 7, 24, 65])
@pytest.mark.parametrize("batch", [2, 3, 5, 9, 17, 35])
def test_singular_values(batch, n, dtype):
    a = mixed(batch, n, dtype)
    given = a.to(DEVICE)
    check(torch.linalg.svdvals(given), torch.linalg.svdvals(a))
    u, s, vh = torch.linalg.svd(given)
    check(s, torch.linalg.svdvals(a))
    check(((u * s.unsqueeze(-2)) @ vh).flatten(1), a.flatten(1))
    for vectors in (u, vh):
        close(vectors.mH @ vectors, torch.eye(n, dtype=dtype).expand_as(a), scale=100)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [3, 19])
def test_one_that_is_not_finite(batch, dtype):
    a = general(batch, 9, 9, dtype=dtype)
    a = a + a.mH
    a[1, 4, 2] = INF
    others = [i for i in range(batch) if i != 1]
    for function in (torch.linalg.eigvalsh, torch.linalg.svdvals):
        values = function(a.to(DEVICE)).cpu()
        assert values[1].isnan().all()
        assert_close(values[others], function(a[others]), rtol=1e-4, atol=1e-4)
    a[1, 4, 2] = float("nan")
    for function in (torch.linalg.eigvalsh, torch.linalg.svdvals):
        with pytest.raises(torch.linalg.LinAlgError, match="failed to converge"):
            function(a.to(DEVICE))
