"""Products of sparse matrices against CPU torch: with dense ones and each other, reductions,
sampled products, and their gradients."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu
from tests.ops.test_sparse_layouts import LAYOUTS, converted, dense, made, parts, same
from tests.refusals import raise_the_same

pytestmark = pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC|invariant).*")

# CPU torch has no products of BSC matrices.
WITH_DENSE = LAYOUTS[:4]


def factor(device, rows=8, columns=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(rows, columns, generator=generator).to(dtype).to(device)


@pytest.mark.parametrize("layout", WITH_DENSE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
def test_with_dense(layout, dtype):
    def of(device):
        return made(device, layout).to(dtype)

    same(lambda device: of(device) @ factor(device, dtype=dtype))
    same(lambda device: of(device) @ factor(device, dtype=dtype)[:, 0])
    if layout != "bsr":
        same(lambda device: factor(device, dtype=dtype).t() @ of(device).t())
    same(lambda device: of(device) @ factor(device, 5, 8, dtype=dtype).t())
    nothing, row, full = torch.full((6, 5), torch.nan), torch.ones(5), torch.ones(6, 5)
    for start, beta in ((nothing, 0), (row, 2), (full, 3)):
        same(
            lambda device, s=start, b=beta: torch.addmm(
                s.to(dtype).to(device), of(device), factor(device, dtype=dtype), beta=b, alpha=0.5
            )
        )
    same(
        lambda device: torch.ones(6, 5, dtype=dtype, device=device).addmm_(
            of(device), factor(device, dtype=dtype), beta=2
        )
    )


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int32, torch.uint8], ids=str
)
def test_coo_in_other_dtypes(dtype):
    """Halves are summed in float, so CPU torch's sums in float are their reference."""
    sparse, other = dense(dtype=dtype), factor("cpu", dtype=dtype)
    actual = (sparse.to("ocl").to_sparse() @ other.to("ocl")).cpu()
    wide = torch.float32 if dtype.is_floating_point else dtype
    assert_close(actual, (sparse.to(wide).to_sparse() @ other.to(wide)).to(dtype))
    if dtype.is_floating_point:  # CPU torch has no such CSR products
        assert_close((sparse.to("ocl").to_sparse_csr() @ other.to("ocl")).cpu(), actual)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 15, 16, 31, 64, 100, 259])
def test_widths(layout, columns):
    """All paths over columns; rows of many entries and none."""
    matrix = torch.randn(70, 90) * (torch.rand(70, 90) > 0.7)
    matrix[10:20], matrix[33] = 0, torch.randn(90)
    other = torch.randn(90, columns)
    for dtype in (torch.float32, torch.float64):
        same(
            lambda device, t=dtype: (
                converted(matrix.to(t).to(device), layout) @ other.to(t).to(device)
            )
        )


def test_uncoalesced_and_empty():
    indices = torch.tensor([[3, 0, 3, 1, 3], [2, 4, 2, 0, 1]])
    sparse = torch.sparse_coo_tensor(indices, torch.arange(5.0), (4, 5))
    same(lambda device: sparse.to(device) @ factor(device, 5))
    for sizes in ((0, 5), (4, 0), (4, 5)):
        for layout in ("coo", "csr"):
            same(
                lambda device, s=sizes, n=layout: (
                    converted(torch.zeros(s, device=device), n) @ torch.ones(s[1], 3, device=device)
                )
            )
    same(lambda device: made(device, "coo") @ torch.ones(8, 0, device=device))
    out = torch.empty(5, 6).t()
    same(lambda device: torch.mm(made(device, "coo"), factor(device), out=out.to(device)))


def test_rows_that_do_not_ascend_in_a_coalesced_matrix():
    """PyTorch Geometric calls its transposed matrices coalesced, whose columns ascend."""

    def of(device):
        turned = made(device, "coo").coalesce().t()._coalesced_(True)
        dense_factor = factor(device, turned.shape[1])
        first, again = turned @ dense_factor, turned @ dense_factor
        turned._indices()[:, 0] = 0  # the same memory with other rows
        return first, again, turned @ dense_factor

    for actual, expected in zip(of("ocl"), of("cpu"), strict=True):
        assert_close(actual.cpu(), expected)


def test_batches():
    batch = torch.stack([dense(), dense().flip(0)])
    same(lambda device: torch.bmm(batch.to(device).to_sparse(), factor(device).expand(2, 8, 5)))
    raise_the_same(
        [
            lambda device: torch.bmm(batch.to(device).to_sparse(), factor(device)),
            lambda device: torch.bmm(
                batch.to(device).to_sparse(), factor(device, 7).expand(2, 7, 5)
            ),
            lambda device: torch.bmm(batch.to(device).to_sparse(), factor(device).expand(3, 8, 5)),
        ]
    )


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_with_each_other(layout):
    def product(device):
        return (made(device, layout) @ converted(dense(8, 6).to(device), layout)).to_dense()

    same(product)
    # MKL leaves its result in no order, so it is compared as dense.
    same(lambda device: (made(device, layout) @ (made(device, layout).t())).to_dense())
    if layout == "csr":
        same(
            lambda device: torch.addmm(
                torch.eye(6).to(device).to_sparse_csr(),
                made(device, "csr"),
                converted(dense(8, 6).to(device), "csr"),
                beta=2,
                alpha=3,
            ).to_dense()
        )
    same(lambda device: torch.hspmm(made(device, "coo"), factor(device)))
    raise_the_same(
        [
            lambda device: made(device, layout) @ made(device, layout),
            lambda device: made(device, layout) @ made(device, layout).t().double(),
        ]
    )


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr"])
def test_sums(layout):
    other = dense().flip(0)
    same(lambda device: torch.ones(6, 8, device=device) + made(device, "csr"))
    same(lambda device: made(device, "csc") + torch.ones(6, 8, device=device))
    if layout == "csr":
        same(lambda d: torch.add(made(d, layout), converted(other.to(d), layout), alpha=2))
        same(lambda d: made(d, layout) * converted(other.to(d), layout))
        same(lambda d: made(d, layout) * other.to(d))
        raise_the_same(
            [
                lambda d: made(d, layout) + made(d, layout).double(),
                lambda d: made(d, layout) + made(d, layout).to_sparse_csc(),
                lambda d: made(d, layout) + converted(dense(8, 6).to(d), layout),
            ]
        )
    else:
        twice = (made("ocl", layout) + made("ocl", layout)).to_dense().cpu()
        assert_close(twice, 2 * dense())


@pytest.mark.parametrize("layout", WITH_DENSE)
def test_products_that_are_refused(layout):
    raise_the_same(
        [
            lambda device: made(device, layout) @ factor(device, 7),
            lambda device: made(device, layout) @ factor(device).double(),
            lambda device: made(device, layout) @ factor(device, 7)[:, 0],
            lambda device: made(device, layout) @ factor(device)[:, 0].double(),
            lambda device: torch.addmm(
                torch.ones(2, 5).to(device), made(device, layout), factor(device)
            ),
            lambda device: torch.addmm(
                torch.ones(6, 5).double().to(device), made(device, layout), factor(device)
            ),
        ]
    )


REDUCTIONS = ["sum", "mean", "amax", "amin"]


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize(
    ("dtype", "index"),
    [(torch.float32, torch.int64), (torch.float64, torch.int32), (torch.bfloat16, torch.int64)],
    ids=str,
)
def test_reductions(reduce, dtype, index):
    """Rows without entries give 0; NaNs stay; gradients go to entries and the dense matrix."""
    results = []
    for device in ("cpu", "ocl"):
        matrix = made(device, "csr").to(dtype)
        matrix = torch.sparse_csr_tensor(
            matrix.crow_indices().to(index), matrix.col_indices().to(index), matrix.values(), (6, 8)
        ).requires_grad_()
        other = factor(device, 8, 19, dtype=dtype).requires_grad_()
        out = torch.sparse.mm(matrix, other, reduce)
        weights = torch.arange(float(out.numel()), device=device).view(out.shape).to(dtype)
        grads = torch.autograd.grad((out * weights / 100).sum(), [matrix, other])
        with torch.no_grad():
            plain = torch.sparse.mm(matrix, other, reduce)
            nan = torch.sparse.mm(matrix, other * torch.tensor(torch.nan), reduce)
        results.append([out, plain, nan, grads[1], *parts(grads[0])])
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    for actual, expected in zip(results[1], results[0], strict=True):
        if isinstance(expected, torch.Tensor):
            assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True, **tolerance)
        else:
            assert actual == expected


def test_reductions_that_are_refused():
    mm = torch.sparse.mm
    raise_the_same(
        [
            lambda device: mm(made(device, "csr"), factor(device), "prod"),
            lambda device: mm(made(device, "csr"), factor(device), "most"),
            lambda device: mm(made(device, "csr"), factor(device, 7), "sum"),
            lambda device: mm(made(device, "csr"), factor(device).double(), "sum"),
            lambda device: mm(made(device, "csr"), factor(device)[:, 0], "sum"),
            lambda device: mm(made(device, "csc"), factor(device), "sum"),
            lambda device: mm(made(device, "csr").int(), factor(device).int(), "amax"),
        ]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("inner", [0, 1, 5, 16, 37, 130])
def test_sampled(dtype, inner):
    torch.manual_seed(inner)
    a = torch.randn(6, inner).to(dtype)
    b = torch.randn(inner, 8).to(dtype)
    for beta, transposed in itertools.product((0.5, 0), (False, True)):
        right = b.t().contiguous().t() if transposed else b
        same(
            lambda device, r=right, x=beta: torch.sparse.sampled_addmm(
                made(device, "csr").to(dtype), a.to(device), r.to(device), beta=x, alpha=2
            )
        )


def entries(rows, columns, density, dtype, seed):
    """A matrix on the CPU, of whole numbers, whose rows have many entries, few and none."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(rows, columns, generator=generator) < density
    kept &= torch.rand(rows, 1, generator=generator) < 0.7
    if rows > 2:
        kept[2] = torch.rand(columns, generator=generator) < min(1, 10 * density)
    values = torch.randint(-3, 4, (rows, columns), generator=generator)
    places = kept.nonzero().t()
    return torch.sparse_coo_tensor(places, values[kept].to(dtype), (rows, columns)).coalesce()


# By rows, and by sorting: many columns for few entries.
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "density"),
    [
        (50, 70, 130, 0.2),
        (1, 1, 1, 1.0),
        (3, 40, 64, 0.3),
        (300, 20, 40, 0.01),
        (9, 8, 90000, 1e-4),
    ],
)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.complex64, torch.bfloat16], ids=str
)
def test_sparse_with_sparse(rows, inner, columns, density, dtype):
    a, b = entries(rows, inner, density, dtype, 1), entries(inner, columns, density, dtype, 2)
    # Entries whose sum is 0 stay, as on the CPU, which has no order of columns and no halves.
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    expected = torch.sparse.mm(a.to(wide), b.to(wide)).coalesce()
    found = torch.sparse.mm(a.to("ocl"), b.to("ocl"))
    assert found.is_coalesced() and found.dtype == dtype and found.shape == expected.shape
    assert torch.equal(found._indices().cpu(), expected.indices())
    assert_close(found._values().cpu(), expected.values().to(dtype), rtol=0, atol=0)


def test_sparse_with_sparse_of_any_order():
    """Entries that are no ascending ones, repeated, or called coalesced though they aren't."""
    a, b = entries(30, 40, 0.2, torch.float32, 1), entries(40, 50, 0.2, torch.float32, 2)
    expected = torch.sparse.mm(a, b).to_dense()

    def shuffled(matrix, called):
        order = torch.randperm(matrix._nnz(), generator=torch.Generator().manual_seed(3))
        places, values = matrix.indices()[:, order], matrix.values()[order]
        if not called:
            places, values = places.repeat(1, 2), values.repeat(2) / 2
        return torch.sparse_coo_tensor(places, values, matrix.shape).to("ocl")._coalesced_(called)

    for called in (False, True):
        found = torch.sparse.mm(shuffled(a, called), shuffled(b, called))
        assert_close(found.to_dense().cpu(), expected)
    nothing = torch.sparse_coo_tensor(size=(40, 7)).to("ocl")
    assert torch.sparse.mm(a.to("ocl"), nothing)._nnz() == 0


def test_sampled_batches_and_refusals():
    sampled = torch.sparse.sampled_addmm
    batch = torch.arange(1.0, 25).view(2, 3, 4)
    a, b = torch.randn(2, 3, 5), torch.randn(2, 5, 4)
    same(lambda device: sampled(batch.to(device).to_sparse_csr(), a.to(device), b.to(device)))
    # A single pattern for the matrices of a batch.
    raise_the_same(
        [
            lambda device: sampled(made(device, "csr"), factor(device), factor(device)),
            lambda device: sampled(made(device, "csc"), factor(device, 6), factor(device, 5, 8)),
            lambda device: sampled(
                made(device, "csr").half(), factor(device, 6).half(), factor(device, 5, 8).half()
            ),
            lambda device: sampled(
                made(device, "csr"), factor(device, 6).double(), factor(device, 5, 8)
            ),
        ]
    )


GRADIENTS = {
    "sparse @ dense": (["coo", "csr", "csc"], lambda s, d: s @ d),
    "dense @ sparse": (["coo", "csr", "csc"], lambda s, d: d.t() @ s.t()),
    "sparse.mm": (["coo", "csr"], torch.sparse.mm),
    "mv": (["coo", "csr"], lambda s, d: s @ d[:, 0]),
    "addmm": (
        ["coo", "csr"],
        lambda s, d: torch.sparse.addmm(d[:6] * 0 + 1, s, d, beta=2, alpha=3),
    ),
    "sampled": (
        ["csr"],
        lambda s, d: torch.sparse.sampled_addmm(s, d[:6], d.t(), beta=0.5).to_dense(),
    ),
    "sparse @ sparse": (["coo"], lambda s, d: torch.sparse.mm(s, s.t()).to_dense() @ d[:6]),
}


@pytest.mark.parametrize(
    ("name", "layout"), [(n, layout) for n, (layouts, _) in GRADIENTS.items() for layout in layouts]
)
def test_gradients(name, layout):
    results = []
    for device in ("cpu", "ocl"):
        sparse = made(device, layout).requires_grad_()
        other = factor(device).requires_grad_()
        out = GRADIENTS[name][1](sparse, other)
        weights = torch.arange(float(out.numel()), device=device).view(out.shape)
        grads = torch.autograd.grad((out * weights).sum(), [sparse, other])
        assert all(g.device.type == device for g in grads)
        results.append([(g if g.layout == torch.strided else g.to_dense()).cpu() for g in grads])
    for actual, expected in zip(results[1], results[0], strict=True):
        assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_gradients_of_reductions_are_rounded_once(reduce, dtype):
    torch.manual_seed(0)
    pattern = (torch.rand(9, 8) > 0.5).to(dtype)
    weight, cotangent = torch.randn(8, 33).to(dtype), torch.randn(9, 33).to(dtype)

    def gradient(device, dtype):
        matrix = pattern.to(device, dtype).to_sparse_csr().requires_grad_()
        out = torch.sparse.mm(matrix, weight.to(device, dtype), reduce)
        return torch.autograd.grad(out, matrix, cotangent.to(device, dtype))[0].values().cpu()

    exact = gradient("cpu", torch.float64)
    found = gradient("ocl", dtype)
    assert found.dtype == dtype
    error = (found.double() - exact).abs()
    assert (error <= exact.abs() * torch.finfo(dtype).eps * 0.51 + 1e-5).all()


@pytest.mark.as_gpu
def test_kernels_for_gpus():
    """Neighbours that have neighbouring columns, and an entry for each."""
    run_as_gpu(__file__, "-k", "widths or reductions or sampled or other_dtypes or with_sparse")
