"""Cases that make the engines of elements, Fourier transforms and factorisations choose."""

import torch
import torch.nn.functional as F


def indexed(call, *shape, high=40):
    """call(numbers, indices, numbers of the indices' shape), which are small integers."""

    def run(device):
        g = torch.Generator().manual_seed(0)
        x = torch.randint(-3, 4, (40, 50), generator=g).float().to(device)
        i = torch.randint(0, high, shape, generator=g).to(device)
        v = torch.randint(-3, 4, (*shape, 50)[:2], generator=g).float().to(device)
        return call(x, i, v)

    return run


def transformed(n, signals=5, dtype=torch.complex64, call=torch.fft.fft):
    def run(device):
        x = torch.randn(signals, n, dtype=dtype, generator=torch.Generator().manual_seed(0))
        return call(x.to(device))

    return run


def factored(call, n, batch=3, columns=None, by_columns=True):
    """call(positive definite or wide matrices, right-hand sides); close to the identity, so that
    all orders of the sums give the same to rounding."""

    def run(device):
        g = torch.Generator().manual_seed(0)
        a = torch.randn(batch, n, columns or n, generator=g)
        if columns is None:
            a = a @ a.mT / n / 4 + torch.eye(n)
        b = torch.randn(batch, n, 5, generator=g)
        if by_columns:
            a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
        return call(a.to(device), b.to(device))

    return run


def triangular(a, b):
    return torch.linalg.solve_triangular(a.tril(), b, upper=False)


def cholesky(a, b):
    return torch.linalg.cholesky(a)


def lu(a, b):
    return torch.linalg.lu_factor(a)


def reflections(a, b):
    return torch.geqrf(a)


def orthonormal(a, b):
    return torch.linalg.qr(a)


def eigenvalues(a, b):
    return torch.linalg.eigvalsh(a)


def singular_values(a, b):
    return torch.linalg.svdvals(a)


def pointwise(call):
    def run(device):
        g = torch.Generator().manual_seed(0)
        x, y = (torch.randn(1100, 300, generator=g).to(device) for _ in range(2))
        return call(x, y)

    return run


def pooled(call, *shape):
    """call(images, requiring gradients): the output and the images' gradient."""

    def run(device):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
        y = call(x.requires_grad_())
        weights = torch.arange(y.numel(), dtype=torch.float32, device=device).reshape(y.shape) % 7
        return y.detach(), torch.autograd.grad(y, x, weights)[0]

    return run


def turned(x):
    """A grid for grid_sample that turns and shifts the images a little."""
    matrix = torch.tensor([[0.8, 0.3, 0.1], [-0.2, 0.9, 0.0]], dtype=x.dtype, device=x.device)
    return F.affine_grid(matrix.expand(x.shape[0], 2, 3), list(x.shape), align_corners=False)


def counted(bins):
    def run(device):
        i = torch.randint(0, bins, (9000,), generator=torch.Generator().manual_seed(0))
        return i.to(device).bincount(minlength=bins)

    return run


def bags(rows, columns, count, **options):
    """The gradient of the weight, from small integers, whose sums are exact."""

    def run(device):
        g = torch.Generator().manual_seed(0)
        weight = torch.randint(-3, 4, (rows, columns), generator=g).float()
        indices = torch.randint(0, rows, (count,), generator=g)
        offsets = torch.arange(0, count, 4)
        grad = torch.randint(-3, 4, (len(offsets), columns), generator=g).float()
        factors = torch.randint(1, 4, (count,), generator=g).float()
        given = {"per_sample_weights": factors.to(device)} if options["mode"] == "sum" else {}
        weight = weight.to(device).requires_grad_()
        out = F.embedding_bag(indices.to(device), weight, offsets.to(device), **given, **options)
        return torch.autograd.grad(out, weight, grad.to(device))[0]

    return run


AVERAGES = [
    pooled(lambda x: F.avg_pool2d(x, 3, 2, 1), 2, 9, 20, 40),
    pooled(lambda x: F.avg_pool2d(x.mT, 2), 1, 1, 20, 40),
]
MAXIMA = [
    pooled(lambda x: F.max_pool2d(x, 3, 2, 1), 2, 3, 20, 40),
    pooled(lambda x: F.max_pool2d(x.mT, 3, 2, 1), 2, 3, 20, 40),
    pooled(lambda x: F.adaptive_max_pool2d(x, (5, 7)), 2, 3, 20, 40),
    pooled(lambda x: F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 2), 2, 64, 8, 8),
]

CASES = {
    "binning": [counted(50), counted(7000)],
    "backward_nearest": [
        pooled(lambda x: F.interpolate(x, scale_factor=2), 2, 3, 9, 20),
        pooled(lambda x: F.interpolate(x.mT, scale_factor=3), 2, 3, 9, 20),
    ],
    "col2im": [
        pooled(lambda x: F.fold(x, (12, 21), (3, 2), stride=2), 2, 18, 50),
        pooled(lambda x: F.fold(x.mT, (9, 9), 2), 2, 64, 12),
    ],
    "backward_embedding_bag": [
        bags(30, 33, 80, mode="sum"),
        bags(200, 128, 50, mode="mean"),
        bags(9, 5, 64, mode="sum", padding_idx=2),
        bags(30, 1, 41, mode="mean"),
    ],
    "backward_grid_sample": [
        pooled(lambda x: F.grid_sample(x, turned(x), align_corners=False), 2, 3, 9, 20),
        pooled(lambda x: F.grid_sample(x, turned(x), "nearest", align_corners=True), 1, 2, 5, 7),
    ],
    "average_pool": AVERAGES,
    "backward_average_pool": AVERAGES,
    "max_pool": MAXIMA,
    "backward_max_pool": MAXIMA,
    "fft": [
        transformed(67),
        transformed(120),
        transformed(134, dtype=torch.float32, call=torch.fft.rfft),
        transformed(77, dtype=torch.complex128),
        transformed(4096, 1),
        transformed(300, dtype=torch.complex64, call=torch.fft.irfft),
    ],
    "linalg_cholesky": [
        factored(cholesky, 200),
        factored(cholesky, 20),
        factored(cholesky, 70, by_columns=False),
    ],
    "linalg_triangular": [factored(triangular, 150), factored(triangular, 24)],
    "linalg_lu": [factored(lu, 40), factored(lu, 200, 1)],
    "linalg_qr": [factored(reflections, 40, columns=20), factored(reflections, 20, columns=50)],
    "linalg_reflect": [
        factored(orthonormal, 40, columns=20),
        factored(orthonormal, 40, columns=20, by_columns=False),
    ],
    "linalg_condense": [factored(eigenvalues, 10), factored(singular_values, 12)],
    "linalg_implicit_qr": [factored(eigenvalues, 10, 9), factored(singular_values, 12, 33)],
    "index": [
        indexed(lambda x, i, v: x[i], 70),
        indexed(lambda x, i, v: x.gather(0, i), 40, 50),
        indexed(lambda x, i, v: x.gather(1, i), 40, 3),
        indexed(lambda x, i, v: x.index_copy(0, i.unique(), v[: len(i.unique())]), 10),
        indexed(lambda x, i, v: x.index_fill(1, i, 2.0), 20),
        indexed(lambda x, i, v: x.index_add(0, i, v), 70),
        indexed(lambda x, i, v: x.scatter_add(0, i, v), 40, 50),
        indexed(lambda x, i, v: x[:, 0].contiguous().index_add(0, i, v[:, 0]), 9),
    ],
    "pointwise": [
        pointwise(lambda x, y: x + y),
        pointwise(lambda x, y: x[:, ::2] + y[:, 1:151]),
        pointwise(lambda x, y: x + y[0]),
        pointwise(lambda x, y: x.mT.contiguous().mT * y),
        pointwise(lambda x, y: x[:, :5] * y[:, :1]),
        pointwise(lambda x, y: x[:, :12].unflatten(1, (3, 4)).mT.sub(y[0, :3])),
        pointwise(lambda x, y: torch.where(x > 0, x, y.double())),
    ],
}
