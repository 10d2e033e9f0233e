"""What torch's settings of float32's precision do to products and convolutions: TF32 on devices
that have it, nothing on others."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

from torch_ocl import _C


def has_tf32():
    return torch.ocl.get_device_properties().has_tensor_cores


@contextlib.contextmanager
def matmul_precision(name):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def own_precision(use, name):
    setting = getattr(torch.backends.ocl, use)
    before, setting.fp32_precision = setting.fp32_precision, name
    try:
        yield
    finally:
        setting.fp32_precision = before


PRODUCTS = {
    "set_float32_matmul_precision('high')": lambda: matmul_precision("high"),
    "torch.backends.fp32_precision": lambda: torch.backends.flags(fp32_precision="tf32"),
    "torch.backends.ocl.matmul": lambda: own_precision("matmul", "tf32"),
}
CONVOLUTIONS = {
    "torch.backends.fp32_precision": lambda: torch.backends.flags(fp32_precision="tf32"),
    "torch.backends.ocl.conv": lambda: own_precision("conv", "tf32"),
}
#: Of a sum of products, as a share of the sum of their magnitudes: each factor loses 2^-11 or,
#: where it is cut off and not rounded, 2^-10.
LOST = 2.0**-9


def check(exact, lower, reference, magnitude):
    """`lower` has TF32's precision, and is `exact` on a device without TF32."""
    if not has_tf32():
        return torch.testing.assert_close(lower, exact, rtol=0, atol=0)
    error = (lower.cpu().double() - reference).abs() / magnitude
    assert error.max() < LOST
    assert (exact.cpu().double() - reference).abs().div(magnitude).max() < 1e-6


def layouts(rows, columns):
    """A matrix row by row, and column by column."""
    yield torch.randn(rows, columns)
    yield torch.randn(columns, rows).t()


@pytest.mark.parametrize("setting", PRODUCTS)
@pytest.mark.parametrize("m, n, k", [(128, 128, 64), (100, 36, 20), (7, 130, 260), (513, 257, 129)])
def test_products(setting, m, n, k):
    for a in layouts(m, k):
        for b in layouts(k, n):
            x, y = a.to("ocl"), b.to("ocl")
            exact = x @ y
            with PRODUCTS[setting]():
                lower = x @ y
            magnitude = a.double().abs() @ b.double().abs()
            check(exact, lower, a.double() @ b.double(), magnitude)


@pytest.mark.parametrize("setting", CONVOLUTIONS)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "images, channels, size, filters, window, stride, groups",
    [
        (2, 64, 16, 32, 3, 1, 1),
        (2, 3, 33, 24, 7, 2, 1),
        (1, 32, 12, 64, 1, 1, 1),
        (2, 32, 9, 32, 3, 2, 4),
    ],
)
def test_convolutions(setting, layout, images, channels, size, filters, window, stride, groups):
    x = torch.randn(images, channels, size, size).to(memory_format=layout)
    w = torch.randn(filters, channels // groups, window, window).to(memory_format=layout)
    y = F.conv2d(x, w, None, stride, window // 2, groups=groups)
    gradient = torch.randn_like(y)

    def run(device, dtype=torch.float32, change=lambda t: t):
        a, b, g = (change(t.detach()).to(device, dtype) for t in (x, w, gradient))
        a.requires_grad_(), b.requires_grad_()
        out = F.conv2d(a, b, None, stride, window // 2, groups=groups)
        out.backward(g)
        return out.detach(), a.grad, b.grad

    exact = run("ocl")
    with CONVOLUTIONS[setting]():
        lower = run("ocl")
    reference = run("cpu", torch.float64)
    magnitude = run("cpu", torch.float64, torch.abs)
    for four in zip(exact, lower, reference, magnitude, strict=True):
        check(*four)


def test_own_setting_goes_before_torchs():
    a = torch.randn(200, 300, device="ocl")
    exact = a @ a.t()
    with matmul_precision("high"), own_precision("matmul", "ieee"):
        torch.testing.assert_close(a @ a.t(), exact, rtol=0, atol=0)


def test_factorisations_keep_their_precision():
    a = torch.randn(300, 300)
    a = (a @ a.t() + 300 * torch.eye(300)).to("ocl")
    exact = torch.linalg.cholesky(a)
    with torch.backends.flags(fp32_precision="tf32"):
        torch.testing.assert_close(torch.linalg.cholesky(a), exact, rtol=0, atol=0)


def test_the_older_name():
    with own_precision("conv", "none"):
        assert not torch.backends.ocl.conv.allow_tf32
        torch.backends.ocl.conv.allow_tf32 = True
        assert torch.backends.ocl.conv.fp32_precision == "tf32"
        torch.backends.ocl.conv.allow_tf32 = False
        assert torch.backends.ocl.conv.fp32_precision == "ieee"


def test_unknown_names():
    with pytest.raises(ValueError, match="'none', 'ieee' or 'tf32', not 'bf16'"):
        torch.backends.ocl.matmul.fp32_precision = "bf16"
    with pytest.raises(ValueError, match="'matmul' and 'conv', not for 'rnn'"):
        _C.float32_precision("rnn")
