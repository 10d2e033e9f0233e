"""Layer, RMS, group, batch and instance norm against CPU torch, forward and backward."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu
from tests.ops.norms import CHANNEL_SHAPES, FLOATING, aten, check, made, results

LAYER_SHAPES = [(1, 1), (7,), (4, 33), (3, 1000), (3000, 16), (5000, 3), (2, 100003), (2, 5, 6, 17)]
LAYER_SHAPES += [(70, 260), (9, 2052)]  # rows that GPUs keep in registers
LAYER_SHAPES += [(9000, 1024)]  # more than the caches hold: stored past them
AFFINE_SHAPE = (4, 33)  # with and without weight and bias


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", LAYER_SHAPES, ids=str)
def test_layer_norm(dtype, shape):
    inner = shape[1:] or shape
    x, weight, bias = made(shape, dtype), made(inner, dtype, 1), made(inner, dtype, 2)
    check(lambda x, w, b: functional.layer_norm(x, inner, w, b), [x, weight, bias])
    if shape == AFFINE_SHAPE:
        check(lambda x, w: functional.layer_norm(x, inner, w), [x, weight])
        check(lambda x, b: functional.layer_norm(x, inner, None, b), [x, bias])
        check(lambda x: functional.layer_norm(x, inner), [x])


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", LAYER_SHAPES, ids=str)
def test_rms_norm(dtype, shape):
    inner = shape[1:] or shape
    x, weight = made(shape, dtype), made(inner, dtype, 1)
    check(lambda x, w: functional.rms_norm(x, inner, w), [x, weight])
    if shape == AFFINE_SHAPE:
        check(lambda x: functional.rms_norm(x, inner, eps=0.5), [x])


@pytest.mark.parametrize("parameter", [None, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("first", [0, 8, 32])
@pytest.mark.parametrize("length", [32, 96, 4128])
def test_rows_of_bfloat16(length, first, parameter):
    """CPUs take two elements of a word at a time, where rows are whole words of 64 bytes."""
    x = made((40 * length + first,), torch.bfloat16)
    weight, bias = (parameter and made((length,), parameter, seed) for seed in (1, 2))
    parameters = [] if parameter is None else [weight, bias]

    def rows(function):
        return lambda x, *given: function(x[first:].view(40, length), (length,), *given)

    check(rows(functional.layer_norm), [x, *parameters])
    check(rows(functional.rms_norm), [x, *parameters[:1]])


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 3e38])
def test_statistics_of_bfloat16_rows_that_are_not_finite(value):
    """Their NaN stays one, whatever it carries besides."""
    x, weight = made((5, 64), torch.bfloat16), made((64,), torch.bfloat16, 1)
    x[1, 3], x[3] = value, value
    for function in (functional.layer_norm, functional.rms_norm):
        for parameters in ([], [weight]):
            e = function(x.float(), (64,), *(w.float() for w in parameters)).bfloat16()
            a = function(x.to("ocl"), (64,), *(w.to("ocl") for w in parameters))
            if value == 3e38:  # sums in float overflow in some order or another
                e, a = e[[0, 2, 4]], a[[0, 2, 4]]
            assert_close(a.cpu(), e, equal_nan=True)


@pytest.mark.parametrize("bits", [-1, 0x7FC00000, 0x7FFFFFFF])
def test_any_nan_among_the_statistics(bits):
    """The payload of a NaN may not make a number of it."""
    rstd = torch.ones(4, 1)
    rstd.view(torch.int32)[2] = bits
    x, weight = made((4, 64), torch.bfloat16).to("ocl"), made((64,), torch.bfloat16, 1).to("ocl")
    out = aten._fused_rms_norm_backward(x, x, [64], rstd.to("ocl"), weight, [True, True])[0]
    assert out.isnan().cpu().all(1).tolist() == [False, False, True, False]


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("with_respect_to", ["input", "weight"])
def test_tangent_of_rms_norm(dtype, with_respect_to):
    """It has the input's dtype, from dual tensors and from torch.func."""
    x, weight = made((4, 33), dtype), made((33,), dtype, 1)
    of = {"input": (x, lambda t, w: functional.rms_norm(t, (33,), w), weight)}
    of["weight"] = (weight, lambda t, x: functional.rms_norm(x, (33,), t), x)
    primal, function, other = of[with_respect_to]
    tangent = made(primal.shape, dtype, 2)

    def both(device):
        p, t, o = (v.to(device) for v in (primal, tangent, other))
        with forward_ad.dual_level():
            dual = forward_ad.unpack_dual(function(forward_ad.make_dual(p, t), o)).tangent
        return dual.cpu(), torch.func.jvp(lambda q: function(q, o), (p,), (t,))[1].cpu()

    assert_close(both("ocl"), both("cpu"))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", CHANNEL_SHAPES, ids=str)
def test_group_norm(dtype, shape):
    channels = shape[1]
    x, weight, bias = made(shape, dtype), made(channels, dtype, 1), made(channels, dtype, 2)
    groups = channels // 3 if channels % 3 == 0 else 1
    check(lambda x, w, b: functional.group_norm(x, groups, w, b), [x, weight, bias])
    if shape == (2, 6, 4, 5):
        check(lambda x: functional.group_norm(x, 6), [x])
        # A channel per group, whose elements fill vectors.
        even = [made((3, 4, 8, 8), dtype), made(4, dtype, 1), made(4, dtype, 2)]
        check(lambda x, w, b: functional.group_norm(x, 4, w, b), even)
        last = x.contiguous(memory_format=torch.channels_last)
        check(lambda x, w: functional.group_norm(x, 1, w), [last, weight])


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: (nn.BatchNorm1d(5, **k), (8, 5)),
        lambda **k: (nn.BatchNorm1d(5, momentum=None, **k), (8, 5, 7)),
        lambda **k: (nn.BatchNorm2d(5, **k), (3, 5, 4, 6)),
        lambda **k: (nn.BatchNorm2d(5, track_running_stats=False, **k), (3, 5, 4, 6)),
        lambda **k: (nn.BatchNorm3d(5, affine=False, **k), (3, 5, 2, 3, 4)),
        lambda **k: (nn.InstanceNorm1d(5, **k), (3, 5, 9)),
        lambda **k: (
            nn.InstanceNorm2d(5, affine=True, track_running_stats=True, **k),
            (3, 5, 4, 6),
        ),
        lambda **k: (nn.LayerNorm((4, 6), **k), (3, 5, 4, 6)),
        lambda **k: (nn.LayerNorm(6, bias=False, **k), (3, 5, 4, 6)),
        lambda **k: (nn.RMSNorm(6, **k), (3, 5, 4, 6)),
        lambda **k: (nn.GroupNorm(2, 6, **k), (3, 6, 4, 6)),
    ],
)
def test_modules(make):
    """Training steps, then evaluation; running statistics agree too."""
    torch.manual_seed(0)
    module, shape = make()
    twin = copy.deepcopy(module).to("ocl")
    for _ in range(3):
        x = torch.randn(shape) * 2 + 1
        for m, device in ((module, "cpu"), (twin, "ocl")):
            m.zero_grad()
            m(x.to(device)).pow(3).sum().backward() if list(m.parameters()) else m(x.to(device))
        for a, e in zip(twin.parameters(), module.parameters(), strict=True):
            assert_close(a.grad.cpu(), e.grad, rtol=1e-3, atol=1e-3)
    for (name, a), e in zip(twin.named_buffers(), module.buffers(), strict=True):
        assert_close(a.cpu(), e, msg=name)
    module.eval(), twin.eval()
    x = torch.randn(shape)
    assert_close(twin(x.to("ocl")).cpu(), module(x))


LARGE = [(torch.float32, n) for n in (48, 1023, 1024, 1040, 8192)]
LARGE += [(torch.float64, 8), (torch.float64, 512), (torch.float16, 768)]
LARGE += [(torch.bfloat16, n) for n in (48, 96, 1024)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype,length", LARGE, ids=str)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("norm", [functional.layer_norm, functional.rms_norm])
def test_larger_than_the_caches(norm, weighted, dtype, length):
    """Results of this size are stored past the caches, in whole vectors of rows, odd and even
    numbers of them; and not, where rows aren't that."""
    rows = 20 * 2**20 // dtype.itemsize // length + 1
    inputs = [made((rows, length), dtype)]
    if weighted:
        inputs += [
            made(length, dtype, seed) for seed in (1, 2)[: 2 - (norm is functional.rms_norm)]
        ]
    check(lambda x, *parameters: norm(x, [length], *parameters), inputs)


@pytest.mark.parametrize("norm", [functional.layer_norm, functional.rms_norm])
def test_rows_that_are_not_finite_among_many(norm):
    """The rows beside them are as they would be."""
    x = made((3000, 1024), torch.float32)
    x[5, 7], x[9, 0], x[11] = torch.nan, torch.inf, 0
    actual, expected = (
        results(lambda x: norm(x, [1024]), [x], device) for device in ("ocl", "cpu")
    )
    for a, e in zip(actual, expected, strict=True):
        assert_close(a.cpu(), e, rtol=1e-4, atol=1e-3, equal_nan=True)


def pairs(function):
    """A function's results on both devices, or the type of what it raises."""
    out = []
    for device in ("ocl", "cpu"):
        try:
            out.append(function(device))
        except Exception as error:  # noqa: BLE001 - the type is what is compared
            out.append(type(error))
    return out


@pytest.mark.parametrize("parameter", [None, *FLOATING], ids=str)
@pytest.mark.parametrize("dtype", [*FLOATING, torch.int64], ids=str)
def test_mixed_dtypes(dtype, parameter):
    """Dtypes that CPU torch takes and refuses, and those of the results."""
    x = made((4, 6, 5), torch.float32).to(dtype)
    p = None if parameter is None else torch.ones(6).to(parameter)
    t = x.transpose(1, 2)

    def on(device, *tensors):
        return [None if a is None else a.to(device) for a in tensors]

    def layer(device):
        a, w = on(device, t, p)
        return aten.native_layer_norm(a, [6], w, w, 1e-5)

    def group(device):
        a, w = on(device, x, p)
        return aten.native_group_norm(a, w, None, 4, 6, 5, 3, 1e-5)

    def batch(device):
        a, w, mean, var = on(device, x, p, *[None if p is None else p.clone() for _ in range(2)])
        return aten.native_batch_norm(a, w, None, mean, var, True, 0.1, 1e-5)

    def rms(device):
        a, w = on(device, t, p)
        return aten._fused_rms_norm(a, [6], w, None)

    for function in (layer, group, batch, rms):
        actual, expected = pairs(function)
        if isinstance(expected, type):
            assert actual is expected, function
            continue
        for a, e in zip(actual, expected, strict=True):
            assert a.dtype == e.dtype and a.shape == e.shape
            assert_close(a.cpu(), e, rtol=2e-2, atol=2e-2)


def test_mixed_dtypes_backward():
    """bfloat16 values with float parameters, against the gradients in double: CPU torch rounds in
    between. What flows back is given, for a function of the rounded result would magnify."""
    x = made((4, 6, 5), torch.float32).bfloat16()
    weight = made(6, torch.float32, 1)
    back = made((4, 6, 5), torch.float32, 2).bfloat16()

    def gradients(function, device, dtype=None):
        a, w = (v.to(device, dtype or v.dtype).requires_grad_() for v in (x, weight))
        out = function(a, w)
        return torch.autograd.grad(out, (a, w), back.to(out))

    def layer(a, w):
        return functional.layer_norm(a.transpose(1, 2), [6], w, w).transpose(1, 2)

    def batch(a, w):
        return functional.batch_norm(a, None, None, w, w, True)

    for function in (layer, batch):
        dtypes = [g.dtype for g in gradients(function, "cpu")]
        exact = gradients(function, "cpu", torch.float64)
        for a, e, dtype in zip(gradients(function, "ocl"), exact, dtypes, strict=True):
            assert a.dtype == dtype
            assert_close(a.cpu().double(), e, rtol=1.6e-2, atol=1e-3)


@pytest.mark.parametrize("masked", range(8))
def test_output_mask(masked):
    mask = [bool(masked & bit) for bit in (1, 2, 4)]
    x, grad, weight = (
        made((4, 6, 5), torch.float32),
        made((4, 6, 5), torch.float32, 5),
        made(6, torch.float32, 1),
    )
    flat = x.transpose(1, 2).contiguous()

    def layer(device):
        a, g, w = flat.to(device), flat.flip(0).to(device), weight.to(device)
        _, mean, rstd = aten.native_layer_norm(a, [6], w, w, 1e-5)
        return aten.native_layer_norm_backward(g, a, [6], mean, rstd, w, w, mask)

    def group(device):
        a, g, w = x.to(device), grad.to(device), weight.to(device)
        _, mean, rstd = aten.native_group_norm(a, w, w, 4, 6, 5, 2, 1e-5)
        return aten.native_group_norm_backward(g, a, mean, rstd, w, 4, 6, 5, 2, mask)

    def batch(device, train):
        a, g, w = x.to(device), grad.to(device), weight.to(device)
        _, mean, rstd = aten.native_batch_norm(a, w, w, None, None, True, 0, 1e-5)
        running = w.abs() + 0.5
        args = (running, running, mean, rstd, train, 1e-5, mask)
        return aten.native_batch_norm_backward(g, a, w, *args)

    for function in (layer, group, lambda d: batch(d, True), lambda d: batch(d, False)):
        for wanted, a, e in zip(mask, function("ocl"), function("cpu"), strict=True):
            if wanted:
                assert_close(a.cpu(), e, rtol=1e-4, atol=1e-4)
            else:
                assert a is None or not wanted


def test_layouts():
    x = made((6, 20, 34), torch.float32)
    for view in (
        lambda t: t.transpose(0, 2),
        lambda t: t[:, ::2],
        lambda t: t[1:, 1:, 1:],
        lambda t: t[:1].expand(4, -1, -1),
    ):
        size = view(x).shape
        for function in (
            lambda t, s=size: functional.layer_norm(t, s[1:]),
            lambda t, s=size: functional.layer_norm(
                t, s[2:], made(2 * s[2], t.dtype)[::2].to(t.device)
            ),
            lambda t, s=size: functional.rms_norm(t, s[2:]),
            lambda t: functional.group_norm(t, 2) if t.shape[1] % 2 == 0 else t,
            lambda t: functional.batch_norm(t, None, None, training=True),
            lambda t: functional.instance_norm(t),
        ):
            a, e = function(view(x.to("ocl"))), function(view(x))
            assert a.stride() == e.stride()
            assert_close(a.cpu(), e, rtol=1e-4, atol=1e-5)
    pixel = made((2, 8, 1, 1), torch.float32).to(memory_format=torch.channels_last)
    assert functional.group_norm(pixel.to("ocl"), 2).stride() == (8, 1, 8, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_cancellation(dtype):
    """A variance as the difference of two mean squares would be noise here."""
    x = made((6, 500), dtype, mean=3e3 if dtype == torch.float32 else 1e7)
    exact = x.double() - x.double().mean(1, keepdim=True)
    exact = exact / exact.square().mean(1, keepdim=True).sqrt()
    d = x.to("ocl")
    allowed = 2e-3 if dtype == torch.float32 else 1e-8
    for out in (
        functional.layer_norm(d, [500], eps=0.0),
        functional.group_norm(d[None], 6, eps=0.0)[0],
        functional.batch_norm(d[None], None, None, training=True, eps=1e-20)[0],
        functional.batch_norm(d.t(), None, None, training=True, eps=1e-20).t(),
    ):
        assert_close(out.cpu().double(), exact, rtol=0, atol=allowed)


@pytest.mark.parametrize("length", [3, 128, 1001, 4096, 50000])
@pytest.mark.parametrize("mean", [-1e3, 1e4])
def test_rows_far_from_zero(mean, length):
    """The mean is as exact as a float can be, and that of a long row's blocks nearly."""
    torch.manual_seed(length)
    x = torch.randn(17, length) + mean
    expected = functional.layer_norm(x.double(), (length,))
    found = functional.layer_norm(x.to("ocl"), (length,)).cpu().double()
    # Half a unit of the mean's last place, of deviations of 1, and what the sums round. Those of
    # three numbers may be small.
    allowed = abs(mean) * 2**-24 * {3: 20, 50000: 3}.get(length, 1.5) + 2e-6
    assert (found - expected).abs().max() <= allowed


def test_rows_that_begin_with_the_largest_numbers():
    for first in (3e38, -3e38, 1e30, torch.inf, torch.nan):
        x = torch.randn(4, 300)
        x[1, 0], x[2, 1] = first, first
        expected = functional.layer_norm(x.double(), (300,)).float()
        found = functional.layer_norm(x.to("ocl"), (300,)).cpu()
        finite = x.square().sum(1).isfinite()
        torch.testing.assert_close(found[finite], expected[finite], rtol=1e-4, atol=1e-5)
        reference = functional.layer_norm(x, (300,))
        assert torch.equal(found.isnan(), reference.isnan())


def test_special_values():
    nan, inf = float("nan"), float("inf")
    x = torch.randn(6, 40)
    x[0, 3], x[1, 5], x[2, 7] = nan, inf, -inf
    x[3], x[5] = 2.0, nan
    x[4] *= 1e10
    for function in (
        lambda t: functional.layer_norm(t, [40], t[2].detach().nan_to_num(0, 1, 1)),
        lambda t: functional.layer_norm(t, [40], eps=0.0),
        lambda t: functional.rms_norm(t, [40]),
        lambda t: functional.group_norm(t, 4),
        lambda t: functional.batch_norm(t, None, None, training=True),
        lambda t: functional.batch_norm(t[None], None, None, training=True),
    ):
        a, e = function(x.to("ocl")), function(x)
        assert torch.equal(a.cpu().isnan(), e.isnan())
        assert_close(a.cpu(), e, equal_nan=True)


def test_empty():
    w = torch.ones(4)

    def layer(device, shape, inner):
        x = torch.empty(shape, device=device)
        p = torch.ones(inner, device=device)
        y, mean, rstd = aten.native_layer_norm(x, inner, p, p, 1e-5)
        return (
            y,
            mean,
            rstd,
            *aten.native_layer_norm_backward(x, x, inner, mean, rstd, p, p, [True] * 3),
        )

    for shape, inner in (((0, 4), [4]), ((3, 0), [0]), ((0, 3, 4), [3, 4])):
        for a, e in zip(layer("ocl", shape, inner), layer("cpu", shape, inner), strict=True):
            assert_close(a.cpu(), e, equal_nan=True)
    for function in (
        lambda d: functional.group_norm(torch.empty(0, 4, 3, device=d), 2, w.to(d)),
        lambda d: functional.group_norm(torch.empty(2, 4, 0, device=d), 2, w.to(d)),
        lambda d: functional.batch_norm(torch.empty(0, 4, 3, device=d), w.to(d), w.to(d)),
        lambda d: aten.native_batch_norm(
            torch.empty(0, 4, 3, device=d), None, None, None, None, True, 0.1, 1e-5
        )[0],
        lambda d: functional.rms_norm(torch.empty(0, 4, device=d), [4], w.to(d)),
    ):
        actual, expected = pairs(function)
        if isinstance(expected, type):
            assert actual is expected
        else:
            assert_close(actual.cpu(), expected)
    x = torch.empty(2, 4, 0, device="ocl", requires_grad=True)
    weight = w.to("ocl").requires_grad_()
    functional.group_norm(x, 2, weight).sum().backward()
    assert_close(weight.grad.cpu(), torch.zeros(4))


def test_double_backward():
    x = made((4, 6, 5), torch.float64)
    weight = made(6, torch.float64, 1)

    def second(function, device):
        a, w = x.to(device).requires_grad_(), weight.to(device).requires_grad_()
        (first,) = torch.autograd.grad((function(a, w) ** 3).sum(), a, create_graph=True)
        return torch.autograd.grad((first**2).sum(), (a, w))

    for function in (
        lambda a, w: functional.layer_norm(a.transpose(1, 2), [6], w, w),
        lambda a, w: functional.rms_norm(a.transpose(1, 2), [6], w),
        lambda a, w: functional.group_norm(a, 3, w, w),
        lambda a, w: functional.batch_norm(a, None, None, w, w, True),
        lambda a, w: functional.batch_norm(a, a.new_ones(6), a.new_ones(6), w, w, False),
    ):
        for a, e in zip(second(function, "ocl"), second(function, "cpu"), strict=True):
            assert_close(a.cpu(), e, rtol=1e-6, atol=1e-6)


def test_errors():
    for function in (
        lambda d: functional.layer_norm(torch.ones(2, 3, device=d), [4]),
        lambda d: functional.layer_norm(torch.ones(2, 3, device=d), []),
        lambda d: functional.layer_norm(torch.ones(2, 3, device=d), [3], torch.ones(2, device=d)),
        lambda d: functional.rms_norm(torch.ones(2, 3, device=d), [3], torch.ones(2, device=d)),
        lambda d: functional.rms_norm(torch.ones(3, device=d), [2, 3]),
        lambda d: functional.group_norm(torch.ones(2, 3, device=d), 2),
        lambda d: torch.group_norm(torch.ones(2, 3, device=d), 2),
        lambda d: torch.group_norm(torch.ones(2, 3, device=d), 3, torch.ones(2, device=d)),
        lambda d: functional.batch_norm(torch.ones(2, 3, device=d), None, None),
        lambda d: functional.batch_norm(torch.ones(1, 3, device=d), None, None, training=True),
        lambda d: functional.batch_norm(
            torch.ones(2, 3, device=d), torch.ones(2, device=d), torch.ones(2, device=d)
        ),
        lambda d: functional.layer_norm(torch.ones(2, 3, device=d, dtype=torch.int32), [3]),
        lambda d: functional.batch_norm(
            torch.ones(2, 3, device=d, dtype=torch.int32), None, None, training=True
        ),
    ):
        actual, expected = pairs(function)
        assert isinstance(expected, type) and actual is expected, (actual, expected)


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)
