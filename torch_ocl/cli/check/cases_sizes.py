"""Cases of awkward sizes, strides and offsets for the engines that most programs use."""

import torch
from torch.nn import functional

from torch_ocl.cli.check.cases_products import attention, convolution, product
from torch_ocl.cli.check.cases_rows import layer_norm, normal, reduction, softmax

SIZES = (1, 3, 17, 33, 64, 65, 127, 130)
_PRODUCTS = tuple(zip(SIZES, SIZES[3:] + SIZES[:3], SIZES[::-1], strict=True))


def at(call, *shapes):
    """call(numbers of those shapes), whose memory begins at an odd offset and has gaps."""

    def run(device):
        given = []
        for shape in shapes:
            wider = (*shape[:-1], shape[-1] + 3)
            given.append(normal(*wider).to(device)[..., 1:-2])
        return call(*given)

    return run


def rows(call, length):
    return at(lambda x: call(x.mT), (length, 7)), at(call, (7, length))


CASES = {
    "pointwise": [case for n in SIZES for case in rows(lambda x: x * 2 + x.abs(), n)],
    "reduce": [
        *(case for n in SIZES for case in rows(lambda x: x.sum(1), n)),
        *(reduction("amax", (5, n, 33), 1) for n in SIZES),
    ],
    "scan": [case for n in SIZES for case in rows(lambda x: x.cumsum(1), n)],
    "sort": [case for n in SIZES for case in rows(lambda x: x.sort(dim=1, stable=True)[0], n)],
    "index": [at(lambda x, y: torch.cat([x, y], 1)[:, ::2], (5, n), (5, 3)) for n in SIZES],
    "softmax": [
        *(case for n in SIZES for case in rows(lambda x: x.log_softmax(1), n)),
        *(softmax((33, n), 1) for n in (17, 65, 130)),
    ],
    "norm": [layer_norm(9, n) for n in SIZES[1:]],
    "gemm": [
        *(product(m, k, n) for m, k, n in _PRODUCTS),
        *(at(lambda a, b: a @ b.mT, (n, 65), (33, 65)) for n in SIZES),
        *(at(lambda a, b: a.mT @ b, (3, 130, n), (3, 130, 17)) for n in SIZES),
        product(17, 9001, 33),
    ],
    "attention": [
        *(attention(n, m, heads=2, key_heads=2) for n, m in ((1, 17), (33, 130), (127, 3))),
        attention(65, 130, heads=2, key_heads=1, depth=64, enable_gqa=True),
    ],
    "convolution": [
        *(convolution((1, n, 7, 9), (17, n, 3, 3), padding=1) for n in (1, 3, 33)),
        convolution((1, 130, 5, 5), (3, 130, 3, 3), last=True),
        convolution((2, 6, 33), (10, 3, 5), groups=2, stride=2),
    ],
    "fft": [at(lambda x: torch.fft.rfft(x), (3, n)) for n in SIZES],
}

INDICES = torch.tensor([[1, 1, 0, 1, 5], [2, 2, 2, 2, 2]])


def others(x, y):
    """Kernels that are the only ones for their op."""
    index = INDICES.to(x.device)
    edges = torch.linspace(-2, 2, 9).to(x.device)
    image = x[:, :30].reshape(1, 1, 7, 30)
    return [
        (x > 0).nonzero(),
        torch.searchsorted(edges, x),
        functional.pad(image, (2, 1, 3, 0), "reflect"),
        functional.interpolate(image, scale_factor=1.7, mode="bilinear"),
        x.scatter_add(0, index, y[:2, :5]),
        x.scatter_reduce(1, index, y[:2, :5], "amax"),
        x.tril(1),
        x.flip(1),
        x.unfold(1, 5, 2).square(),
        x.masked_select(y > 0),
        torch.cat([x.roll(3, 1), y]),
    ]


def functions(x, y):
    """Functions that drivers bring, and some that are the package's own."""
    small = x.clamp(-3, 3)
    return [
        *(small.exp(), small.sin(), small.tanh(), small.sigmoid(), small.erf(), small.expm1()),
        *(small.abs().sqrt(), small.abs().add(1).log(), small.abs().pow(y.clamp(-2, 2))),
        *(torch.atan2(x, y), torch.lgamma(small.abs() + 1), torch.special.i0(small)),
        *(functional.gelu(small), functional.softplus(small), torch.hypot(x, y)),
    ]


def updates(x, y):
    """Lists of tensors in one launch."""
    many = [x + i for i in range(40)]
    return [*torch._foreach_addcmul(many, many, [y] * 40, value=0.5), *torch._foreach_norm(many)]


#: Kernels without a choice, by what they do.
WITHOUT_CHOICE = {
    "positions": [at(others, (7, 37), (7, 37))],
    "functions": [at(functions, (7, 37), (7, 37)), at(functions, (1, 130), (1, 130))],
    "lists": [at(updates, (7, 37), (7, 37))],
}
