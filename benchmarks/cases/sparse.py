"""Cases of sparse tensors, of a graph's sizes: products, their gradients, softmax, conversions."""

import functools

import torch

from benchmarks.harness.case import LOOSE, add, tensors

#: Nodes, edges of each on average, features of each.
NODES, DEGREE, FEATURES = 16384, 16, 64
EDGES = NODES * DEGREE


@functools.cache
def graph(nodes=NODES, degree=DEGREE):
    """A matrix of edges with weights, coalesced, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(nodes * nodes, (nodes * degree,), generator=generator).unique()
    indices = torch.stack([places // nodes, places % nodes])
    values = torch.randn(len(places), generator=generator)
    return torch.sparse_coo_tensor(indices, values, (nodes, nodes)).coalesce()


def matrix(device, layout, **sizes):
    coo = graph(**sizes)
    return (coo.to_sparse_csr() if layout == "CSR" else coo).to(device)


def case(name, make, **properties):
    add(name, "sparse", make, tolerance=LOOSE, **properties)


def product(layout, features):
    def make(device):
        edges = matrix(device, layout)
        (x,) = tensors(device, (NODES, features))
        return lambda: edges @ x

    index = 8 + 8 * (layout == "COO")
    case(
        f"{layout} {NODES} x {DEGREE} edges @ {features} columns",
        make,
        flops=2.0 * EDGES * features,
        bytes=EDGES * (4 + index) + 8.0 * NODES * features,
    )


for columns in (1, FEATURES, 256):
    product("CSR", columns)
product("COO", FEATURES)


def gradients(layout):
    def make(device):
        edges = matrix(device, layout).requires_grad_()
        (x,) = tensors(device, (NODES, FEATURES))
        x.requires_grad_()

        def step():
            result = torch.sparse.mm(edges, x).sum()
            of_edges, of_x = torch.autograd.grad(result, (edges, x))
            return of_edges.values() if layout == "CSR" else of_edges.coalesce().values(), of_x

        return step

    case(f"{layout} product, gradients of both", make, flops=6.0 * EDGES * FEATURES)


gradients("CSR")
gradients("COO")


def reduced(reduce):
    def make(device):
        edges = matrix(device, "CSR")
        (x,) = tensors(device, (NODES, FEATURES))
        return lambda: torch.sparse.mm(edges, x, reduce)

    case(f"CSR product, {reduce}", make, flops=2.0 * EDGES * FEATURES)


reduced("mean")
reduced("amax")


def make_sampled(device):
    edges = matrix(device, "CSR")
    a, b = tensors(device, (NODES, FEATURES), (FEATURES, NODES))
    return lambda: torch.sparse.sampled_addmm(edges, a, b).values()


case("sampled_addmm", make_sampled, flops=2.0 * EDGES * FEATURES)


def make_softmax(device):
    edges = matrix(device, "COO")
    return lambda: torch.sparse.softmax(edges, 1)._values()


def make_softmax_gradient(device):
    edges = matrix(device, "COO").requires_grad_()

    def step():
        result = torch.sparse.softmax(edges, 1)
        weighted = torch.sparse.sum(result * result)
        return torch.autograd.grad(weighted, edges)[0].coalesce().values()

    return step


case("softmax of rows", make_softmax)
case("softmax of rows, gradient", make_softmax_gradient)


def make_sparse_product(device):
    a = matrix(device, "COO", nodes=4096, degree=8)
    return lambda: torch.sparse.mm(a, a)


case("COO 4096 x 8 edges @ itself", make_sparse_product)


def converted(name, start, convert):
    def make(device):
        value = start(device)
        return lambda: convert(value)

    case(name, make)


def dense(device):
    """With a twentieth of its elements."""
    (x,) = tensors(device, (2048, 2048))
    return torch.where(x > 1.65, x, 0)


def repeated(device):
    """Twice the edges, the second ones in another order: not coalesced."""
    coo = graph()
    indices = torch.cat([coo.indices(), coo.indices().flip(1)], 1)
    values = torch.cat([coo.values(), coo.values().flip(0)])
    return torch.sparse_coo_tensor(indices, values, coo.shape).to(device)


converted("dense to COO 2048", dense, lambda x: x.to_sparse())
converted("dense to CSR 2048", dense, lambda x: x.to_sparse_csr())
converted("COO to dense 2048", lambda d: dense("cpu").to_sparse().to(d), lambda x: x.to_dense())
converted("CSR to dense 2048", lambda d: dense("cpu").to_sparse_csr().to(d), lambda x: x.to_dense())
converted("COO to CSR", lambda d: matrix(d, "COO"), lambda x: x.to_sparse_csr())
converted("CSR to COO", lambda d: matrix(d, "CSR"), lambda x: x.to_sparse())
converted("CSR to CSC", lambda d: matrix(d, "CSR"), lambda x: x.to_sparse_csc())
converted("coalesce", repeated, lambda x: x.coalesce())
converted("sum of COO along rows", lambda d: matrix(d, "COO"), lambda x: torch.sparse.sum(x, 1))
converted("COO + COO", lambda d: matrix(d, "COO"), lambda x: x + x.t().coalesce())
