"""torch's settings of float32's precision, in products and convolutions: TF32 on devices
that have it, nothing on others."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

from torch_ocl import _C, testing


def has_tf32():
    return torch.ocl.get_device_properties().has_tensor_cores


@contextlib.contextmanager
def matmul_precision(name):
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:  # "highest" would say more: that no wider setting counts
        torch.set_float32_matmul_precision("highest")
        for backend in ("cuda", "mkldnn"):
            torch._C._set_fp32_precision_setter(backend, "matmul", "none")


@contextlib.contextmanager
def upstream(backend, op, name):
    """torch.backends' own setting of a backend and op, which nothing has said before."""
    torch._C._set_fp32_precision_setter(backend, op, name)
    try:
        yield
    finally:
        torch._C._set_fp32_precision_setter(backend, op, "none")


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
#: The error of a sum of products, as a share of the sum of their magnitudes: each factor loses
#: 2^-11 or, where it is cut off and not rounded, 2^-10.
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


def has_bf16():
    has = torch.ocl.get_device_properties()
    return has.has_bf16_dot or has.has_tensor_cores or has.subgroup_matrix_size != 0


def has_matrix_units():
    has = torch.ocl.get_device_properties()
    return has.has_tensor_cores or has.subgroup_matrix_size != 0


#: Bits lost of each factor: bfloat16 keeps 8 bits; two of them 16, of which products lose the
#: smallest.
BITS_LOST = {"bf16": 2.0**-8, "bf16x3": 2.0**-15}


@pytest.mark.parametrize("name", BITS_LOST)
@pytest.mark.parametrize(
    "batch, m, n, k",
    [((), 128, 96, 64), ((), 100, 36, 50), ((3,), 65, 130, 260), ((), 513, 257, 129)],
)
def test_products_in_bfloat16(name, batch, m, n, k):
    a, b = torch.randn(*batch, m, k), torch.randn(*batch, k, n)
    c = torch.randn(m, n)
    reference = a.double() @ b.double()
    magnitude = a.double().abs() @ b.double().abs()
    for x in (a, a.mT.contiguous().mT):
        for y in (b, b.mT.contiguous().mT):
            x, y = x.to("ocl"), y.to("ocl")
            exact = x @ y
            with own_precision("matmul", name), testing.dispatches() as lines:
                lower, added = x @ y, torch.add(c.to("ocl"), x @ y, alpha=1)
            if not has_bf16():
                torch.testing.assert_close(lower, exact, rtol=0, atol=0)
                continue
            assert any("bfloat16_parts runs" in line for line in lines)
            error = ((lower.cpu().double() - reference).abs() / magnitude).max()
            assert error < 2 * BITS_LOST[name]
            # Not more bits than were asked for, or the test would prove nothing.
            assert error > (2.0**-14 if name == "bf16" else 2.0**-24)
            torch.testing.assert_close(added, lower + c.to("ocl"))


@pytest.mark.parametrize("name", BITS_LOST)
def test_bfloat16_keeps_infinities_nans_and_the_largest_numbers(name):
    largest = 3e38  # rounds up in bfloat16, but not past the largest number
    a, b = torch.ones(64, 64), torch.eye(64)
    a[0, 0], a[1, 1], a[2, 2], a[3, 3], a[4, 4] = torch.inf, -torch.inf, torch.nan, largest, 1e-45
    x, y = a.to("ocl"), b.to("ocl")
    with own_precision("matmul", name):
        left, right = (x @ y).cpu(), (y @ x).cpu()
    # Infinity times zero is no number, as in the exact product.
    expected = a @ b
    assert left.isnan().equal(expected.isnan())
    assert right.isnan().equal((b @ a).isnan())
    full = torch.full((64, 64), 2.0)
    with own_precision("matmul", name):
        out = (x @ full.to("ocl")).cpu()
    want = a @ full
    torch.testing.assert_close(out[[0, 1, 2]], want[[0, 1, 2]], equal_nan=True)
    with own_precision("matmul", name):
        kept = (torch.full((64, 64), largest).to("ocl") @ y).cpu()
    lost = 1.01 * BITS_LOST[name]
    torch.testing.assert_close(kept, torch.full((64, 64), largest), rtol=lost, atol=0)


def test_the_words_for_all_devices():
    a = torch.randn(200, 300, device="ocl")
    exact = a @ a.t()
    has = torch.ocl.get_device_properties()
    with matmul_precision("medium"), testing.dispatches() as lines:
        a @ a.t()
    assert any("bfloat16_parts runs" in line for line in lines) == (
        has_bf16() and not has.has_tensor_cores
    )
    # A processor's three products in bfloat16 take longer than one in float32.
    if has.has_bf16_dot and not has.subgroup_matrix_size:
        with matmul_precision("high"):
            torch.testing.assert_close(a @ a.t(), exact, rtol=0, atol=0)


def test_gradients_in_bfloat16():
    a, b = torch.randn(96, 64), torch.randn(64, 80)
    x, y = a.to("ocl").requires_grad_(), b.to("ocl").requires_grad_()
    with own_precision("matmul", "bf16x3"):
        (x @ y).square().sum().backward()
    s, t = a.double().requires_grad_(), b.double().requires_grad_()
    (s @ t).square().sum().backward()
    torch.testing.assert_close(x.grad.cpu().double(), s.grad, rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(y.grad.cpu().double(), t.grad, rtol=1e-3, atol=1e-2)


def test_own_setting_goes_before_torchs():
    a = torch.randn(200, 300, device="ocl")
    exact = a @ a.t()
    with matmul_precision("high"), own_precision("matmul", "ieee"):
        torch.testing.assert_close(a @ a.t(), exact, rtol=0, atol=0)


@pytest.mark.parametrize("use", ["matmul", "conv"])
def test_the_narrowest_setting_counts(use):
    """The device's own, an op's of its backend, the backend's, and that of all backends."""
    has = torch.ocl.get_device_properties()
    backend = "cuda" if has.has_tensor_cores else "mkldnn"
    lower = "tf32" if has.has_tensor_cores else "bf16"  # what the backend's word is here
    if not has.has_tensor_cores and not has_bf16():
        lower = "ieee"

    def allowed():
        return _C.allowed_float32_precision(use)

    ops = ["all", use]
    word = "tf32" if has.has_tensor_cores else "bf16"
    assert allowed() == "ieee"
    with torch.backends.flags(fp32_precision="ieee"):
        for op in ops:
            with upstream(backend, op, word):
                assert allowed() == lower
                with own_precision(use, "ieee"):
                    assert allowed() == "ieee"
        assert allowed() == "ieee"
    with torch.backends.flags(fp32_precision=word):
        assert allowed() == lower
        for op in ops:
            with upstream(backend, op, "ieee"):
                assert allowed() == "ieee"
    with upstream("mkldnn" if backend == "cuda" else "cuda", "all", "tf32"):
        assert allowed() == "ieee"
    # "tf32" is what cudnn.conv says by default, too: nothing tells it from the user's word.
    if backend == "cuda" and use == "conv":
        with upstream(backend, use, word):
            assert allowed() == "ieee"


def convolution(device, images, stride, groups, dtype=torch.float32, change=lambda t: t):
    """A convolution's result and gradients. `images`: what it is of, its weight, its cotangent."""
    x, w, g = (change(t.detach()).to(device, dtype) for t in images)
    x.requires_grad_(), w.requires_grad_()
    out = F.conv2d(x, w, None, stride, w.shape[-1] // 2, groups=groups)
    out.backward(g)
    return out.detach(), x.grad, w.grad


@pytest.mark.parametrize("name", BITS_LOST)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "count, channels, size, filters, window, stride, groups",
    [
        (2, 64, 12, 40, 3, 1, 1),
        (2, 11, 17, 33, 5, 2, 1),
        (1, 64, 9, 48, 1, 1, 1),
        (2, 64, 9, 64, 3, 1, 2),  # groups take all bits
    ],
)
def test_convolutions_in_bfloat16(
    name, layout, count, channels, size, filters, window, stride, groups
):
    x = torch.randn(count, channels, size, size).to(memory_format=layout)
    w = torch.randn(filters, channels // groups, window, window).to(memory_format=layout)
    images = x, w, torch.randn_like(F.conv2d(x, w, None, stride, window // 2, groups=groups))
    shape = stride, groups
    exact = convolution("ocl", images, *shape)
    # Sub-groups do what matrix units do, where there are none.
    forced = {"gemm": "subgroup_matrix", "convolution": "bfloat16_parts"}
    forced = {} if has_matrix_units() else forced
    with own_precision("conv", name), testing.force(**forced), testing.dispatches() as lines:
        lower = convolution("ocl", images, *shape)
    has = torch.ocl.get_device_properties()
    if groups > 1 or not has_bf16() or not (has_matrix_units() or has.required_sub_group_sizes):
        for a, e in zip(lower, exact, strict=True):
            torch.testing.assert_close(a, e, rtol=0, atol=0)
        return
    assert sum("bfloat16_parts runs" in line for line in lines) == 3
    reference = convolution("cpu", images, *shape, torch.float64)
    magnitude = convolution("cpu", images, *shape, torch.float64, torch.abs)
    for a, e, m in zip(lower, reference, magnitude, strict=True):
        error = ((a.cpu().double() - e).abs() / m).max()
        assert (2.0**-14 if name == "bf16" else 2.0**-24) < error < 2 * BITS_LOST[name]


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
    with pytest.raises(ValueError, match="'none', 'ieee', 'tf32', 'bf16x3' or 'bf16', not 'fp8'"):
        torch.backends.ocl.matmul.fp32_precision = "fp8"
    with pytest.raises(ValueError, match="'matmul' and 'conv', not for 'rnn'"):
        _C.float32_precision("rnn")
