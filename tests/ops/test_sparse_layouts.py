"""Sparse tensors of all layouts against CPU torch: conversions, elementwise, sums, softmax, and
what autograd makes of them. Products: test_sparse_products.py."""

import warnings

import pytest
import torch
from torch.testing import assert_close

from tests.refusals import raise_the_same

pytestmark = pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC|invariant).*")
warnings.filterwarnings("ignore", message="Sparse (CSR|CSC|BSR|BSC|invariant)")

LAYOUTS = ["coo", "csr", "csc", "bsr", "bsc"]
COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def dense(rows=6, columns=8, dtype=torch.float32):
    """Half of it is 0, and a row is empty."""
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(rows, columns, generator=generator)
    values = values * (torch.rand(rows, columns, generator=generator) > 0.5)
    values[2 : 2 + rows // 6] = 0
    return (values * 4).to(dtype) if not dtype.is_floating_point else values.to(dtype)


def converted(tensor, layout):
    if layout == "coo":
        return tensor.to_sparse()
    block = ((2, 2),) if layout[0] == "b" else ()
    return getattr(tensor, "to_sparse_" + layout)(*block)


def made(device, layout, dtype=torch.float32):
    return converted(dense(dtype=dtype), layout).to(device)


def parts(tensor):
    """Everything that makes the tensor, on the CPU."""
    if not isinstance(tensor, torch.Tensor):
        return [tensor]
    found = [tensor.layout, tensor.dtype, tensor.shape]
    if tensor.layout in COMPRESSED:
        found += [getattr(tensor, name)() for name in COMPRESSED[tensor.layout]]
        found += [tensor.values()]
    elif tensor.layout == torch.sparse_coo:
        found += [tensor.is_coalesced(), tensor._indices(), tensor._values()]
    else:
        found += [tensor]
    return [p.detach().cpu() if isinstance(p, torch.Tensor) else p for p in found]


def same(run):
    expected, actual = run("cpu"), run("ocl")
    if isinstance(actual, torch.Tensor):
        assert actual.device.type == "ocl"
    for a, e in zip(parts(actual), parts(expected), strict=True):
        if isinstance(e, torch.Tensor):
            assert_close(a, e, equal_nan=True)
        else:
            assert a == e


@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("start", ["dense", *LAYOUTS])
def test_conversions(start, to):
    def run(device):
        tensor = dense().to(device) if start == "dense" else made(device, start)
        return converted(tensor, to)

    if start[0] == "b" and to in ("csr", "csc"):
        raise_the_same([run])
    else:
        same(run)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool], ids=str
)
def test_conversions_of_dtypes(layout, dtype):
    same(lambda device: converted(dense(dtype=dtype).to(device), layout))
    same(lambda device: made(device, layout, dtype).to_dense())
    same(lambda device: converted(dense().double().to(device), layout).to(torch.float32))


def test_batches_and_dense_dimensions():
    cube = torch.arange(1.0, 13).view(2, 2, 3)
    batch = torch.stack([cube, cube + 1])
    same(lambda device: cube.to(device).to_sparse_csr())
    same(lambda device: cube.to(device).to_sparse_csr().to_sparse())
    same(lambda device: cube.to(device).to_sparse_csr().to_sparse_csc())
    same(lambda device: batch.to(device).to_sparse_csr().to_sparse())
    same(lambda device: batch.to(device).to_sparse_csr().to_dense())
    same(lambda device: cube.to(device).to_sparse_bsr((2, 1)))
    same(lambda device: cube.to(device).to_sparse_csr(dense_dim=1))
    same(lambda device: cube.to(device).to_sparse_csr(dense_dim=1).to_sparse_bsr((1, 2)))
    same(lambda device: cube.to(device).to_sparse(2))
    same(lambda device: cube.to(device).to_sparse_bsr((2, 1)).to_sparse_bsc((2, 1)))


def test_empty_tensors():
    for sizes in ((0, 5), (5, 0), (0, 0), (4, 5)):
        for layout in ("coo", "csr", "csc"):
            same(lambda device, s=sizes, n=layout: converted(torch.zeros(s, device=device), n))
            same(
                lambda device, s=sizes, n=layout: converted(
                    torch.zeros(s, device=device), n
                ).to_dense()
            )
        same(
            lambda device, s=sizes: converted(torch.zeros(s, device=device), "csr").to_sparse_csc()
        )


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_indices(index):
    """Rows by hand, with empty ones at the start, in a row and at the end."""
    rows = torch.tensor([1, 1, 4, 4, 4], dtype=index)
    same(lambda device: torch._convert_indices_from_coo_to_csr(rows.to(device), 7))
    same(lambda device: torch._convert_indices_from_coo_to_csr(rows[:0].to(device), 7))
    same(lambda device: torch._convert_indices_from_coo_to_csr(rows.to(device), 7, out_int32=True))
    offsets = torch.tensor([0, 0, 2, 2, 2, 5, 5, 5], dtype=index)
    columns = torch.tensor([0, 3, 1, 2, 4], dtype=index)
    for transpose in (False, True):
        same(
            lambda device, t=transpose: torch._convert_indices_from_csr_to_coo(
                offsets.to(device), columns.to(device), transpose=t
            )
        )
    large = torch.randint(0, 5000, (20000,)).sort().values.to(index)
    same(lambda device: torch._convert_indices_from_coo_to_csr(large.to(device), 5000))
    crow = torch._convert_indices_from_coo_to_csr(large, 5000)
    same(lambda device: torch._convert_indices_from_csr_to_coo(crow.to(device), large.to(device)))


BROKEN = {
    "start": ([1, 2, 2, 3], [0, 2, 1]),
    "end": ([0, 2, 2, 4], [0, 2, 1]),
    "falling": ([0, 2, 1, 3], [0, 2, 1]),
    "unsorted": ([0, 2, 2, 3], [2, 0, 1]),
    "twice": ([0, 2, 2, 3], [0, 0, 1]),
    "above": ([0, 2, 2, 3], [0, 5, 1]),
    "below": ([0, 2, 2, 3], [0, -1, 1]),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("make", [torch.sparse_csr_tensor, torch.sparse_csc_tensor])
def test_invariants(name, make):
    offsets, plain = map(torch.tensor, BROKEN[name])
    errors = []
    for device in ("cpu", "ocl"):
        with pytest.raises(RuntimeError) as error:
            make(
                offsets.to(device),
                plain.to(device),
                torch.ones(3, device=device),
                (3, 3),
                check_invariants=True,
            )
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    good = make(
        torch.tensor([0, 2, 2, 3]).to("ocl"),
        torch.tensor([0, 2, 1]).to("ocl"),
        torch.ones(3).to("ocl"),
        (3, 3),
        check_invariants=True,
    )
    assert good._nnz() == 3 and good.device.type == "ocl"


def test_conversions_that_are_refused():
    raise_the_same(
        [
            lambda device: made(device, "csr").to_sparse_bsr((5, 1)),
            lambda device: made(device, "csr").to_sparse_bsr((2,)),
            lambda device: made(device, "csr").to_sparse_bsr((0, 1)),
            lambda device: made(device, "bsr").to_sparse_bsr((1, 1)),
            lambda device: torch.ones(2, 2, 2).to(device).to_sparse_csr().to_sparse_bsr((1, 1)),
            lambda device: torch.arange(8.0).view(2, 2, 2).to(device).to_sparse_csr(),
        ]
    )


UNARY = (
    "abs asin asinh atan atanh ceil deg2rad erf expm1 floor frac isinf isnan isneginf isposinf "
    "log1p neg rad2deg relu round sgn sign signbit sin sinh sqrt tan tanh trunc"
).split()


@pytest.mark.parametrize("layout", ["coo", "csr", "bsc"])
@pytest.mark.parametrize("name", UNARY)
def test_elementwise(name, layout):
    same(lambda device: getattr(torch, name)(made(device, layout)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_ops(layout):
    same(lambda device: made(device, layout) * 2)
    same(lambda device: made(device, layout).clone())
    same(lambda device: made(device, layout).zero_())
    same(lambda device: torch.zeros_like(made(device, layout)))
    same(lambda device: made(device, layout).t())
    same(lambda device: made(device, layout).sum())
    if layout in ("coo", "csr"):
        same(lambda device: made(device, layout).select(0, 1))
    same(lambda device: torch.arange(48.0).view(6, 8).to(device).sparse_mask(made(device, layout)))
    same(
        lambda device: (
            made(device, layout).coalesce().values()
            if layout == "coo"
            else made(device, layout).values()
        )
    )


def test_ops_of_coo():
    same(lambda device: made(device, "coo") ** 2)
    same(lambda device: made(device, "coo").norm())
    same(lambda device: made(device, "coo").unsqueeze(1))
    same(lambda device: made(device, "coo").permute(1, 0))
    same(lambda device: torch.cat([made(device, "coo"), made(device, "coo")], 1))
    same(lambda device: torch.narrow_copy(made(device, "coo"), 0, 1, 3))
    same(lambda device: torch.div(made(device, "coo"), 2, rounding_mode="floor"))
    same(lambda device: made(device, "coo").any())
    wanted = torch.tensor([1, 0, 5, 1])
    for dim in (0, 1):
        same(
            lambda device, d=dim: made(device, "coo").index_select(d, wanted.to(device)).coalesce()
        )
    hybrid = torch.arange(1.0, 13).view(2, 2, 3)
    same(
        lambda device: (
            hybrid.to(device).to_sparse(1).index_select(2, torch.tensor([2, 0]).to(device))
        )
    )
    raise_the_same(
        [
            lambda d: made(d, "coo").index_select(1, torch.tensor([9]).to(d)),
            lambda d: made(d, "coo").index_select(2, torch.tensor([0]).to(d)),
            lambda d: made(d, "coo").index_select(0, torch.tensor([0.5]).to(d)),
        ]
    )


def test_masks():
    sparse = torch.tensor([[1.0, 0, 2], [0, 3, 0]]).to_sparse()
    mask = torch.tensor([[1.0, 1, 0], [0, 1, 1]]).to_sparse()
    twice = torch.sparse_coo_tensor([[0, 0, 1], [0, 0, 1]], torch.ones(3), (2, 3))
    same(lambda device: sparse.to(device).sparse_mask(mask.to(device)))
    same(lambda device: twice.to(device).sparse_mask(mask.to(device)))
    same(lambda device: sparse.to(device).sparse_mask(twice.to(device)))
    same(lambda device: sparse.to(device)._sparse_mask_projection(mask.to(device)))
    for accumulate in (False, True):
        same(
            lambda device, a=accumulate: twice.to(device)._sparse_mask_projection(
                mask.to(device), a
            )
        )
    same(lambda device: sparse.to(device)._sparse_mask_projection(twice.to(device), True))
    raise_the_same([lambda device: sparse.to(device).sparse_mask(mask.t().to(device))])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_sums(dtype):
    for dims in (0, 1, (0, 1)):
        same(lambda device, d=dims: made(device, "csr", dtype).sum(d, keepdim=True))
        same(lambda device, d=dims: torch.sparse.sum(made(device, "coo", dtype), d))
    for dims in ([0], [1], [0, 1]):
        same(lambda device, d=dims: torch._sparse_csr_prod(made(device, "csr", dtype), d, True))
    same(lambda device: made(device, "csr").sum(1, keepdim=True, dtype=torch.float64))
    raise_the_same([lambda device: made(device, "csr").sum(1)])


@pytest.mark.parametrize("function", [torch.sparse.softmax, torch.sparse.log_softmax])
@pytest.mark.parametrize("sparse_dims", [2, 3])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax(function, sparse_dims, dim):
    """With minus infinities that aren't there, dense dimensions, and gradients."""
    data = torch.stack([dense(4, 5), dense(4, 5) * 3]).permute(1, 2, 0).contiguous()
    results = []
    for device in ("cpu", "ocl"):
        sparse = data.to(device).to_sparse(sparse_dims).requires_grad_()
        out = function(sparse, dim)
        weights = torch.arange(40.0, device=device).view(4, 5, 2)
        (grad,) = torch.autograd.grad((out.to_dense() * weights).sum(), sparse)
        results.append([*parts(out), *parts(grad.coalesce())])
    for actual, expected in zip(results[1], results[0], strict=True):
        if isinstance(expected, torch.Tensor):
            assert_close(actual, expected)
        else:
            assert actual == expected
    raise_the_same(
        [
            lambda device: function(data.to(device).to_sparse(), 5),
            lambda device: function(data.to(device).int().to_sparse(), 0),
        ]
    )


def test_softmax_in_another_dtype_and_of_nothing():
    same(lambda device: torch.sparse.softmax(made(device, "coo"), 1, dtype=torch.float64))
    same(lambda device: torch.sparse.softmax(made(device, "coo") * 0, 1))
    same(lambda device: torch.sparse.log_softmax(torch.zeros(3, 4).to(device).to_sparse(), 0))


GRADIENTS = {
    "to_dense": lambda s: s.to_dense(),
    "product": lambda s: (s * s).to_dense(),
    "sum": lambda s: torch.sparse.sum(s),
    "sum of rows": lambda s: torch.sparse.sum(s, 1).to_dense(),
    "sum of columns": lambda s: torch.sparse.sum(s, 0).to_dense(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    grads = []
    for device in ("cpu", "ocl"):
        sparse = made(device, "coo").requires_grad_()
        out = GRADIENTS[name](sparse)
        weights = torch.arange(float(out.numel()), device=device).view(out.shape)
        (grad,) = torch.autograd.grad((out * weights).sum(), sparse)
        grads.append(grad.coalesce().to_dense().cpu())
    assert_close(grads[1], grads[0])


def ones(sparse, rows, columns):
    return torch.ones(rows, columns, device=sparse.device)


#: Ops with values that may lie at the same place.
VALUE_GRADIENTS = GRADIENTS | {
    "sum of all by names": lambda s: torch.sparse.sum(s, (0, 1)),
    "product with a matrix": lambda s: torch.sparse.mm(s, ones(s, 4, 2)),
    "addmm": lambda s: torch.sparse.addmm(ones(s, 3, 2), s, ones(s, 4, 2)),
    "softmax": lambda s: torch.sparse.softmax(s, 1).to_dense(),
    "log_softmax": lambda s: torch.sparse.log_softmax(s, 0).to_dense(),
    "coalesced": lambda s: s.coalesce().values(),
    "sum of two": lambda s: (s + s * 2).to_dense(),
    "transposed": lambda s: s.t().to_dense(),
    "mask": lambda s: ones(s, 3, 4).sparse_mask(s.coalesce()).to_dense() * s.to_dense(),
    "square": lambda s: s.square().to_dense(),
    "csr": lambda s: s.to_sparse_csr().to_dense(),
}
PLACES = {
    "twice": [[0, 2, 0, 2, 1], [1, 3, 1, 0, 1]],
    "unsorted": [[2, 1], [0, 0]],
    "none": [[], []],
}


@pytest.mark.parametrize("name", VALUE_GRADIENTS)
@pytest.mark.parametrize("places", PLACES)
def test_gradients_of_values_at_the_same_places(name, places):
    found = []
    for device in ("cpu", "ocl"):
        indices = torch.tensor(PLACES[places], dtype=torch.int64).to(device)
        values = torch.arange(1.0, 1 + indices.shape[1], device=device, requires_grad=True)
        sparse = torch.sparse_coo_tensor(indices, values, (3, 4))
        out = VALUE_GRADIENTS[name](sparse)
        weights = torch.arange(float(out.numel()), device=device).view(out.shape)
        (grad,) = torch.autograd.grad((out * weights).sum(), values)
        found.append((out.detach().cpu(), grad.cpu()))
    for actual, expected in zip(found[1], found[0], strict=True):
        assert_close(actual, expected)


def test_sums_of_hybrid_tensors_have_gradients():
    data = torch.arange(1.0, 25).view(2, 3, 4)
    for dims in ([0], [1], [2], [0, 1], [0, 2], [0, 1, 2]):
        grads = []
        for device in ("cpu", "ocl"):
            sparse = data.to(device).to_sparse(2).requires_grad_()
            out = torch.sparse.sum(sparse, dims)
            out = out.to_dense() if out.is_sparse else out
            (grad,) = torch.autograd.grad(out.square().sum(), sparse)
            grads.append(grad.to_dense().cpu())
        assert_close(grads[1], grads[0])
