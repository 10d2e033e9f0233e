"""Hermitian eigenvalues, singular values, least squares and LDL factors against CPU torch.

Values are compared; of vectors, which aren't unique, what they must satisfy.
"""

import itertools
import warnings

import pytest
import torch
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from tests.layouts import on_device
from tests.matrices import close, close_gradients, general, unaligned

DEVICE = "ocl"
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
#: Shorter than a work-group, longer than one, odd and even.
SIZES = [0, 1, 2, 3, 8, 17, 40, 65]
BATCHES = [(), (3,), (2, 1, 2), (0,)]
CASES = [(n, batch) for n in SIZES for batch in BATCHES if n < 20 or batch in ((), (3,))]
SHAPES = [(0, 3), (3, 0), (1, 6), (6, 1), (7, 5), (5, 7), (33, 33), (20, 90), (90, 20), (65, 64)]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _on_the_device():
    torch.ocl.reset_host_staged_counts()
    yield
    assert not torch.ocl.host_staged_counts() and not torch.ocl.fallback_counts()


def identity_like(x):
    return torch.eye(x.size(-1), dtype=x.dtype).expand_as(x)


def diagonal_times(vectors, values):
    return vectors * values.to(vectors.dtype).unsqueeze(-2)


def orthonormal(vectors):
    product = vectors.mH @ vectors
    close(product, identity_like(product.cpu()), scale=100)


def hermitian(n, batch, dtype):
    a = general(*batch, n, n, dtype=dtype)
    return a + a.mH


def unitary(n, dtype):
    return torch.linalg.qr(general(n, n, dtype=dtype))[0]


#: Spectra that iterations find hard.
SPECTRA = {
    "zero": lambda n: torch.zeros(n),
    "equal": lambda n: torch.full((n,), 2.5),
    "of rank two": lambda n: torch.tensor([3.0, -1.0] + [0.0] * (n - 2)),
    "pairs": lambda n: torch.arange(n).div(2, rounding_mode="floor") + 1.0,
    "opposite": lambda n: torch.tensor([1.0, -1.0]).repeat(n)[:n],
    "graded": lambda n: torch.logspace(0, -12, n),
    "huge": lambda n: torch.linspace(1, 2, n) * 1e30,
    "tiny": lambda n: torch.linspace(1, 2, n) * 1e-30,
    "close": lambda n: 1 + torch.linspace(0, 1e-6, n),
}


def check_eigh(given, matrix, **options):
    """`given`: on the device; `matrix`: the Hermitian one that it stands for."""
    values, vectors = torch.linalg.eigh(given, **options)
    close(values, torch.linalg.eigvalsh(matrix))
    close(diagonal_times(vectors, values) @ vectors.mH, matrix, scale=50)
    orthonormal(vectors)
    assert bool((values.diff() >= 0).all())
    close(torch.linalg.eigvalsh(given, **options), values.cpu())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n, batch", CASES)
def test_eigh(n, batch, dtype):
    a = hermitian(n, batch, dtype)
    for uplo in ("L", "U"):
        # The other triangle isn't read, nor what is imaginary on the diagonal.
        given = a.tril() if uplo == "L" else a.triu()
        if dtype.is_complex:
            given = given + 7j * torch.eye(n, dtype=dtype)
        for x in (given, given.mT.contiguous().mT, unaligned(given)):
            check_eigh(on_device(x), a, UPLO=uplo)
    check_eigh(a.to(DEVICE).mH, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [5, 24])
@pytest.mark.parametrize("name", SPECTRA)
def test_eigh_of_hard_spectra(name, n, dtype):
    v = unitary(n, torch.promote_types(dtype, torch.float64))
    a = (diagonal_times(v, SPECTRA[name](n)) @ v.mH).to(dtype)
    scale = a.abs().max().clamp(min=torch.finfo(dtype).tiny)
    values, vectors = torch.linalg.eigh(a.to(DEVICE))
    close(values.cpu().div(scale).to(DEVICE), torch.linalg.eigvalsh(a) / scale)
    product = diagonal_times(vectors.cpu(), values.cpu() / scale) @ vectors.cpu().mH
    close(product.to(DEVICE), a / scale, scale=50)
    orthonormal(vectors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_eigh_of_diagonal_and_tridiagonal_matrices(dtype):
    for d, e in (
        (torch.tensor([3.0, -1, 2, 2, 0]), torch.zeros(4)),
        (torch.zeros(6), torch.ones(5)),
    ):
        a = (torch.diag(d) + torch.diag(e, 1) + torch.diag(e, -1)).to(dtype)
        check_eigh(a.to(DEVICE), a)


def check_svd(given, a):
    wanted = torch.linalg.svdvals(a)
    for full in (False, True):
        u, s, vh = torch.linalg.svd(given, full_matrices=full)
        close(s, wanted)
        k = s.size(-1)
        close(diagonal_times(u[..., :k], s) @ vh[..., :k, :], a, scale=50)
        orthonormal(u)
        orthonormal(vh.mH)
        assert u.size(-1) == (a.size(-2) if full else k)
        assert bool((s.diff() <= 0).all()) and bool((s >= 0).all())
    close(torch.linalg.svdvals(given), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (2, 1, 2), (0,)])
@pytest.mark.parametrize("m, n", SHAPES)
def test_svd(m, n, batch, dtype):
    a = general(*batch, m, n, dtype=dtype)
    for x in (a, a.mT.contiguous().mT, unaligned(a)):
        check_svd(on_device(x), a)
    check_svd(a.mH.contiguous().to(DEVICE).mH, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, n", [(9, 9), (30, 9), (9, 30)])
@pytest.mark.parametrize("name", SPECTRA)
def test_svd_of_hard_spectra(name, m, n, dtype):
    wide = torch.promote_types(dtype, torch.float64)
    k = min(m, n)
    u, v = unitary(m, wide)[:, :k], unitary(n, wide)[:, :k]
    a = (diagonal_times(u, SPECTRA[name](k)) @ v.mH).to(dtype)
    scale = a.abs().max().clamp(min=torch.finfo(dtype).tiny)
    u, s, vh = torch.linalg.svd(a.to(DEVICE), full_matrices=False)
    close(s.cpu().div(scale).to(DEVICE), torch.linalg.svdvals(a) / scale)
    product = diagonal_times(u.cpu(), s.cpu() / scale) @ vh.cpu()
    close(product.to(DEVICE), a / scale, scale=50)
    orthonormal(u)
    orthonormal(vh.mH)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("n", [20, 100, 150])
def test_values_and_vectors_are_as_exact_as_lapacks(n, dtype):
    # GPUs compute in single precision.
    single = takes_gpu_kernels()
    wide = torch.promote_types(dtype, torch.float64)
    a = general(3, n, n, dtype=dtype)
    h = a + a.mH
    for function, of in ((torch.linalg.eigvalsh, h), (torch.linalg.svdvals, a)):
        exact = function(of.to(wide))
        error = (function(of.to(DEVICE)).cpu() - exact).abs().max() / exact.abs().max()
        assert error < (3e-6 if single else 3e-7)

    def relative(product, matrix):
        return (product - matrix).norm() / matrix.norm()

    for device in (DEVICE,) if single else (DEVICE, "cpu"):
        values, vectors = (t.cpu().to(wide) for t in torch.linalg.eigh(h.to(device)))
        u, s, vh = (t.cpu().to(wide) for t in torch.linalg.svd(a.to(device)))
        errors = [
            relative(vectors * values.unsqueeze(-2) @ vectors.mH, h),
            relative(u * s.unsqueeze(-2) @ vh, a),
            relative(vectors.mH @ vectors, identity_like(vectors)),
            relative(u.mH @ u, identity_like(u)),
        ]
        if device == DEVICE:
            ours = errors
            assert max(errors) < 5e-6
        else:
            # Up to 128 rows only the last rounding is in single precision.
            factor = 0.5 if n <= 128 else 1.7
            assert all(x < factor * y for x, y in zip(ours, errors, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [3, 300])
@pytest.mark.parametrize(
    "call",
    [
        torch.linalg.eigvalsh,
        torch.linalg.svdvals,
        torch.linalg.cholesky,
        torch.linalg.qr,
        torch.linalg.lu,
        torch.linalg.ldl_factor,
        lambda a: torch.linalg.solve_triangular(a, a, upper=True),
    ],
)
def test_half_types_are_refused(call, n, dtype):
    a = torch.eye(n, dtype=dtype)
    with pytest.raises(Exception) as expected:
        call(a)
    with pytest.raises(type(expected.value)):
        call(a.to(DEVICE))
    assert not torch.ocl.fallback_counts()
    torch.ocl.reset_host_staged_counts()


def test_svd_of_bidiagonal_matrices_with_zeros():
    d = torch.tensor([[1.0, 0, 2, 3, 0], [0, 0, 0, 0, 0], [0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    a = torch.diag_embed(d) + torch.diag(torch.ones(4), 1)
    check_svd(a.to(DEVICE), a)


@pytest.mark.parametrize("n", [1000, 70000])
def test_many_small_matrices(n):
    a = general(n, 3, 3, dtype=torch.float32)
    u, s, vh = torch.linalg.svd(a.to(DEVICE))
    close(diagonal_times(u, s) @ vh, a, scale=50)
    values, vectors = torch.linalg.eigh((a + a.mT).to(DEVICE))
    close(diagonal_times(vectors, values) @ vectors.mT, a + a.mT, scale=50)


def test_batches_that_are_cut():
    # Scratch memory for all of them at once would be more than the engine takes.
    a = general(80, 200, 200, dtype=torch.float32)
    values, vectors = torch.linalg.eigh((a + a.mT).to(DEVICE))
    close(diagonal_times(vectors, values) @ vectors.mT, a + a.mT, scale=50)


OUTS = {"svd": torch.linalg.svd, "eigh": torch.linalg.eigh, "ldl_factor": torch.linalg.ldl_factor}


@pytest.mark.parametrize("name", OUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_out(name, dtype):
    function = OUTS[name]
    a = hermitian(5, (2, 3), dtype).to(DEVICE)
    expected = function(a)
    for make in (
        lambda e: torch.empty(0, dtype=e.dtype, device=DEVICE),
        lambda e: torch.empty((*e.shape, 2), dtype=e.dtype, device=DEVICE)[..., 0],
    ):
        outs = [make(e) for e in expected]
        function(a, out=tuple(outs))
        for out, e in zip(outs, expected, strict=True):
            assert_close(out, e)


@pytest.mark.parametrize(
    "call", [torch.linalg.eigh, torch.linalg.eigvalsh, torch.linalg.svd, torch.linalg.svdvals]
)
def test_nans_raise(call):
    a = torch.eye(5)
    a[3, 1] = a[1, 3] = float("nan")
    with pytest.raises(torch.linalg.LinAlgError, match="failed to converge"):
        call(a.to(DEVICE))
    with pytest.raises(torch.linalg.LinAlgError, match=r"\(Batch element 1\)"):
        call(torch.stack([torch.eye(5), a]).to(DEVICE))


GRADIENTS = {
    "eigh": lambda a: (lambda e: e[1].abs() + e[0].unsqueeze(-2))(torch.linalg.eigh(a + a.mH)),
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a + a.mH),
    "svd": lambda a: (lambda d: d[0].abs() + d[1].unsqueeze(-2) + d[2].mH.abs())(
        torch.linalg.svd(a, full_matrices=False)
    ),
    "svdvals": torch.linalg.svdvals,
    "pinv": torch.linalg.pinv,
    "nuclear norm": lambda a: torch.linalg.matrix_norm(a, "nuc"),
    "cond": torch.linalg.cond,
    "lstsq": lambda a: torch.linalg.lstsq(a, a.flip(-1))[0],
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, dtype):
    close_gradients(GRADIENTS[name], general(2, 6, 6, dtype=dtype) + 3 * torch.eye(6))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rank_and_pseudo_inverse(dtype):
    a = general(3, 9, 4, dtype=dtype) @ general(3, 4, 7, dtype=dtype)
    assert torch.equal(torch.linalg.matrix_rank(a.to(DEVICE)).cpu(), torch.full((3,), 4))
    close(torch.linalg.pinv(a.to(DEVICE)), torch.linalg.pinv(a), scale=50)
    square = a @ a.mH
    for function in (torch.linalg.matrix_rank, torch.linalg.pinv):
        close(
            function(square.to(DEVICE), hermitian=True).to(dtype),
            function(square, hermitian=True).to(dtype),
            scale=1000,
        )


DRIVERS = [None, "gels", "gelsy", "gelsd", "GELSS"]


def check_lstsq(a, b, scale=100, **options):
    expected = torch.linalg.lstsq(a, b, **options)
    actual = torch.linalg.lstsq(on_device(a), on_device(b), **options)
    for x, y in zip(actual, expected, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape and x.stride() == y.stride()
    close(actual.solution, expected.solution, scale)
    close(actual.residuals, expected.residuals, scale)
    close(actual.singular_values, expected.singular_values)
    assert torch.equal(actual.rank.cpu(), expected.rank)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("m, n", [(0, 3), (3, 0), (1, 1), (4, 4), (30, 9), (9, 30)])
def test_lstsq(m, n, driver, dtype):
    for batch in ((), (2,), (2, 3)):
        a, b = general(*batch, m, n, dtype=dtype), general(*batch, m, 5, dtype=dtype)
        check_lstsq(a, b, scale=1000, driver=driver)
        check_lstsq(unaligned(a), b, scale=1000, driver=driver)
        check_lstsq(a, b[..., 0].clone(), scale=1000, driver=driver)


def test_lstsq_of_any_shapes():
    """A right side of one dimension less is vectors only if its sizes are the matrices'."""
    shapes = [s for n in range(4) for s in itertools.product((1, 2, 3), repeat=n)]
    for a in [(3, 2), (2, 3, 2), (1, 3, 2), (3, 3, 2), (2, 1, 3, 2), (1, 1, 1)]:
        a = torch.rand(a, generator=torch.Generator().manual_seed(0))
        for shape in shapes:
            b = torch.rand(shape, generator=torch.Generator().manual_seed(1))
            try:
                expected = torch.linalg.lstsq(a, b)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    torch.linalg.lstsq(on_device(a), on_device(b))
            else:
                actual = torch.linalg.lstsq(on_device(a), on_device(b))
                for got, want in zip(actual, expected, strict=True):
                    assert_close(got.cpu(), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (2, 3, 3), (0, 3)], ids=str)
def test_lstsq_without_right_side(shape):
    """LAPACK's other drivers for ranks fail, or end the process."""
    a = general(*shape, dtype=torch.float32)
    for driver in ("gelsy", "gels"):
        check_lstsq(a, a[..., :0], driver=driver)


@pytest.mark.parametrize("driver", [None, "gelsy", "gelsd", "gelss"])
def test_lstsq_of_deficient_rank(driver):
    def check(a, b, **options):
        # CPU torch's gelsy takes what lies in its uninitialised array of pivots for columns that
        # must not be moved, and finds another rank then.
        expected = torch.linalg.lstsq(a, b, driver="gelsd", **options)
        actual = torch.linalg.lstsq(a.to(DEVICE), b.to(DEVICE), driver=driver, **options)
        close(actual.solution, expected.solution, scale=100)
        assert torch.equal(actual.rank.cpu(), expected.rank)

    a = general(3, 12, 4, dtype=torch.float64) @ general(3, 4, 7, dtype=torch.float64)
    b = general(3, 12, 2, dtype=torch.float64)
    check(a, b)
    check(a.mT, b[:, :7])
    check(torch.zeros(5, 3), torch.ones(5, 2))
    # Values below a part of the largest count as nothing.
    graded = torch.diag(torch.tensor([1.0, 1e-1, 1e-3], dtype=torch.float64))
    check(graded, torch.ones(3, 1, dtype=torch.float64), rcond=1e-2)


@pytest.mark.parametrize("m, n", [(5, 3), (3, 5)])
@pytest.mark.parametrize("start", [(0,), (7,), None])
def test_strides_of_lstsq_into_out(m, n, start):
    """A tensor that has memory keeps its strides, or is resized to contiguous ones."""
    a, b = general(m, n, dtype=torch.float64), general(m, 2, dtype=torch.float64)
    for dtype in (torch.float64, torch.complex128):
        strides = []
        for device in ("cpu", DEVICE):
            shape = (n, 2) if start is None else start
            solution = torch.empty(shape, dtype=dtype, device=device)
            others = [
                torch.empty(0, dtype=t, device=device) for t in (a.dtype, torch.int64, a.dtype)
            ]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.linalg.lstsq(a.to(device), b.to(device), out=(solution, *others))
            strides.append((solution.shape, solution.stride()))
        assert strides[0] == strides[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, n", [(5, 3), (3, 3), (3, 5)])
def test_gels_of_zeros(m, n, dtype):
    # One of a batch too: LAPACK's driver gives zeros, also for the residuals.
    zero, full = torch.zeros(m, n, dtype=dtype), general(m, n, dtype=dtype)
    b = general(2, m, 2, dtype=dtype)
    check_lstsq(zero, b[0], driver="gels")
    check_lstsq(torch.stack([full, zero]), b, driver="gels")
    check_lstsq(zero.expand(2, 3, m, n), b.unsqueeze(1).expand(2, 3, m, 2), driver="gels")


@pytest.mark.parametrize("driver", DRIVERS)
def test_lstsq_broadcasts(driver):
    a, b = general(2, 1, 6, 3, dtype=torch.float64), general(1, 3, 6, 2, dtype=torch.float64)
    check_lstsq(a, b, driver=driver)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.linalg.lstsq(torch.ones(3, 2).to(d), torch.ones(4, 2).to(d)),
        lambda d: torch.linalg.lstsq(torch.ones(3).to(d), torch.ones(3).to(d)),
        lambda d: torch.linalg.lstsq(torch.ones(2, 3, 2).to(d), torch.ones(3).to(d)),
        lambda d: torch.linalg.lstsq(torch.ones(3, 2).to(d), torch.ones(3, 2).double().to(d)),
        lambda d: torch.linalg.lstsq(torch.ones(3, 2).to(d), torch.ones(3, 2).to(d), driver="x"),
        lambda d: torch.linalg.lstsq(
            torch.diag(torch.tensor([1.0, 0, 2])).to(d), torch.ones(3, 1).to(d), driver="gels"
        ),
        lambda d: torch.linalg.lstsq(
            torch.diag(torch.tensor([1.0, float("inf"), 2])).to(d),
            torch.ones(3, 1).to(d),
            driver="gels",
        ),
        lambda d: torch.linalg.lstsq(
            torch.stack([torch.zeros(3, 2), torch.eye(3, 2), torch.eye(3, 2) * torch.eye(2)[0]]).to(
                d
            ),
            torch.ones(3, 3, 1).to(d),
            driver="gels",
        ),
        lambda d: torch.linalg.lstsq(
            torch.full((3, 3), float("nan")).to(d), torch.ones(3, 1).to(d)
        ),
        lambda d: torch.linalg.eigh(torch.ones(3, 2).to(d)),
        lambda d: torch.linalg.eigh(torch.ones(3, 3).to(d), UPLO="x"),
        lambda d: torch.linalg.svd(torch.ones(3, 3).to(d), driver="gesvd"),
        lambda d: torch.linalg.svd(torch.ones(3, 3).int().to(d)),
        lambda d: torch.linalg.ldl_factor_ex(torch.zeros(3, 3).to(d), check_errors=True),
    ],
)
def test_bad_input_raises_what_the_cpu_raises(call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(type(expected.value)):
        call(DEVICE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("conjugated", [False, True])
@pytest.mark.parametrize("n, batch", CASES)
def test_ldl(n, batch, conjugated, dtype):
    a = general(*batch, n, n, dtype=dtype)
    a = a + (a.mH if conjugated else a.mT)
    wanted, wanted_pivots = torch.linalg.ldl_factor(a, hermitian=conjugated)
    for x in (a.tril(), a.mT.contiguous().mT, unaligned(a)):
        ld, pivots = torch.linalg.ldl_factor(on_device(x), hermitian=conjugated)
        assert torch.equal(pivots.cpu(), wanted_pivots)
        close(ld, wanted, scale=3000)
    b = general(*batch, n, 4, dtype=dtype)
    for right in (b, b.mT.contiguous().mT, unaligned(b), b[..., :1].clone()):
        x = torch.linalg.ldl_solve(
            wanted.to(DEVICE), wanted_pivots.to(DEVICE), on_device(right), hermitian=conjugated
        )
        close(a.to(DEVICE) @ x, right, scale=3000)


@pytest.mark.parametrize("conjugated", [False, True])
def test_ldl_of_zeros_on_the_diagonal(conjugated):
    # Pivots of two rows only.
    a = torch.diag_embed(torch.arange(1.0, 8), 1).to(torch.complex64) * (1 + 1j)
    a = a + (a.mH if conjugated else a.mT)
    ld, pivots, info = torch.linalg.ldl_factor_ex(a.to(DEVICE), hermitian=conjugated)
    wanted = torch.linalg.ldl_factor_ex(a, hermitian=conjugated)
    assert torch.equal(pivots.cpu(), wanted.pivots) and int(info) == 0 and bool((pivots < 0).all())
    close(ld, wanted.LD)


def test_ldl_solve_broadcasts():
    a = hermitian(6, (3, 1), torch.float64)
    b = general(1, 2, 6, 4, dtype=torch.float64)
    ld, pivots = torch.linalg.ldl_factor(a.to(DEVICE))
    close(a.to(DEVICE) @ torch.linalg.ldl_solve(ld, pivots, b.to(DEVICE)), b.expand(3, 2, 6, 4))


def test_ldl_info():
    a = torch.stack([torch.eye(4), torch.zeros(4, 4), torch.diag(torch.tensor([1.0, 2, 0, 0]))])
    expected = torch.linalg.ldl_factor_ex(a)
    actual = torch.linalg.ldl_factor_ex(a.to(DEVICE))
    for x, y in zip(actual, expected, strict=True):
        assert torch.equal(x.cpu(), y)


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_a_gpu():
    run_as_gpu(__file__)
