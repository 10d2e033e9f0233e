"""A call or two of each engine, against CPU torch: what a driver must get right first."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def integers(low, high, *shape):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1))


def grads(function):
    """The function's result, and the gradients of the sum of its squares."""

    def run(*tensors):
        inputs = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
        result = function(*inputs)
        result.float().square().sum().backward()
        return [result.detach(), *(t.grad for t in inputs if t.requires_grad)]

    return run


def trained(model, optimizer, loss):
    """Losses of a few steps, from the same parameters on every device."""

    def run(x, *rest):
        torch.manual_seed(3)
        net = model().to(x.device)
        steps = optimizer(net.parameters())
        losses = []
        for _ in range(4):
            steps.zero_grad()
            value = loss(net(x), *rest)
            value.backward()
            steps.step()
            losses.append(value.detach())
        return torch.stack(losses)

    return run


def network():
    layers = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8 * 64, 10))


def encoder():
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)


def mixed_precision(x, weight):
    with torch.autocast(x.device.type, torch.bfloat16):
        return F.linear(x, weight)


def into(x, places, values):
    return x.clone().index_put_((places,), values, accumulate=True)


A, B = normal(300, 200), normal(300, 200, seed=1)
#: Name, function, inputs.
CASES = [
    ("arithmetic", lambda a, b: a + b * 2, (A, B)),
    ("transposed", lambda a, b: a.t() - b.t()[:, :300], (A, B)),
    ("product", lambda a, b: a @ b, (normal(65, 130), normal(130, 77))),
    ("large_product", lambda a, b: a @ b, (normal(512, 256) / 16, normal(256, 512))),
    ("long_product", lambda a, b: a @ b, (normal(7, 4000) / 64, normal(4000, 9))),
    ("batch_of_products", lambda a, b: a @ b.mT, (normal(3, 33, 40), normal(3, 20, 40))),
    (
        "convolution",
        grads(lambda x, w: F.conv2d(x, w, padding=1, stride=2)),
        (normal(2, 8, 17, 19) / 4, normal(12, 8, 3, 3) / 4),
    ),
    (
        "convolution_channels_last",
        grads(lambda x, w: F.conv2d(x.contiguous(memory_format=torch.channels_last), w)),
        (normal(2, 16, 12, 12) / 4, normal(32, 16, 3, 3) / 4),
    ),
    (
        "depthwise",
        grads(lambda x, w: F.conv2d(x, w, padding=1, groups=8)),
        (normal(2, 8, 17, 19) / 4, normal(8, 1, 3, 3) / 4),
    ),
    (
        "transposed_convolution",
        grads(lambda x, w: F.conv_transpose2d(x, w, stride=2)),
        (normal(2, 6, 7, 7) / 4, normal(6, 5, 4, 4) / 4),
    ),
    ("softmax", grads(lambda x: x.softmax(-1)), (normal(33, 257),)),
    ("log_softmax_of_columns", grads(lambda x: x.log_softmax(0)), (normal(257, 33),)),
    (
        "layer_norm",
        grads(lambda x, w, b: F.layer_norm(x, (100,), w, b)),
        (normal(7, 100), normal(100), normal(100, seed=2)),
    ),
    (
        "batch_norm",
        grads(lambda x: F.batch_norm(x, None, None, training=True)),
        (normal(4, 6, 9, 9),),
    ),
    ("group_norm", grads(lambda x: F.group_norm(x, 3)), (normal(4, 6, 9, 9),)),
    ("sums", lambda x: (x.sum(0), x.mean(1), x.var(), x.sum()), (A,)),
    ("extremes", lambda x: (x.amax(1), x.argmax(1), x.max(0).indices, x.min()), (A,)),
    ("sort", lambda x: torch.sort(x, stable=True), (normal(5, 1000),)),
    ("long_sort", lambda x: torch.sort(x, stable=True), (normal(20000),)),
    (
        "sort_of_integers",
        lambda x: torch.sort(x, stable=True),
        (integers(-(10**12), 10**12, 3000),),
    ),
    ("topk", lambda x: torch.topk(x, 7).values, (normal(5, 1000),)),
    ("unique", lambda x: torch.unique(x, return_counts=True), (integers(0, 50, 999),)),
    ("gather", lambda x, i: x[i], (normal(50, 9), integers(0, 50, 200))),
    ("index_put", into, (normal(50, 9), integers(0, 50, 200), normal(200, 9))),
    (
        "scatter_add_of_integers",
        lambda x, i, v: x.clone().scatter_add_(0, i, v),
        (torch.zeros(50, dtype=torch.int64), integers(0, 50, 2000), integers(0, 10**11, 2000)),
    ),
    (
        "embedding",
        grads(lambda w: F.embedding(w.new_tensor([3, 1, 3]).long(), w)),
        (normal(40, 16),),
    ),
    ("mask", lambda x: x[x > 0.3], (normal(4000),)),
    ("nonzero", lambda x: (x > 0).nonzero(), (normal(60, 70),)),
    ("cumsum", lambda x: x.cumsum(0), (normal(5000),)),
    ("cumsum_of_rows", lambda x: x.cumsum(1), (normal(300, 70),)),
    ("cumsum_of_integers", lambda x: x.cumsum(0), (integers(0, 10**9, 50000),)),
    (
        "attention",
        grads(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        tuple(normal(2, 4, 50, 32, seed=s) for s in range(3)),
    ),
    ("fourier", lambda x: (torch.fft.fft(x), torch.fft.rfft2(x)), (normal(6, 60),)),
    ("inverse_fourier", lambda x: torch.fft.irfft(torch.fft.rfft(x)), (normal(128),)),
    (
        "integers",
        lambda a, b: (a * b + 7, a // b, a % b, a << 3, a.sum()),
        (integers(-(10**9), 10**9, 999), integers(1, 10**6, 999)),
    ),
    ("booleans", lambda a, b: (a & b, a | ~b, a.any(), a.sum()), (A > 0, B > 0)),
    (
        "bytes",
        lambda a: (a + 3, a.to(torch.int8) * 3, a.float() / 3),
        (integers(0, 255, 999).byte(),),
    ),
    ("complex_numbers", lambda a, b: a * b + a.conj(), (torch.complex(A, B), torch.complex(B, A))),
    (
        "functions",
        lambda x: (x.exp(), x.sin(), x.tanh(), x.abs().log(), x.erf(), x.abs() ** 1.7),
        (A,),
    ),
    ("gelu", grads(F.gelu), (A,)),
    ("special_functions", lambda x: (torch.lgamma(x), torch.digamma(x)), (A.abs() + 0.1,)),
    (
        "resampling",
        grads(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
        (normal(1, 3, 9, 9),),
    ),
    ("pooling", grads(lambda x: F.max_pool2d(x, 2)), (normal(2, 3, 10, 10),)),
    (
        "linear_algebra",
        lambda a: (torch.linalg.inv(a), torch.linalg.det(a / 4), torch.linalg.cholesky(a @ a.mT)),
        (normal(12, 12) + 8 * torch.eye(12),),
    ),
    ("large_solve", torch.linalg.solve, (normal(90, 90) + 20 * torch.eye(90), normal(90, 5))),
    ("concatenation", lambda a, b: torch.cat([a, b, a], 1), (A, B)),
    ("copies", lambda x: x.to(x.device, non_blocking=True).t().contiguous(), (A,)),
    (
        "convolutional_training",
        trained(network, lambda p: torch.optim.AdamW(p, 1e-2), F.cross_entropy),
        (normal(16, 1, 8, 8), integers(0, 10, 16)),
    ),
    (
        "transformer_training",
        trained(
            encoder, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda y: y.square().mean()
        ),
        (normal(4, 20, 32),),
    ),
]
#: Calls in half types, with the tolerance of one rounding of operands.
HALVES = {torch.float16: 5e-3, torch.bfloat16: 4e-2}
HALF_CASES = [
    ("product", lambda a, b: a @ b, (normal(64, 96) / 8, normal(96, 80) / 4)),
    ("softmax", lambda a: a.softmax(-1), (normal(9, 200),)),
    ("gelu", lambda a: F.gelu(a).float(), (normal(999),)),
    ("sum", lambda a: a.sum(1), (normal(9, 2000) / 8,)),
]


def check(function, inputs, tolerance=2e-3):
    def results(device):
        found = function(*(t.to(device) for t in inputs))
        return [t.cpu() for t in (found if isinstance(found, (tuple, list)) else [found])]

    for actual, expected in zip(results("ocl"), results("cpu"), strict=True):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(("function", "inputs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_smoke(function, inputs):
    check(function, inputs)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("function", "inputs"), [c[1:] for c in HALF_CASES], ids=[c[0] for c in HALF_CASES]
)
def test_half_types(function, inputs, dtype):
    check(function, [t.to(dtype) for t in inputs], HALVES[dtype])


def test_mixed_precision():
    check(mixed_precision, (normal(8, 64), normal(32, 64)), HALVES[torch.bfloat16])


def test_doubles(device):
    if not torch.ocl.get_device_properties(device).has_fp64:
        with pytest.raises(TypeError, match="double precision"):
            torch.ones(3, dtype=torch.float64, device=device).exp()
        return
    inputs = normal(30, 40).double(), normal(40, 50).double()
    check(lambda a, b: (a @ b, a.exp(), a.sum()), inputs, 1e-9)


def test_random_numbers(device):
    n = 20000
    assert abs(torch.rand(n, device=device).mean().item() - 0.5) < 0.02
    assert abs(torch.randn(n, device=device).std().item() - 1) < 0.03
    assert abs(F.dropout(torch.ones(n, device=device), 0.25).mean().item() - 1) < 0.03
    permuted = torch.randperm(1000, device=device)
    assert torch.equal(permuted.sort().values.cpu(), torch.arange(1000))
    drawn = torch.ones(10, device=device).multinomial(1000, replacement=True)
    assert drawn.min().item() >= 0 and drawn.max().item() < 10
