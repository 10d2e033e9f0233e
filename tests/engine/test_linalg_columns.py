"""Factorisations and triangular systems along columns, as CPUs compute them: sizes on both sides of
what a work-item takes alone, right-hand sides that don't fill its four columns, complex numbers."""

import itertools

import pytest
import torch

from tests.layouts import on_device
from tests.matrices import close, general, positive

DEVICE = "ocl"
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
COMPLEX = [torch.complex64, torch.complex128]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 7, 8, 9, 16, 17, 45, 46, 64, 65, 90, 91])
def test_cholesky(n, dtype):
    a = positive(n, (3,), dtype)
    # NaNs above the diagonal are not read.
    given = a + torch.full((n, n), float("nan")).triu(1)
    expected = torch.linalg.cholesky(a)
    for x in (given, given.mT.contiguous().mT):
        close(torch.linalg.cholesky(on_device(x)), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 9, 33, 64, 100])
def test_the_first_minor_that_is_not_positive(n, dtype):
    a = positive(n, (5,), dtype)
    a[1, 0, 0] = -1
    a[2, n // 2, n // 2] = 0
    a[3, n - 1, n - 1] = float("nan")
    for upper in (False, True):
        expected = torch.linalg.cholesky_ex(a, upper=upper).info
        assert torch.equal(torch.linalg.cholesky_ex(a.to(DEVICE), upper=upper).info.cpu(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [2, 9, 17, 64, 91])
def test_triangular_systems(n, columns, dtype):
    a = general(2, n, n, dtype=dtype) / n + 2 * torch.eye(n, dtype=dtype)
    b = general(2, n, columns, dtype=dtype)
    turns = (lambda t: t, lambda t: t.mT, lambda t: t.mH)
    flags = (False, True)
    for turned, by_columns, upper, unit, left in itertools.product(
        turns, flags, flags, flags, flags
    ):

        def solve(a, b, turned=turned, by_columns=by_columns, upper=upper, unit=unit, left=left):
            right = b.mT.contiguous().mT if by_columns else b
            return torch.linalg.solve_triangular(
                turned(a), right if left else right.mT, upper=upper, left=left, unitriangular=unit
            )

        close(solve(a.to(DEVICE), b.to(DEVICE)), solve(a, b))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_on_the_diagonal(dtype):
    a = torch.eye(20, dtype=dtype) * 2
    a[5, 5] = 0
    b = torch.ones(20, 3, dtype=dtype)
    actual = torch.linalg.solve_triangular(a.to(DEVICE), b.to(DEVICE), upper=False).cpu()
    assert actual[:5].isfinite().all() and not actual[5].isfinite().any()


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("m, n", [(1, 1), (2, 2), (8, 8), (9, 4), (4, 9), (64, 64), (70, 66)])
def test_factors_of_complex_matrices(m, n, dtype):
    a = general(2, m, n, dtype=dtype)
    given = a.to(DEVICE)
    lu, pivots = torch.linalg.lu_factor(given)
    expected, expected_pivots = torch.linalg.lu_factor(a)
    close(lu, expected, scale=300)
    assert torch.equal(pivots.cpu(), expected_pivots)
    for mode in ("reduced", "complete"):
        q, r = torch.linalg.qr(given, mode=mode)
        close(q @ r, a, scale=50)
        close(q.mH @ q, torch.eye(q.size(-1), dtype=dtype).expand(2, -1, -1), scale=50)
    # The reflections' product and its adjoint, applied to other columns.
    factors, tau = torch.geqrf(given)
    c = general(2, m, 6, dtype=dtype)
    wanted = torch.linalg.qr(given, mode="complete")[0].cpu()
    close(torch.ormqr(factors, tau, c.to(DEVICE)), wanted @ c, scale=50)
    close(torch.ormqr(factors, tau, c.to(DEVICE), transpose=True), wanted.mH @ c, scale=50)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_large_and_small_complex_numbers(dtype):
    a = general(20, 20, dtype=dtype)
    for scale in (torch.finfo(dtype).max / 1000, torch.finfo(dtype).tiny * 64):
        lu, pivots = torch.linalg.lu_factor((a * scale).to(DEVICE))
        expected, expected_pivots = torch.linalg.lu_factor(a)
        assert torch.equal(pivots.cpu(), expected_pivots)
        close(lu.triu() / scale, expected.triu(), scale=3000)
        close(lu.tril(-1), expected.tril(-1), scale=3000)
        close(torch.geqrf((a * scale).to(DEVICE))[0].triu() / scale, torch.geqrf(a)[0].triu(), 3000)
