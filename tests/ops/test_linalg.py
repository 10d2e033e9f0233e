"""Factorisations, systems of equations and functions of matrices against CPU torch.

Factors that are unique are compared; of the others (QR, eigenvectors, ...) what they must satisfy.
"""

import pytest
import torch
from torch.testing import assert_close

from tests.layouts import on_device
from tests.matrices import close, close_gradients, general, positive, regular, unaligned

DEVICE = "ocl"
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
FEW = [torch.float32, torch.complex128]
SOME = [torch.float32, torch.float64, torch.complex128]
#: Empty, smaller and larger than a block of the recursion, several levels of it.
SIZES = [0, 1, 5, 33, 130]
BATCHES = [(), (3,), (2, 1, 2), (0,)]
CASES = [(n, batch) for n in SIZES for batch in BATCHES if n < 100 or batch in ((), (3,))]
SHAPES = [(0, 3), (3, 0), (1, 6), (7, 5), (5, 7), (20, 90), (90, 20), (150, 33), (33, 150)]
#: As many rows as a vector has elements, one more, and more than a CPU's work-item factors alone.
SHAPES += [(2, 2), (16, 16), (17, 16), (190, 180)]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def identity_like(x):
    return torch.eye(x.size(-1), dtype=x.dtype).expand_as(x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n, batch", CASES)
def test_cholesky(n, batch, upper, dtype):
    a = positive(n, batch, dtype)
    # The other triangle isn't read.
    given = a.triu() if upper else a.tril()
    expected = torch.linalg.cholesky(a, upper=upper)
    for x in (given, given.mT.contiguous().mT, unaligned(given)):
        close(torch.linalg.cholesky(on_device(x), upper=upper), expected)
    close(torch.cholesky(on_device(given), upper=upper), expected)
    factor = expected.to(DEVICE)
    close(torch.cholesky_inverse(factor, upper=upper), torch.cholesky_inverse(expected, upper))
    b = general(*batch, n, 3, dtype=dtype)
    close(
        torch.cholesky_solve(b.to(DEVICE), factor, upper=upper),
        torch.cholesky_solve(b, expected, upper=upper),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n, batch", CASES)
def test_triangular_systems(n, batch, dtype):
    a, b = regular(n, batch, dtype), general(*batch, n, 4, dtype=dtype)
    for upper in (False, True):
        for unit in (False, True):
            # Rows that dominate, so that the solution doesn't grow with n.
            t = a / (4 * max(n, 1)) if unit else torch.eye(n, dtype=dtype) * 4 + a / (4 * max(n, 1))
            t = t.triu(1 if unit else 0) if upper else t.tril(-1 if unit else 0)
            for x in (t, t.mT.contiguous().mT, unaligned(t)):
                for left in (False, True):
                    right = b if left else b.mT
                    options = {"upper": upper, "left": left, "unitriangular": unit}
                    close(
                        torch.linalg.solve_triangular(on_device(x), right.to(DEVICE), **options),
                        torch.linalg.solve_triangular(t, right, **options),
                    )
            expected = torch.triangular_solve(b, t, upper, True, unit)
            actual = torch.triangular_solve(b.to(DEVICE), t.to(DEVICE), upper, True, unit)
            close(actual[0], expected[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n, batch", CASES)
def test_solve(n, batch, dtype):
    a, b = regular(n, batch, dtype), general(*batch, n, 4, dtype=dtype)
    expected = torch.linalg.solve(a, b)
    for x in (a, a.mT.contiguous().mT, unaligned(a)):
        close(torch.linalg.solve(on_device(x), b.to(DEVICE)), expected)
    close(
        torch.linalg.solve(a.to(DEVICE), b.mT.to(DEVICE), left=False),
        torch.linalg.solve(a, b.mT, left=False),
    )
    close(torch.linalg.inv(a.to(DEVICE)), torch.linalg.inv(a))
    small = a / (3 * max(n, 1) ** 0.5)
    close(torch.linalg.det(small.to(DEVICE)), torch.linalg.det(small))
    wanted = torch.linalg.slogdet(a)
    for actual, expected in zip(torch.linalg.slogdet(a.to(DEVICE)), wanted, strict=True):
        close(actual, expected)


@pytest.mark.parametrize("dtype", SOME)
@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("m, n", SHAPES)
def test_lu(m, n, batch, dtype):
    a = general(*batch, m, n, dtype=dtype)
    wanted_lu, wanted_pivots = torch.linalg.lu_factor(a)
    for x in (a, a.mT.contiguous().mT, unaligned(a)):
        lu, pivots = torch.linalg.lu_factor(on_device(x))
        close(lu, wanted_lu, scale=300)
        assert torch.equal(pivots.cpu(), wanted_pivots)
        p, low, up = torch.linalg.lu(on_device(x))
        close(p @ low @ up, a)
        assert torch.equal(p.cpu(), torch.linalg.lu(a)[0])
        assert torch.equal(low.triu(1).cpu(), torch.zeros_like(low, device="cpu"))


@pytest.mark.parametrize("dtype", SOME)
def test_lu_of_ties_and_zeros(dtype):
    """The upper one of equal elements is the pivot; a column of zeros has its number in info."""
    a = torch.ones(3, 40, 40, dtype=dtype).tril()
    a[1] = general(40, 40, dtype=torch.float32).sign().triu()
    a[2, :, 20:] = 0
    wanted = torch.linalg.lu_factor_ex(a)
    for x in (a, a.mT.contiguous().mT):
        for actual, expected in zip(torch.linalg.lu_factor_ex(on_device(x)), wanted, strict=True):
            assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reflections_of_numbers_that_are_not_finite(dtype):
    a = torch.eye(20, dtype=dtype) + 1
    for row, column in ((0, 0), (7, 3), (19, 18), (3, 7)):
        for value in (float("nan"), float("inf")):
            b = a.clone()
            b[row, column] = value
            r = torch.linalg.qr(b.to(DEVICE), mode="r")[1]
            # Columns before the number's own don't know of it.
            close(r[:, :column], torch.linalg.qr(a, mode="r")[1][:, :column])
            assert not r[:, column].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reflections_of_large_and_small_numbers(dtype):
    a = general(30, 20, dtype=dtype)
    for scale in (torch.finfo(dtype).max / 100, torch.finfo(dtype).tiny * 16):
        expected, actual = (torch.geqrf(x * scale) for x in (a, a.to(DEVICE)))
        close(actual[0] / scale, expected[0] / scale, scale=1000)
        close(actual[1], expected[1], scale=1000)


@pytest.mark.parametrize("dtype", FEW)
def test_lu_without_pivoting(dtype):
    a = positive(70, (2,), dtype)
    lu, pivots = torch.linalg.lu_factor(a.to(DEVICE), pivot=False)
    assert torch.equal(pivots.cpu(), torch.arange(1, 71, dtype=torch.int32).expand(2, 70))
    low = lu.tril(-1) + torch.eye(70, dtype=dtype, device=DEVICE)
    close(low @ lu.triu(), a)


@pytest.mark.parametrize("dtype", FEW)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("adjoint", [False, True])
def test_lu_solve_broadcasts(adjoint, left, dtype):
    a, b = regular(40, (3, 1), dtype), general(1, 2, 40, 40, dtype=dtype)
    lu, pivots = torch.linalg.lu_factor(a)
    options = {"left": left, "adjoint": adjoint}
    expected = torch.linalg.lu_solve(lu, pivots, b, **options)
    actual = torch.linalg.lu_solve(lu.to(DEVICE), pivots.to(DEVICE), b.to(DEVICE), **options)
    close(actual, expected)


@pytest.mark.parametrize("dtype", SOME)
@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("m, n", SHAPES)
def test_qr(m, n, batch, dtype):
    a = general(*batch, m, n, dtype=dtype)
    wanted, wanted_tau = torch.geqrf(a)
    for x in (a, a.mT.contiguous().mT, unaligned(a)):
        factors, tau = torch.geqrf(on_device(x))
        # LAPACK's signs, so the factors are unique.
        close(factors, wanted, scale=100)
        close(tau, wanted_tau, scale=100)
    for mode in ("reduced", "complete"):
        q, r = torch.linalg.qr(a.to(DEVICE), mode=mode)
        close(q @ r, a)
        close(q.mH @ q, identity_like((q.mH @ q).cpu()))
        assert torch.equal(r.tril(-1).cpu(), torch.zeros_like(r, device="cpu"))
    close(torch.linalg.qr(a.to(DEVICE), mode="r")[1], torch.linalg.qr(a, mode="r")[1], scale=100)
    if m >= n:
        close(
            torch.linalg.householder_product(wanted.to(DEVICE), wanted_tau.to(DEVICE)),
            torch.linalg.householder_product(wanted, wanted_tau),
        )
        for left in (False, True):
            for transpose in (False, True):
                c = general(*batch, *((m, 4) if left else (4, m)), dtype=dtype)
                arguments = (wanted, wanted_tau, c)
                close(
                    torch.ormqr(*(x.to(DEVICE) for x in arguments), left, transpose),
                    torch.ormqr(*arguments, left, transpose),
                )


def test_qr_of_columns_that_need_no_reflection():
    a = torch.eye(5).mul(torch.tensor([1.0, -2, 0, 4, 5]))
    q, r = torch.linalg.qr(a.to(DEVICE))
    wanted_q, wanted_r = torch.linalg.qr(a)
    close(q, wanted_q)
    close(r, wanted_r)


def test_qr_neither_overflows_nor_vanishes():
    for scale in (1e30, 1e-30):
        a = torch.randn(20, 6) * scale
        q, r = torch.linalg.qr(a.to(DEVICE))
        close(q.mT @ q, torch.eye(6))
        close((q @ r) / scale, a / scale)


@pytest.mark.parametrize("dtype", FEW)
@pytest.mark.parametrize("batch", [(), (2, 1, 2)])
@pytest.mark.parametrize("n", [0, 1, 5, 33])
def test_eigenvalues_of_general_matrices(n, batch, dtype):
    a = general(*batch, n, n, dtype=dtype)
    values, vectors = torch.linalg.eig(a.to(DEVICE))
    close(a.to(DEVICE, values.dtype) @ vectors, (vectors * values.unsqueeze(-2)).cpu())
    close(torch.linalg.eigvals(a.to(DEVICE)), torch.linalg.eigvals(a))


def test_what_runs_on_the_host_is_counted():
    a = positive(4, (), torch.float32).to(DEVICE)
    torch.ocl.reset_host_staged_counts()
    torch.linalg.eig(a), torch.linalg.eig(a), torch.linalg.eigvals(a)
    torch.linalg.solve(a, a), torch.linalg.cholesky(a), torch.linalg.qr(a), torch.matrix_exp(a)
    assert torch.ocl.host_staged_counts() == {"linalg_eig": 2, "linalg_eigvals": 1}
    # Sizes past those that one work-group factors.
    large = positive(600, (), torch.float32).to(DEVICE)
    torch.ocl.reset_host_staged_counts()
    values, vectors = torch.linalg.eigh(large)
    close((vectors * values) @ vectors.mT, large.cpu(), scale=50)
    u, s, vh = torch.linalg.svd(large)
    close((u * s) @ vh, large.cpu(), scale=50)
    factors = torch.linalg.ldl_factor(large)
    close(large @ torch.linalg.ldl_solve(*factors, large), large.cpu(), scale=1000)
    assert torch.ocl.host_staged_counts() == {
        "_linalg_eigh": 1,
        "_linalg_svd": 1,
        "linalg_ldl_factor_ex": 1,
        "linalg_ldl_solve": 1,
    }
    torch.ocl.reset_host_staged_counts()


GRADIENTS = {
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.mH + torch.eye(6, device=a.device)),
    "inv": torch.linalg.inv,
    "solve": lambda a: torch.linalg.solve(a, a.flip(-1)),
    "solve_triangular": lambda a: torch.linalg.solve_triangular(a, a.flip(-1), upper=False),
    "det": torch.linalg.det,
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "lu": lambda a: torch.linalg.lu(a)[1] @ torch.linalg.lu(a)[2].exp(),
    "qr": lambda a: torch.linalg.qr(a)[1],
    "eigvals": lambda a: torch.linalg.eigvals(a).abs(),
    "matrix_exp": torch.linalg.matrix_exp,
    "cross": lambda a: torch.linalg.cross(a[..., :3], a[..., 3:]),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, dtype):
    close_gradients(GRADIENTS[name], regular(6, (2,), dtype))


OUTS = {
    "cholesky": (torch.linalg.cholesky, 1),
    "inv": (torch.linalg.inv, 1),
    "lu_factor": (torch.linalg.lu_factor, 2),
    "qr": (torch.linalg.qr, 2),
    "eig": (torch.linalg.eig, 2),
    "eigvals": (torch.linalg.eigvals, 1),
}


@pytest.mark.parametrize("name", OUTS)
def test_out(name):
    function, count = OUTS[name]
    a = positive(5, (2,), torch.float32).to(DEVICE)
    expected = function(a)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for make in (
        lambda e: torch.empty(0, dtype=e.dtype, device=DEVICE),
        lambda e: torch.empty((*e.shape, 2), dtype=e.dtype, device=DEVICE)[..., 0],
    ):
        outs = [make(e) for e in expected]
        function(a, out=outs[0] if count == 1 else tuple(outs))
        for out, e in zip(outs, expected, strict=True):
            assert_close(out, e)


def singular(n):
    a = torch.eye(n).repeat(3, 1, 1)
    a[1, n - 1, n - 1] = 0
    return a


@pytest.mark.parametrize("n", [1, 5, 40, 130])
@pytest.mark.parametrize(
    "call",
    [
        torch.linalg.inv,
        torch.linalg.cholesky,
        torch.cholesky,
        torch.cholesky_inverse,
        lambda a: torch.linalg.solve(a, a),
        lambda a: torch.linalg.lu_factor_ex(a, check_errors=True),
    ],
    ids=["inv", "cholesky", "torch.cholesky", "cholesky_inverse", "solve", "lu_factor_ex"],
)
def test_singular_matrices_raise_what_the_cpu_raises(call, n):
    with pytest.raises(RuntimeError) as expected:
        call(singular(n))
    with pytest.raises(RuntimeError) as actual:
        call(singular(n).to(DEVICE))
    assert type(actual.value) is type(expected.value)
    assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize("n", [5, 40, 130])
def test_info_codes(n):
    a = singular(n)
    for function in (torch.linalg.cholesky_ex, torch.linalg.lu_factor_ex, torch.linalg.inv_ex):
        assert torch.equal(function(a.to(DEVICE))[-1].cpu(), function(a)[-1])
    assert float(torch.linalg.det(singular(n).to(DEVICE))[1]) == 0


def test_a_nan_is_not_positive():
    a = torch.eye(70)
    a[40, 40] = float("nan")
    assert int(torch.linalg.cholesky_ex(a.to(DEVICE))[1]) == 41


PIVOT_USERS = {
    "lu_solve": lambda a, p: torch.linalg.lu_solve(a, p, torch.ones_like(a)),
    "lu_solve adjoint": lambda a, p: torch.linalg.lu_solve(a, p, torch.ones_like(a), adjoint=True),
    "lu_unpack": torch.lu_unpack,
    "ldl_solve": lambda a, p: torch.linalg.ldl_solve(a, p, torch.ones_like(a)),
}


@pytest.mark.parametrize("name", PIVOT_USERS)
@pytest.mark.parametrize("first", [0, 4, 2**31 - 1, -4, -(2**31)])
def test_pivots_of_no_row(name, first):
    """Pivots are the caller's: they must not lead out of the matrix."""
    a, pivots = torch.rand(3, 3), torch.tensor([first, 2, 3], dtype=torch.int32)
    if torch.__version__ >= "2.13":  # 2.11 on the CPU has no such check and corrupts its memory
        with pytest.raises(RuntimeError):
            PIVOT_USERS[name](a, pivots)
    with pytest.raises(RuntimeError, match="ivots"):
        PIVOT_USERS[name](a.to("ocl"), pivots.to("ocl"))
        torch.ocl.synchronize()


def test_blocks_of_two_rows_that_are_none():
    a = torch.rand(3, 3).to("ocl")
    for pivots in ([1, 2, -3], [-1, 2, 3], [-2, -1, 3]):
        torch.linalg.ldl_solve(a, torch.tensor(pivots, dtype=torch.int32).to("ocl"), a.clone())
        with pytest.raises(RuntimeError, match="ldl_solve"):
            torch.ocl.synchronize()


@pytest.mark.parametrize(
    "call",
    [
        lambda a: torch.linalg.inv(a[:2]),
        lambda a: torch.linalg.inv(a[0]),
        lambda a: torch.linalg.inv(a.half()),
        lambda a: torch.linalg.inv(a.int()),
        lambda a: torch.linalg.solve(a, a[:2]),
        lambda a: torch.linalg.eig(a / 0),
        lambda a: torch.linalg.qr(a, mode="none"),
        lambda a: torch.linalg.cross(a[:2], a[:2], dim=0),
        lambda a: torch.cdist(a, a[:, :2]),
        lambda a: torch.cdist(a, a, p=-1),
        lambda a: torch.pdist(a[0]),
    ],
)
def test_bad_input_raises_what_the_cpu_raises(call):
    a = torch.randn(3, 3)
    with pytest.raises(Exception) as expected:
        call(a)
    with pytest.raises(type(expected.value)):
        call(a.to(DEVICE))


def test_many_small_matrices():
    a = regular(3, (70000,), torch.float32)
    close(torch.linalg.inv(a.to(DEVICE)), torch.linalg.inv(a), scale=100)


def test_distances_of_order_0_keep_nan():
    x = torch.tensor([[float("nan"), 1.0], [1.0, 2.0], [1.0, 1.0]])
    on_device = x.to("ocl")
    assert_close(
        torch.cdist(on_device, on_device, p=0.0).cpu(), torch.cdist(x, x, p=0.0), equal_nan=True
    )
    assert_close(torch.pdist(on_device, p=0.0).cpu(), torch.pdist(x, p=0.0), equal_nan=True)


def test_no_distances_of_any_dtype():
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.ones(5, 4, dtype=dtype, device="ocl")
        assert torch.cdist(x[:0], x).shape == (0, 5) and torch.cdist(x, x[:0]).dtype == dtype
        assert torch.pdist(x[:1]).shape == (0,)
        with pytest.raises(NotImplementedError):
            torch.cdist(x, x)


def test_eigenvalues_of_expanded_and_of_infinite_matrices():
    matrix = torch.randn(4, 4)
    expanded = matrix.to("ocl").expand(3, 4, 4)
    assert_close(
        torch.linalg.eigvals(expanded).abs().sort(-1).values.cpu(),
        torch.linalg.eigvals(matrix.expand(3, 4, 4)).abs().sort(-1).values,
    )
    large = torch.randn(300, 300)
    assert_close(
        torch.linalg.svdvals(large.to("ocl").expand(2, 300, 300)).cpu(),
        torch.linalg.svdvals(large).expand(2, 300),
    )
    for value in (float("nan"), float("inf")):
        with pytest.raises(RuntimeError, match="infinities or NaN"):
            torch.linalg.eigvals(torch.full((3, 3), value, device="ocl"))
