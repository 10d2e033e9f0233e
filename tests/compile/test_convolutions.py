"""Convolutions that torch.compile fuses with what follows them."""

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

import torch_ocl
from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from tests.compile.test_products import compiled, numbers

TOLERANCE = {torch.float32: 5e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
FORMATS = {"planes": torch.contiguous_format, "last": torch.channels_last}


def check(function, *operands, tol=None, kernels=(1, 0, 0)):
    """Compiled it gives what CPU torch gives in double, by so many kernels (see compiled())."""
    tol = tol or TOLERANCE[operands[0].dtype]
    results, _, made = compiled(function, *operands)
    expected = function(*[x.double() for x in operands])
    results, expected = (r if isinstance(r, tuple) else (r,) for r in (results, expected))
    for actual, wanted in zip(results, expected, strict=True):
        actual = actual.cpu().double()
        torch.testing.assert_close(actual, wanted.double(), rtol=tol, atol=tol, equal_nan=True)
    if kernels is not None:
        assert made == kernels


# Images, channels, size of a side, channels of the result, window, and the other arguments.
CASES = {
    "3x3": (2, 32, 21, 40, 3, {"padding": 1}),
    "strided": (2, 16, 21, 33, 3, {"padding": 1, "stride": 2}),
    "first layer": (2, 3, 38, 16, 7, {"padding": 3, "stride": 2}),
    "1x1": (2, 24, 15, 72, 1, {}),
    "1x1, strided": (3, 64, 9, 96, 1, {"stride": 2}),
    "small images": (2, 64, 7, 128, 3, {"padding": 1}),
    "depthwise": (2, 24, 21, 24, 3, {"padding": 1, "groups": 24}),
    "depthwise, long lines": (1, 5, 70, 5, 5, {"padding": 2, "stride": 2, "groups": 5}),
    "depthwise, small images": (3, 40, 7, 40, 3, {"padding": 1, "groups": 40}),
    "several a channel": (2, 8, 17, 16, 3, {"padding": 1, "groups": 8}),
    "groups": (2, 32, 17, 64, 3, {"padding": 1, "groups": 4}),
    "dilated": (2, 16, 20, 24, 3, {"padding": 2, "dilation": 2}),
    "few results": (2, 16, 20, 3, 3, {"padding": 1}),
    "one result": (1, 8, 20, 1, 3, {"padding": 1}),
    "one position": (4, 16, 5, 24, 5, {}),
    "long sums": (1, 300, 9, 33, 3, {}),
}
EPILOGUES = {
    "bias, relu": lambda y, b, r, s: (y + b).relu(),
    "residual": lambda y, b, r, s: (y * s + b + r).relu(),
    "hardswish": lambda y, b, r, s: functional.hardswish(y * s + b),
    "stored too": lambda y, b, r, s: (y, functional.silu(y) * r, y.exp() + b),
}


def operands(case, layout, dtype=torch.float32):
    n, channels, side, results, window, rest = CASES[case]
    groups = rest.get("groups", 1)
    x = numbers(n, channels, side, side, dtype=dtype).to(memory_format=FORMATS[layout])
    w = (
        numbers(results, channels // groups, window, window, seed=1)
        / (channels // groups * window**2) ** 0.5
    )
    w = w.to(dtype).to(memory_format=FORMATS[layout])
    like = functional.conv2d(x.float(), w.float(), **rest)
    b, s = (numbers(results, 1, 1, seed=seed, dtype=dtype) for seed in (2, 3))
    r = torch.empty_like(like, dtype=dtype).copy_(numbers(*like.shape, seed=4))
    return x, w, b, r, s


def fuse(case, name):
    _, _, _, _, _, rest = CASES[case]
    return lambda x, w, b, r, s: EPILOGUES[name](functional.conv2d(x, w, **rest), b, r, s)


# Where all is in the convolution's kernel. GPUs have channels last inside of a graph: operands and
# results are copied where they lie otherwise.
ALL_FUSED = None if takes_gpu_kernels() else (1, 0, 0)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_every_kernel(case, layout):
    # A single channel lies in both ways: upstream copies the operands.
    kernels = None if case == "one result" else ALL_FUSED
    check(fuse(case, "bias, relu"), *operands(case, layout), kernels=kernels)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", EPILOGUES)
def test_every_epilogue(name, dtype):
    for case in ("3x3", "strided", "depthwise", "groups"):
        check(fuse(case, name), *operands(case, "last", dtype), kernels=ALL_FUSED)
    check(fuse("depthwise", name), *operands("depthwise", "planes", dtype), kernels=ALL_FUSED)


def test_residuals_in_planes():
    """CPUs read a few elements of each of many planes at a time: a pass of their own is faster."""
    kernels = None if takes_gpu_kernels() else (0, 1, 1)
    for name in ("residual", "stored too"):
        check(fuse("1x1", name), *operands("1x1", "planes"), kernels=kernels)


def test_on_gpus_with_channels_last():
    """The result of a convolution inside of a network takes what follows it."""
    x, w, b, r, _ = operands("3x3", "last")

    def network(x, w, b, r):
        y = functional.conv2d(x, w, padding=1)
        return functional.conv2d((y + b).relu(), w.mT[:, :, :1, :1].transpose(0, 1)).relu()

    _, _, kernels = compiled(network, x, w, b, r)
    assert kernels[0] >= 1
    check(network, x, w, b, r, kernels=None)


def test_nan_and_infinity():
    """Winograd's kernel sums a strip once more where results aren't finite."""
    for case in ("3x3", "strided", "depthwise"):
        for layout in FORMATS:
            x, w, b, r, s = operands(case, layout)
            x[0, 1, 2, 3], x[-1, 0, 5, 5] = float("inf"), float("nan")
            check(fuse(case, "bias, relu"), x, w, b, r, s, kernels=ALL_FUSED)


def test_sizes_that_change():
    torch._dynamo.reset()
    function = torch.compile(
        lambda x, w, b: functional.conv2d(x, w, padding=1).mul(b).relu(), dynamic=True
    )
    w, b = numbers(24, 16, 3, 3, seed=1) / 12, numbers(24, 1, 1, seed=2)
    for n, height, width in ((2, 20, 20), (1, 20, 20), (5, 33, 9), (3, 7, 50), (0, 20, 20)):
        for layout in FORMATS.values():
            x = numbers(n, 16, height, width).to(memory_format=layout)
            expected = functional.conv2d(x, w, padding=1).mul(b).relu()
            actual = function(*(t.to("ocl") for t in (x, w, b)))
            torch.testing.assert_close(actual.cpu(), expected, rtol=5e-5, atol=5e-5)


def test_other_axes():
    """One and three spatial dimensions, without a batch, in double precision, and transposed ones,
    which stay apart."""
    x, w, b = numbers(2, 8, 50), numbers(12, 8, 5, seed=1), numbers(12, seed=2)
    check(lambda x, w, b: functional.conv1d(x, w, b).relu(), x, w, b, kernels=ALL_FUSED)
    x, w = numbers(2, 8, 9, 10, 11), numbers(12, 8, 3, 3, 3, seed=1) / 15
    check(lambda x, w, b: functional.conv3d(x, w, b).relu(), x, w, b, kernels=ALL_FUSED)
    x, w = numbers(16, 20, 20), numbers(12, 16, 3, 3, seed=1) / 12
    check(lambda x, w, b: functional.conv2d(x, w, b).tanh(), x, w, b, kernels=ALL_FUSED)
    wide = [t.double() for t in (x, w, b)]
    check(lambda x, w, b: functional.conv2d(x, w, b).relu(), *wide, tol=1e-4, kernels=ALL_FUSED)
    apart = None if takes_gpu_kernels() else (0, 1, 1)
    w = numbers(16, 12, 3, 3, seed=1) / 12
    check(
        lambda x, w, b: functional.conv_transpose2d(x[None], w, b).relu(),
        *(x, w, b),
        kernels=apart,
    )


def test_layers_share_programs():
    """Texts are the same for all sizes, where channels aren't told apart in planes."""
    w = [numbers(n, 16, 3, 3, seed=n).to(memory_format=torch.channels_last) for n in (24, 16, 40)]
    b = [numbers(n, 1, 1) for n in (24, 16, 40)]

    def layers(x, *rest):
        pairs = zip(rest[:3], rest[3:], strict=True)
        return tuple((functional.conv2d(x, w) * b).relu() for w, b in pairs)

    x = numbers(2, 16, 20, 20).to(memory_format=torch.channels_last)
    torch._dynamo.reset()
    moved = [t.to("ocl") for t in (x, *w, *b)]
    _, (code,) = run_and_get_code(torch.compile(layers), *moved)
    texts = [part.split("''',")[0] for part in code.split("#define HAS_EPILOGUE")[1:]]
    assert takes_gpu_kernels() or len(texts) == 3
    assert len(set(texts)) <= 1


def test_batch_norm():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.SiLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Conv2d(16, 8, 3), torch.nn.Hardswish()).eval()
    layers[1].running_mean.uniform_(-1, 1)
    layers[1].running_var.uniform_(0.5, 2)
    x = numbers(2, 16, 14, 14)
    with torch.no_grad():
        expected = net(x)
        net.to("ocl")
        (actual,), _, kernels = compiled(lambda x: (net(x),), x)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert takes_gpu_kernels() or kernels == (2, 0, 0)


@pytest.mark.parametrize("kernel", ["few_columns", "tiled", "packed"])
def test_kernels_that_are_asked_for(kernel):
    """Also of kernels that have no place for a text."""
    with torch_ocl.testing.force(convolution=kernel):
        for case in ("3x3", "groups", "few results"):
            for layout in FORMATS:
                check(fuse(case, "residual"), *operands(case, layout), kernels=None)


def test_implicit_gemm():
    """Products of windows, with groups and parts of long sums."""
    with torch_ocl.testing.force(convolution="implicit_gemm", gemm="tiled"):
        for case in ("3x3", "strided", "groups", "dilated", "long sums"):
            for layout in FORMATS:
                check(fuse(case, "residual"), *operands(case, layout), kernels=None)


@pytest.mark.slow
def test_kernels_for_gpus():
    run_as_gpu(__file__)
