"""Convolutions whose kernels store the ReLU of their results, or of their sums with a tensor."""

import pytest
import torch
from torch.nn import functional

from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from tests.layouts import on_device
from tests.ops.spatial import FLOATING

TOLERANCE = {
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.float16: 1e-3,
    torch.bfloat16: 8e-3,
}
# Images, channels, sizes, channels of the result, window, stride, padding, dilation, groups.
CASES = {
    "3x3": (2, 32, (21, 19), 40, 3, 1, 1, 1, 1),
    "strided": (2, 16, (21, 21), 33, 3, 2, 1, 1, 1),
    "first layer": (2, 3, (38, 38), 16, 7, 2, 3, 1, 1),
    "1x1": (2, 24, (15, 17), 72, 1, 1, 0, 1, 1),
    "1x1, aligned": (2, 16, (16, 16), 24, 1, 1, 0, 1, 1),
    "depthwise": (2, 24, (21, 21), 24, 3, 1, 1, 1, 24),
    "depthwise, long lines": (1, 5, (9, 70), 5, 5, 2, 2, 1, 5),
    "depthwise, small images": (3, 40, (7, 7), 40, 3, 1, 1, 1, 40),
    "depthwise, dilated": (2, 12, (13, 13), 12, 3, 1, 1, 2, 12),
    "several a channel": (2, 8, (17, 17), 16, 3, 1, 1, 1, 8),
    "groups": (2, 32, (17, 17), 64, 3, 1, 1, 1, 4),
    "dilated": (2, 16, (20, 20), 24, 3, 1, 2, 2, 1),
    "few results": (2, 16, (20, 20), 3, 3, 1, 1, 1, 1),
    "few results, many rows": (1, 4, (160, 210), 12, 3, 1, 1, 1, 1),
    "four results": (2, 3, (20, 36), 4, 3, 1, 1, 1, 1),
    "two results, few lines": (1, 3, (3, 36), 2, 3, 1, 1, 1, 1),
    "one result": (1, 8, (20, 20), 1, 3, 1, 1, 1, 1),
    "one position": (4, 16, (5, 5), 24, 5, 1, 0, 1, 1),
    "long sums": (1, 300, (9, 9), 33, 3, 1, 1, 1, 1),
    "a line": (3, 6, (50,), 9, 5, 2, 2, 1, 3),
    "a line, one element": (3, 16, (37,), 8, 1, 1, 0, 1, 1),
    "a volume": (2, 6, (5, 7, 8), 10, 3, 1, 1, 1, 2),
    "a volume, strided": (1, 4, (9, 9, 9), 8, 3, 2, 2, 2, 1),
}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
OPS = {
    "cudnn": (torch.cudnn_convolution_relu, torch.cudnn_convolution_add_relu),
    "miopen": (torch.miopen_convolution_relu, torch.miopen_convolution_add_relu),
}


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def operands(case, dtype=torch.float32, last=False, bias=True):
    """Input, weight, bias, and the window's lists with the groups."""
    n, channels, sizes, results, window, *lists, groups = CASES[case]
    axes = len(sizes)
    form = LAST.get(axes + 2) if last else None
    x = numbers(n, channels, *sizes).to(dtype)
    w = numbers(results, channels // groups, *[window] * axes, seed=1)
    w = (w / (channels // groups * window**axes) ** 0.5).to(dtype)
    if form is not None:
        x, w = x.to(memory_format=form), w.to(memory_format=form)
    b = numbers(results, seed=2).to(dtype) if bias else None
    return x, w, b, ([value] * axes for value in lists), groups


def reference(x, w, b, lists, groups, z=None, alpha=1):
    """In double: half types are rounded once."""
    convolve = getattr(functional, f"conv{x.dim() - 2}d")
    y = convolve(x.double(), w.double(), None if b is None else b.double(), *lists, groups)
    return (y if z is None else y + alpha * z.double()).relu()


def check(case, dtype=torch.float32, last=False, bias=True, alpha=0.5, ops="cudnn", which=(0, 1)):
    """Without z and with it, as far as `which` says: both are programs of their own."""
    x, w, b, lists, groups = operands(case, dtype, last, bias)
    lists = list(lists)
    form = LAST[x.dim()] if last and x.dim() > 3 else torch.contiguous_format
    plain = reference(x, w, b, lists, groups)
    z = torch.empty_like(plain, dtype=dtype).copy_(numbers(*plain.shape, seed=3))
    moved = [None if t is None else on_device(t) for t in (x, w, z, b)]
    for number in which:
        if number == 0:
            got = OPS[ops][0](*moved[:2], moved[3], *lists, groups)
            wanted = plain
        else:
            got = OPS[ops][1](*moved[:3], alpha, moved[3], *lists, groups)
            wanted = reference(x, w, b, lists, groups, z, 1 if alpha is None else alpha)
        assert got.dtype == dtype and got.is_contiguous(memory_format=form)
        tol = TOLERANCE[dtype]
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=tol, atol=tol)


@pytest.mark.parametrize("last", [False, True], ids=["planes", "last"])
@pytest.mark.parametrize("case", CASES)
def test_every_kernel(case, last):
    check(case, last=last, which=(1,))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["planes", "last"])
def test_dtypes(dtype, last):
    for case in ("3x3", "1x1, aligned", "depthwise", "few results"):
        check(case, dtype, last)


@pytest.mark.parametrize("last", [False, True], ids=["planes", "last"])
def test_without_bias_or_alpha(last):
    for case in ("strided", "1x1", "depthwise, small images", "one result"):
        check(case, last=last, bias=False, alpha=None)
        check(case, last=last, alpha=-2, ops="miopen")


@pytest.mark.parametrize("last", [False, True], ids=["planes", "last"])
def test_one_kernel_stores_it(last):
    """There are as many launches as of the convolution alone."""
    for case in ("3x3", "strided", "1x1, aligned", "depthwise", "few results", "dilated"):
        x, w, b, lists, groups = operands(case, last=last)
        lists = list(lists)
        x, w, b = on_device(x), on_device(w), on_device(b)
        z = torch.convolution(x, w, b, *lists, False, [0, 0], groups)
        counts = []
        for call in (
            lambda: torch.convolution(x, w, b, *lists, False, [0, 0], groups),  # noqa: B023
            lambda: torch.cudnn_convolution_relu(x, w, b, *lists, groups),  # noqa: B023
            lambda: torch.cudnn_convolution_add_relu(x, w, z, 2, b, *lists, groups),  # noqa: B023
        ):
            before = torch.ocl.launch_count()
            call()
            counts.append(torch.ocl.launch_count() - before)
        # CPUs add a tensor of planes in a pass of its own.
        more = not last and case != "depthwise" and not takes_gpu_kernels()
        assert counts[1:] == [counts[0], counts[0] + more], case


def test_nan_stays():
    x, w, b, lists, groups = operands("3x3")
    lists = list(lists)
    x[0, 3, 4, 5], x[1, 2, 8, 8], x[1, 7, 1, 1] = torch.nan, torch.inf, -torch.inf
    wanted = reference(x, w, b, lists, groups).float()
    assert wanted.isnan().any() and wanted.isinf().any()
    got = torch.cudnn_convolution_relu(*map(on_device, (x, w, b)), *lists, groups)
    torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_operands_as_they_lie():
    """Views, and z in another layout or at an odd address."""
    x, w, b, lists, groups = operands("3x3")
    lists = list(lists)
    plain = reference(x, w, b, lists, groups)
    storage = numbers(plain.numel() + 1, seed=3)
    z = storage[1:].view(plain.shape)
    wanted = reference(x, w, b, lists, groups, z, 3).float()
    strided = on_device(torch.stack([x, x], -1))[..., 1]
    w, b = on_device(w), on_device(b)
    for given in (
        on_device(storage)[1:].view(plain.shape),
        on_device(z).contiguous(memory_format=torch.channels_last),
        on_device(z.mT.contiguous()).mT,
    ):
        kept = given.clone()
        got = torch.cudnn_convolution_add_relu(strided, w, given, 3, b, *lists, groups)
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-5)
        assert torch.equal(given, kept)
    wide = reference(x, w.cpu(), b.cpu(), lists, groups, z[:1, :1].expand(plain.shape), 3).float()
    z = on_device(z)[:1, :1].expand(plain.shape)
    got = torch.cudnn_convolution_add_relu(strided, w, z, 3, b, *lists, groups)
    torch.testing.assert_close(got.cpu(), wide, rtol=1e-5, atol=1e-5)


def test_nothing():
    """No image, no channel of the result, and sums of no products."""
    for n, channels, results in ((0, 4, 6), (2, 4, 0), (2, 0, 6)):
        x, w = torch.randn(n, channels, 5, 5), torch.randn(results, channels, 3, 3)
        b, z = torch.randn(results), torch.randn(n, results, 3, 3)
        lists = [1, 1], [0, 0], [1, 1]
        wanted = (b.view(-1, 1, 1) + 2 * z).relu()
        moved = [on_device(t) for t in (x, w, z)]
        got = torch.cudnn_convolution_add_relu(*moved, 2, on_device(b), *lists, 1)
        assert got.shape == z.shape
        if channels == 0:
            torch.testing.assert_close(got.cpu(), wanted)
        torch.cudnn_convolution_relu(*moved[:2], on_device(b), *lists, 1)


def refused(match, error=RuntimeError, op=torch.cudnn_convolution_relu, **changed):
    """Raises with the operands of a small convolution, changed."""
    given = {
        "x": torch.randn(2, 4, 6, 6),
        "w": torch.randn(6, 4, 3, 3),
        "z": torch.randn(2, 6, 6, 6),
        "b": torch.randn(6),
        "stride": [1, 1],
        "padding": [1, 1],
        "dilation": [1, 1],
        "groups": 1,
    } | changed
    x, w, z, b = (t if t is None else t.to("ocl") for t in map(given.get, "xwzb"))
    rest = [given[name] for name in ("stride", "padding", "dilation", "groups")]
    with pytest.raises(error, match=match):
        if op is torch.cudnn_convolution_relu:
            op(x, w, b, *rest)
        else:
            op(x, w, z, 1, b, *rest)


def test_errors():
    refused("3 to 5 dimensions", x=torch.randn(4, 6))
    refused("expected a weight of 4 dimensions", w=torch.randn(6, 4, 3))
    integers = {"x": torch.ones(2, 4, 6, 6).int(), "w": torch.ones(6, 4, 3, 3).int(), "b": None}
    refused('"cudnn_convolution_relu" not implemented for', NotImplementedError, **integers)
    refused("expected scalar type Float but found Half", w=torch.randn(6, 4, 3, 3).half())
    refused("expected scalar type Float but found Double", b=torch.randn(6).double())
    refused("expected bias to be 1-dimensional with 6", b=torch.randn(5))
    refused("to have 4 channels, but got 5", x=torch.randn(2, 5, 6, 6))
    refused("list of 2 values", stride=[1])
    refused("non-positive stride", stride=[0, 1])
    refused("negative padding", padding=[-1, 0])
    refused("non-positive dilation", dilation=[1, 0])
    refused("expected groups to be greater than 0", groups=0)
    refused("divisible by 4", groups=4, x=torch.randn(2, 16, 6, 6))
    refused("can't be greater than actual input", padding=[0, 0], x=torch.randn(2, 4, 2, 6))
    add = torch.cudnn_convolution_add_relu
    refused("cudnn_convolution_add_relu: expected z of", op=add, z=torch.randn(2, 6, 6, 5))
    refused("expected z of the result's size", op=add, z=torch.randn(1, 6, 1, 1))
    refused("expected scalar type Float but found Half", op=add, z=torch.randn(2, 6, 6, 6).half())


def test_no_derivative():
    """As upstream: there is no formula."""
    x, w, b, lists, groups = operands("one result")
    x = on_device(x).requires_grad_()
    got = torch.cudnn_convolution_relu(x, on_device(w), on_device(b), *lists, groups)
    with pytest.raises(RuntimeError, match="derivative for aten::cudnn_convolution_relu is not"):
        got.sum().backward()


@pytest.mark.slow
def test_as_gpu():
    run_as_gpu(__file__)
