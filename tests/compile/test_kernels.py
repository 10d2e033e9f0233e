"""torch.compile with its default backend: generated kernels against CPU torch."""

import pytest
import torch
from torch.nn import functional

from tests.as_gpu import run_as_gpu


def check(function, *operands, tol=2e-5, dynamic=None):
    """Compiled on the device it gives what CPU torch gives, dtypes and strides included."""
    torch._dynamo.reset()
    expected = function(*operands)
    moved = [x.to("ocl") if isinstance(x, torch.Tensor) else x for x in operands]
    results = torch.compile(function, dynamic=dynamic, fullgraph=True)(*moved)
    results, expected = (r if isinstance(r, tuple) else (r,) for r in (results, expected))
    for actual, wanted in zip(results, expected, strict=True):
        assert actual.device.type == "ocl"
        torch.testing.assert_close(
            actual.cpu(), wanted, rtol=tol, atol=tol, equal_nan=True, check_stride=True
        )


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


ROWS = [(64, 200), (7, 37), (5, 1), (3, 1000), (1, 4099), (2, 3, 64)]


@pytest.mark.parametrize("shape", ROWS, ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(-1),
        lambda x: (x.sum(-1), x.mean(-1), x.amax(-1), x.amin(-1)),
        lambda x: (x.argmax(-1), x.argmin(-1), x.argmax()),
        lambda x: (x.sum(0), x.amax(0), x.argmax(0)),
        lambda x: x.sum(),
        lambda x: torch.var_mean(x, -1, correction=0),
        lambda x: torch.var_mean(x, 0, correction=0),
        lambda x: ((x > 0).any(-1), (x > -3).all(0), (x > 0).sum(-1)),
        lambda x: x.prod(-1),
        lambda x: functional.layer_norm(x, x.shape[-1:]) * 2,
        lambda x: functional.rms_norm(x, x.shape[-1:]).relu() + x.amax(-1, keepdim=True),
    ],
    ids=[
        "softmax",
        "log_softmax",
        "sums",
        "places",
        "columns",
        "all",
        "moments",
        "moments of columns",
        "bools",
        "product",
        "layer_norm",
        "rms_norm",
    ],
)
def test_rows(function, shape):
    check(function, numbers(*shape), tol=1e-4)


@pytest.mark.parametrize("length", [33, 100, 257, 8193])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.var(-1),
        lambda x: x.std(0) + x.sum(),
        lambda x: (x * 2).argmax(-1),
    ],
    ids=["softmax", "var", "columns", "argmax"],
)
def test_rows_of_any_length(function, length):
    """One kernel serves all lengths."""
    check(function, numbers(13, length), tol=1e-4, dynamic=True)


def test_special_values():
    infinity = float("inf")
    x = torch.tensor([[0.0, -0.0, infinity, -infinity, float("nan"), 1e-40, 3e38, -5.5] * 3])
    check(lambda x: (x - x, x / 0, x + x, x.sign(), x.relu(), x.clamp(-1, 1), x.abs()), x)
    check(lambda x: (x.amax(-1), x.amin(-1), x.argmax(-1), x.argmin(-1), torch.maximum(x, -x)), x)
    check(lambda x: (x.isnan(), x.isinf(), x > 0, x == x, x.signbit(), x.nan_to_num()), x)
    check(lambda x: (x.exp(), x.tanh(), x.sigmoid(), torch.rsqrt(x)), x)


@pytest.mark.parametrize(
    "dtype",
    [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8],
    ids=str,
)
def test_integers(dtype):
    low = 0 if dtype == torch.uint8 else -50
    a = torch.randint(low, 50, (19, 33), dtype=dtype)
    b = torch.randint(1, 9, (19, 33), dtype=dtype)
    check(lambda a, b: (a + b, a - b, a * b, a // b, a % b, -a, a.abs(), a.sign()), a, b)
    check(lambda a, b: (a & b, a | b, a ^ b, ~a, a << 1, a >> 1, a.fmod(b)), a, b)
    check(lambda a, b: (a.sum(-1), a.amax(0), a.argmin(-1), a / b, a.float() * 2, a > b), a, b)
    if dtype != torch.uint8:
        check(lambda a, b: (torch.div(a, -b, rounding_mode="floor"), a % -b, a // -b), a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_floats(dtype):
    tol = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-9}[dtype]
    x, y = numbers(9, 130).to(dtype), numbers(9, 130, seed=1).to(dtype)
    check(lambda x, y: (x * y + 1).tanh() / 2, x, y, tol=tol)
    check(lambda x, y: (x.softmax(-1), functional.gelu(x) * y), x, y, tol=tol)
    check(lambda x, y: (x.sum(0), (x > y).to(dtype), x.t() + y.t()), x, y, tol=tol)


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_casts_to_float8_and_back(dtype):
    """Are what rounds: for the training of quantised networks."""
    x = torch.cat([numbers(300) * 3, torch.tensor([500.0, -1e5, 1e-4, torch.inf, torch.nan, 0])])
    check(lambda x: (x.to(dtype).float() * 2, x.to(dtype).to(torch.float16)), x, tol=0)
    # Ties aside, which sums of products come close to.
    a, b = numbers(33, 20), numbers(20, 48, seed=1)
    actual = torch.compile(lambda a, b: (a @ b).to(dtype).float())(a.to("ocl"), b.to("ocl"))
    assert (actual.cpu() == (a @ b).to(dtype).float()).float().mean() > 0.97


def test_casts_to_halves_and_back():
    """Are nothing, as upstream has it, unless they are asked for."""

    def function(x):
        return x.half().float() * 2

    x = numbers(300)
    torch.testing.assert_close(torch.compile(function)(x.to("ocl")).cpu(), x * 2, rtol=0, atol=0)
    with torch._inductor.config.patch(emulate_precision_casts=True):
        check(function, x, tol=0)


def test_bools():
    a, b = numbers(33, 47) > 0, numbers(33, 47, seed=1) > 0
    x = numbers(33, 47, seed=2)
    check(lambda a, b: (a & b, a | b, a ^ b, ~a, a == b, a.any(-1), b.all(0)), a, b)
    check(lambda a, x: (x.masked_fill(a, -1.0), a.float() + x, torch.where(a, x, 0)), a, x)
    check(lambda a, b: (a.sum(), a.int() + 1, a.t() & b.t(), a * 2), a, b)


SHAPES = {
    "transposed": (lambda x: x.t() + 1, [(64, 48)]),
    "transposed sum": (lambda x, y: x.t() + y, [(64, 64), (64, 64)]),
    "broadcast": (lambda x, y: x[:, None] + y[None], [(50,), (33,)]),
    "rows of a broadcast": (lambda x, y: x * y, [(9, 57), (57,)]),
    "cat": (lambda x, y: torch.cat([x, y * 2, x], 1), [(8, 32), (8, 64)]),
    "cat, odd": (lambda x, y: torch.cat([x, y, x], 1), [(8, 5), (8, 7)]),
    "pad": (lambda x: functional.pad(x, (3, 5, 1, 2), value=7.0) + 1, [(8, 9)]),
    "reflected": (lambda x: functional.pad(x, (3, 2), mode="reflect"), [(2, 3, 9)]),
    "slices": (lambda x: x[:, 3:77:2] * 2, [(5, 80)]),
    "flip and roll": (lambda x: (x.flip(1), x.roll(3, 0)), [(6, 31)]),
    "rope": (
        lambda x, c: torch.cat([x[..., :16] * c - x[..., 16:], x[..., 16:] * c + x[..., :16]], -1),
        [(2, 3, 7, 32), (7, 16)],
    ),
    "nearest": (lambda x: functional.interpolate(x, scale_factor=2), [(1, 2, 7, 5)]),
    "bilinear": (
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        [(1, 2, 7, 5)],
    ),
    "pools": (
        lambda x: (functional.avg_pool2d(x, 2), functional.max_pool2d(x, 3, 2, 1)),
        [(2, 3, 9, 11)],
    ),
    "triangles": (lambda x: (x.tril(), x.triu(1)), [(9, 9)]),
    "diagonals": (lambda x: torch.diag_embed(x, 1), [(3, 5)]),
    "unfolded": (lambda x: functional.unfold(x, 3, padding=1), [(2, 3, 6, 7)]),
    "ones": (lambda x, y: x + y.sum(1, keepdim=True), [(1, 1, 3), (2, 1, 1)]),
    "empty": (lambda x: (x * 2, x.sum(0), x.sum()), [(0, 3)]),
    "no dimension": (lambda x: x * 2 + x.sin(), [()]),
    "arange": (lambda x: x + torch.arange(x.shape[1], device=x.device), [(3, 200)]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    function, shapes = SHAPES[name]
    check(function, *(numbers(*s, seed=i) for i, s in enumerate(shapes)), tol=1e-4)


def test_indices():
    x, i = numbers(64, 20), torch.tensor([3, -1, 63, 0, -64, 7, 7])
    check(lambda x, i: (x[i], x[:, i[:2]] + 1, x[i, i % 20]), x, i)
    check(lambda x, i: functional.embedding(i % 64, x) * 2, x, i)
    check(lambda x, i: x.gather(0, (i % 64)[:, None].expand(-1, 20)), x, i)
    check(lambda x, i: x.index_put((i,), x[:7], accumulate=True), x, i)
    check(lambda x, i: x.scatter_add(0, (i % 64)[:, None].expand(-1, 20), x[:7]), x, i)
    check(lambda x, i: x.index_add(0, i % 64, x[:7]), x, i)


@pytest.mark.parametrize("bad", [64, -65])
def test_an_index_out_of_range(bad):
    x = numbers(64, 20).to("ocl")
    lookup = torch.compile(lambda x, i: x[i] + 1)
    lookup(x, torch.tensor([1, 2], device="ocl"))
    torch.ocl.synchronize()
    with pytest.raises(IndexError, match=r"out of bounds|out of range"):
        lookup(x, torch.tensor([1, bad], device="ocl"))
        torch.ocl.synchronize()


def test_special_functions():
    x = numbers(5, 33)
    check(lambda x: (x.lgamma(), x.digamma(), x.clamp(-0.9, 0.9).erfinv(), x.erfc()), x, tol=1e-4)
    s = torch.special
    check(lambda x: (s.i0(x), s.i0e(x), s.i1(x), s.i1e(x), s.ndtri(x.sigmoid())), x, tol=1e-4)
    check(lambda x: (s.bessel_j0(x), s.bessel_y1(x.abs() + 1), s.log_ndtr(x)), x, tol=1e-4)
    check(lambda x: (s.zeta(x.abs() + 2, x.abs() + 1), x.abs().polygamma(1)), x, tol=1e-3)
    check(lambda x: (x.abs() ** 2.5, x**3, 2**x, x.abs() ** -0.5, x.hypot(x + 1)), x, tol=1e-4)


def test_numbers_on_the_cpu():
    check_mixed = torch.compile(lambda s, x: s * x + s)
    x = numbers(40)
    for scalar in (torch.tensor(2.5), torch.tensor(3), torch.tensor(1.5, dtype=torch.float64)):
        torch.testing.assert_close(check_mixed(scalar, x.to("ocl")).cpu(), scalar * x + scalar)


def test_mutation():
    def update(x, y):
        x.mul_(2).add_(y)
        x[1:3] = 0
        return x.sum(-1)

    x, y = numbers(6, 40), numbers(6, 40, seed=1)
    moved = x.to("ocl")
    result = torch.compile(update)(moved, y.to("ocl"))
    torch.testing.assert_close(result.cpu(), update(x, y))
    torch.testing.assert_close(moved.cpu(), x)


def test_rows_that_are_overwritten():
    """Values that a later pass reads must still be there."""

    def normalise(x):
        x.sub_(x.mean(-1, keepdim=True))
        x.div_(x.square().sum(-1, keepdim=True).sqrt())
        return x.amax(-1)

    for shape in ((6, 40), (3, 9001)):
        torch._dynamo.reset()
        x = numbers(*shape)
        moved = x.to("ocl")
        result = torch.compile(normalise)(moved)
        torch.testing.assert_close(result.cpu(), normalise(x))
        torch.testing.assert_close(moved.cpu(), x, rtol=1e-4, atol=1e-5)


def test_scans_and_sorts_are_ops():
    x = numbers(5, 50)
    check(lambda x: (x.cumsum(-1) + 1, x.sort(-1)[0], x.topk(3)[0] * 2), x, tol=1e-4)
    check(lambda x: (x.t() @ x).relu() + 1, x, tol=1e-4)


@pytest.mark.slow
def test_kernels_for_gpus():
    # Without its vectorizer Intel's compiler gets the position of a maximum of 4099 elements wrong,
    # where CPU torch, PoCL and the vectorised kernel agree.
    run_as_gpu(__file__, unvectorised=False)
