"""Decompositions of matrices with infinities: NaNs instead of errors, as CPU torch's."""

import pytest
import torch
from torch.testing import assert_close

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
INF = float("inf")


def matrix(shape, value, dtype):
    a = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    a[..., 1, 0] = value
    return a


def agree(call, a):
    assert_close(call(a.to("ocl")).cpu(), call(a), equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [INF, -INF])
@pytest.mark.parametrize("shape", [(3, 3), (9, 2), (2, 7), (2, 3, 3)], ids=str)
def test_singular_values(shape, value, dtype):
    a = matrix(shape, value, dtype)
    for call in (torch.linalg.svdvals, torch.linalg.cond, torch.linalg.matrix_rank):
        agree(call, a)
    # Whether CPU torch's vectors are NaNs, too, depends on where the infinity is.
    assert torch.linalg.pinv(a.to("ocl")).isnan().all()
    u, s, vh = torch.linalg.svd(a.to("ocl"))
    assert all(t.isnan().any() for t in (u, s, vh))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [INF, -INF])
@pytest.mark.parametrize("shape", [(3, 3), (2, 8, 8)], ids=str)
def test_eigenvalues(shape, value, dtype):
    a = matrix(shape, value, dtype)
    agree(torch.linalg.eigvalsh, a)
    values, vectors = torch.linalg.eigh(a.to("ocl"))
    assert values.isnan().all() and vectors.isnan().any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", [torch.linalg.svdvals, torch.linalg.eigvalsh])
def test_one_batch_element(call, dtype):
    a = torch.stack([torch.eye(4, dtype=dtype), matrix((4, 4), INF, dtype)])
    agree(call, a)


@pytest.mark.parametrize("shape", [(3, 3), (9, 2), (2, 9)], ids=str)
def test_a_nan_beside_an_infinity_raises(shape):
    for device in ("cpu", "ocl"):
        a = matrix(shape, INF, torch.float32).to(device)
        a[0, 1] = float("nan")
        with pytest.raises(torch.linalg.LinAlgError, match="failed to converge"):
            torch.linalg.svdvals(a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("value", [INF, -INF])
@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_ldl(n, value, dtype):
    """An infinity below the diagonal is a pivot with its row, as in LAPACK."""
    a = torch.randn(n, n, generator=torch.Generator().manual_seed(1)).to(dtype)
    a = a + a.mT
    for row, column in ((n - 1, 0), (0, 0), (n // 2, n // 2)):
        x = a.clone()
        x[row, column] = x[column, row] = value
        factors, pivots, info = torch.linalg.ldl_factor_ex(x.to("ocl"))
        expected, expected_pivots, expected_info = torch.linalg.ldl_factor_ex(x)
        assert_close(pivots.cpu(), expected_pivots)
        assert_close(info.cpu(), expected_info)
        assert_close(factors.cpu(), expected, rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "hermitian"),
    [(torch.float32, False), (torch.float64, True), (torch.complex64, True)],
    ids=str,
)
def test_ldl_of_infinities(dtype, hermitian):
    """Their inverse is 0: LAPACK leaves out what such a pivot would take off the rest."""
    for n in (1, 2, 3, 20):
        x = torch.full((n, n), 1.0 if dtype.is_complex else INF, dtype=dtype)
        x.diagonal().fill_(INF)
        factors, pivots, info = torch.linalg.ldl_factor_ex(x.to("ocl"), hermitian=hermitian)
        expected = torch.linalg.ldl_factor_ex(x, hermitian=hermitian)
        assert_close(pivots.cpu(), expected.pivots)
        assert_close(info.cpu(), expected.info)
        assert_close(factors.cpu(), expected.LD, equal_nan=True)
        torch.linalg.ldl_factor(x.to("ocl"), hermitian=hermitian)
