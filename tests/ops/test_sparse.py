"""Sparse COO tensors against CPU torch, as far as sparse gradients need them."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.refusals import raise_the_same


def made(coalesced=False, dtype=torch.float32):
    """A sparse [4, 5, 3] tensor with two sparse dimensions and entries at one place."""
    indices = torch.tensor([[3, 0, 3, 1, 3], [2, 4, 2, 0, 1]])
    values = torch.arange(15.0).view(5, 3).to(dtype)
    sparse = torch.sparse_coo_tensor(indices, values, (4, 5, 3))
    return sparse.coalesce() if coalesced else sparse


def same(actual, expected):
    assert actual.device.type == "ocl" and actual.layout == expected.layout
    assert actual.is_coalesced() == expected.is_coalesced()
    assert_close(actual._indices().cpu(), expected._indices())
    assert_close(actual._values().cpu(), expected._values())


def test_making_and_copies():
    host = made()
    device = host.to("ocl")
    same(device, host)
    same(
        torch.sparse_coo_tensor(host._indices().to("ocl"), host._values().to("ocl"), host.shape),
        host,
    )
    same(device.clone(), host)
    back = device.cpu()
    assert back.device.type == "cpu" and torch.equal(back.to_dense(), host.to_dense())
    assert device._nnz() == 5 and device.sparse_dim() == 2 and device.dense_dim() == 1
    assert device.is_sparse and device.shape == host.shape
    empty = torch.sparse_coo_tensor((4, 5), device="ocl")
    assert empty._nnz() == 0 and torch.equal(empty.to_dense().cpu(), torch.zeros(4, 5))
    assert repr(device).replace("device='ocl:0', ", "") == repr(host)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_coalesce_and_to_dense(dtype):
    host = made(dtype=dtype)
    device = host.to("ocl")
    same(device.coalesce(), host.coalesce())
    assert_close(device.to_dense().cpu(), host.to_dense())
    assert_close(device.coalesce().indices().cpu(), host.coalesce().indices())
    assert_close(device.coalesce().values().cpu(), host.coalesce().values())
    one = torch.sparse_coo_tensor([[2]], torch.ones(1), (4,))
    same(one.to("ocl").coalesce(), one.coalesce())


def test_sums_and_scaling():
    host, dense = made(), torch.randn(4, 5, 3)
    device, on_device = host.to("ocl"), dense.to("ocl")
    assert_close((on_device + device).cpu(), dense + host)
    assert_close(
        on_device.clone().add_(device, alpha=-0.5).cpu(), dense.clone().add_(host, alpha=-0.5)
    )
    turned = torch.randn(3, 5, 4).to("ocl").permute(2, 1, 0)
    expected = turned.cpu() + host
    assert_close(turned.add_(device).cpu(), expected)
    both, expected = device + device, host + host
    assert_close(both.to_dense().cpu(), expected.to_dense())
    assert_close(
        device.clone().add_(device, alpha=2).to_dense().cpu(), (host + host * 2).to_dense()
    )
    same(device * 2.5, host * 2.5)
    same(device / 4, host / 4)
    same(-device, -host)
    same(device.clone().mul_(3), host.clone().mul_(3))
    same(on_device.sparse_mask(device.coalesce()), dense.sparse_mask(host.coalesce()))
    same(device.clone().zero_(), host.clone().zero_())
    with pytest.raises(RuntimeError, match="sizes"):
        on_device[:2].add_(device)
    with pytest.raises(RuntimeError, match=r"add\(sparse, dense\)"):
        device + on_device


BINARY = {
    "dense - sparse": lambda d, s, t: d - s,
    "sub with alpha": lambda d, s, t: torch.sub(d, s, alpha=2),
    "sub_": lambda d, s, t: d.sub_(s, alpha=3),
    "sub_ of a turned tensor": lambda d, s, t: d.mT.contiguous().mT.sub_(s),
    "sparse - sparse": lambda d, s, t: s - t,
    "sparse sub_": lambda d, s, t: s.sub_(t),
    "add into": lambda d, s, t: torch.add(d, s, out=torch.empty_like(d)),
    "add into an empty one": lambda d, s, t: torch.add(d, s, out=d.new_empty(0)),
    "add into another dtype": lambda d, s, t: torch.add(d, s, out=d.new_empty(4, 5, 3).double()),
    "add into self": lambda d, s, t: torch.add(d, s, alpha=2, out=d),
    "sub into": lambda d, s, t: torch.sub(d, s, out=torch.empty_like(d)),
    "add sparse into": lambda d, s, t: torch.add(s, t, out=torch.empty_like(s)),
    "dense + other dtype": lambda d, s, t: d + s.double(),
    "integers + sparse": lambda d, s, t: d.long() + s,
    "empty + sparse": lambda d, s, t: torch.zeros_like(s) + t,
    "dense * sparse": lambda d, s, t: d * s,
    "sparse * dense": lambda d, s, t: s * d,
    "sparse * row": lambda d, s, t: s * d[:1],
    "sparse * last dimension": lambda d, s, t: s * d[0, 0],
    "more dimensions * sparse": lambda d, s, t: torch.stack([d, -d]) * s,
    "number of dimension 0 * sparse": lambda d, s, t: d[0, 0, 0] * s,
    "sparse * sparse": lambda d, s, t: s * t,
    "sparse * nothing": lambda d, s, t: s * torch.zeros_like(s),
    "sparse mul_": lambda d, s, t: s.mul_(d),
    "dense mul_": lambda d, s, t: d.mul_(s),
    "mul sparse into": lambda d, s, t: torch.mul(s, t, out=torch.empty_like(s)),
    "div into": lambda d, s, t: torch.div(s, 2, out=torch.empty_like(s)),
}


@pytest.mark.parametrize("coalesced", [False, True])
@pytest.mark.parametrize("name", BINARY)
def test_sums_differences_and_products(name, coalesced):
    s, d = made(coalesced), torch.randn(4, 5, 3)
    t = torch.sparse_coo_tensor([[3, 0, 2], [2, 3, 1]], torch.ones(3, 3) * 2, (4, 5, 3))
    t = t.coalesce() if coalesced else t
    expected = BINARY[name](d.clone(), s.clone(), t)
    actual = BINARY[name](d.to("ocl"), s.to("ocl"), t.to("ocl"))
    assert actual.layout == expected.layout and actual.dtype == expected.dtype
    if actual.is_sparse:
        assert actual.is_coalesced() == expected.is_coalesced()
        assert actual.sparse_dim() == expected.sparse_dim()
        actual, expected = actual.to_dense(), expected.to_dense()
    assert actual.stride() == expected.stride()
    assert_close(actual.cpu(), expected)


def test_gradients_of_differences_and_products():
    grads = []
    for device in ("cpu", "ocl"):
        dense = torch.arange(60.0).view(4, 5, 3).to(device).requires_grad_()
        sparse = made(True).to(device).requires_grad_()
        loss = (dense - sparse).square().sum() + (dense * sparse).to_dense().square().sum()
        loss.backward()
        grads.append([t.grad.to_dense().cpu() for t in (dense, sparse)])
    assert_close(grads[1], grads[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_matrix_products(dtype):
    """With entries at one place, and none; the sum's start counts only where beta isn't 0."""
    sparse = torch.sparse_coo_tensor([[3, 0, 3, 1, 3], [2, 4, 2, 0, 1]], torch.arange(5.0), (4, 5))
    sparse, dense = sparse.to(dtype), torch.randn(5, 3, dtype=dtype)
    start = torch.full((4, 3), torch.nan, dtype=dtype)
    results = []
    for device in ("cpu", "ocl"):
        s, d, nothing = sparse.to(device), dense.to(device), start.to(device)
        ones = torch.ones_like(nothing)
        d.requires_grad_()
        product = torch.sparse.mm(s.detach().requires_grad_(), d)
        (grad,) = torch.autograd.grad(product.square().sum(), d)
        d = d.detach()
        results.append(
            [
                product.detach(),
                grad,
                s @ d,
                torch.mv(s, d[:, 0]),
                torch.addmm(ones, s, d, beta=2, alpha=0.5),
                torch.addmm(nothing, s, d, beta=0),
                torch.addmm(ones[0], s * 0, d),
                torch.addmm(ones, torch.zeros_like(s), d),
                torch.mm(s, d, out=torch.empty_like(ones)),
                ones.addmm_(s, d),
            ]
        )
    for actual, expected in zip(results[1], results[0], strict=True):
        assert actual.stride() == expected.stride()
        assert_close(actual.cpu(), expected)


def test_matrix_products_that_are_refused():
    s, d = made(), torch.randn(5, 3)
    matrix = torch.eye(5).to_sparse()
    raise_the_same(
        [
            lambda device: torch.mm(s.to(device), d.to(device)),
            lambda device: matrix.to(device) @ d[:4].to(device),
            lambda device: matrix.to(device) @ d.double().to(device),
            lambda device: torch.addmm(d[:2].to(device), matrix.to(device), d.to(device)),
        ]
    )


def test_sums_and_products_that_are_refused():
    d, s = torch.randn(4, 5, 3), made()

    def flat(t):
        return t.reshape(20, 3)

    raise_the_same(
        [
            lambda device: s.to(device) - d.to(device),
            lambda device: flat(d).to(device) - s.to(device),
            lambda device: torch.add(d.to(device), s.to(device), out=s.to(device).long()),
            lambda device: d.long().to(device).add_(s.to(device)),
            lambda device: s.to(device) / d.to(device),
        ]
    )


def test_sparse_and_dense_gradients_of_one_weight():
    """Autograd adds them in the order that is supported."""
    grads = []
    for device in ("cpu", "ocl"):
        weight = torch.ones(5, 3, device=device, requires_grad=True)
        places = torch.tensor([1, 3, 1], device=device)
        rows = nn.functional.embedding(places, weight, sparse=True)
        (rows.sum() + weight.square().sum() + rows.square().sum()).backward()
        grads.append(weight.grad.cpu())
    assert_close(grads[1], grads[0])


def test_decay_of_a_weight_with_sparse_gradients_is_refused():
    def step(device):
        module = nn.Embedding(5, 3, sparse=True, device=device)
        module(torch.tensor([1, 2], device=device)).sum().backward()
        torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.1).step()

    raise_the_same([step])


def embedding():
    torch.manual_seed(0)
    return nn.Embedding(10, 4, sparse=True)


def test_gradients_of_embeddings():
    indices = torch.tensor([[1, 4, 1], [7, 4, 0]])
    host, device = embedding(), embedding().to("ocl")
    for module, given in ((host, indices), (device, indices.to("ocl"))):
        for _ in range(2):  # the second is accumulated
            module(given).square().sum().backward()
    assert device.weight.grad.is_sparse
    assert_close(device.weight.grad.to_dense().cpu(), host.weight.grad.to_dense())


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_embedding_bags(mode):
    torch.manual_seed(0)
    host = nn.EmbeddingBag(10, 4, mode=mode, sparse=True)
    device = copy.deepcopy(host).to("ocl")
    indices, offsets = torch.tensor([1, 4, 1, 7, 4, 0]), torch.tensor([0, 2, 5])
    host(indices, offsets).square().sum().backward()
    device(indices.to("ocl"), offsets.to("ocl")).square().sum().backward()
    assert device.weight.grad.is_sparse
    assert_close(device.weight.grad.to_dense().cpu(), host.weight.grad.to_dense())


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, foreach=False),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps(optimizer):
    host, device = embedding(), embedding().to("ocl")
    for module in (host, device):
        steps = OPTIMIZERS[optimizer](module.parameters())
        for indices in ([1, 4, 1], [7, 4, 0], [1, 1, 9]):
            steps.zero_grad()
            module(torch.tensor(indices, device=module.weight.device)).square().sum().backward()
            steps.step()
    assert_close(device.weight.cpu(), host.weight)
