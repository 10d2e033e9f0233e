"""Single precision as three numbers in bfloat16 (kernels/gemm/bfloat16x3.cl), and products and
convolutions by them, where the device has instructions that make them pay."""

import pytest
import torch
import torch.nn.functional as F

from torch_ocl import _C, testing

OCL = torch.device("ocl")
INF, NAN = float("inf"), float("nan")
#: The part of a number that the least multiple of bfloat16's numbers leaves.
LOST = 2.0**-134


def kernel(name):
    source = _C.expand_kernel_source("parts", '#include "gemm/bfloat16x3.cl"\n')
    return torch.ocl.compile_kernel(source, name)


def parts_of_lines(x, pitch):
    lines, length = x.shape
    out = torch.full((3, lines, pitch), 7.0, dtype=torch.bfloat16, device=OCL)
    bytes_of = x.contiguous().view(torch.uint8)
    kernel("gemm_bfloat16x3")(
        bytes_of,
        0,
        out.view(torch.uint8),
        0,
        1,
        length,
        0,
        length,
        lines,
        1,
        pitch,
        lines * pitch * 2,
        global_size=pitch // 8 * lines,
    )
    return out


def wide(*sizes):
    return torch.randn(sizes) * torch.exp2(torch.randint(-60, 60, sizes).float())


def check_parts(parts, x):
    """parts: [3, ...] of x."""
    exact = parts.cpu().double()
    assert torch.equal(parts.cpu()[0] != 0, x != 0)
    error = (exact.sum(0) - x.double()).abs()
    assert (error <= LOST).all(), "three numbers of 8 bits are all of 24"
    large, middle, low = exact.abs()
    assert (middle <= large * 2.0**-8 + LOST).all() and (low <= large * 2.0**-16 + LOST).all()


@pytest.mark.parametrize("length", [1, 7, 8, 100])
def test_parts_add_up_to_the_number(length):
    x = wide(37, length)
    pitch = (length + 7) // 8 * 8
    parts = parts_of_lines(x.to(OCL), pitch)
    check_parts(parts[:, :, :length], x)
    assert (parts[:, :, length:] == 0).all()


def test_parts_of_special_numbers():
    x = torch.tensor([[0.0, -0.0, INF, -INF, 1.0, -1.5, 3.4028234e38, 1e-38]])
    parts = parts_of_lines(x.to(OCL), 8).cpu().double()
    assert (parts[:, 0, :2] == 0).all()
    # An infinity's low part is it: these meet high parts alone, which are 0 where the number is.
    assert parts[:, 0, 2].tolist() == [1, 0, INF] and parts[:, 0, 3].tolist() == [-1, 0, -INF]
    check_parts(parts[:, :, 4:6], x[:, 4:6])
    # Numbers that would round to infinity are cut off, and the rest is larger.
    assert parts[:, 0, 6].sum() == x[0, 6].double() and parts[:, 0].sum(0)[7] - 1e-38 < LOST
    assert parts_of_lines(torch.full((1, 8), NAN, device=OCL), 8)[0].isnan().all()
    # A NaN whose bits are all in the lower half.
    odd = torch.tensor([[0x7F800001] * 8], dtype=torch.int32).view(torch.float32)
    assert parts_of_lines(odd.to(OCL), 8)[0].isnan().all()


@pytest.mark.parametrize(
    "images, channels, positions", [(1, 1, 1), (2, 3, 50), (3, 64, 32), (2, 70, 33), (1, 130, 1)]
)
def test_parts_of_images_have_channels_last(images, channels, positions):
    x = wide(images, channels, positions)
    pitch = (channels + 7) // 8 * 8
    out = torch.full((3, images, positions, pitch), 7.0, dtype=torch.bfloat16, device=OCL)
    tiles = images * ((positions + 31) // 32) * ((pitch + 63) // 64)
    kernel("gemm_bfloat16x3_turned")(
        x.to(OCL).view(torch.uint8),
        0,
        out.view(torch.uint8),
        0,
        positions,
        channels,
        pitch,
        images * positions * pitch * 2,
        global_size=256 * tiles,
        local_size=256,
    )
    check_parts(out[..., :channels], x.movedim(1, 2))
    assert (out[..., channels:] == 0).all()


def test_six_of_nine_products_have_all_bits():
    worst = torch.full((64, 8), 1 + 2.0**-7 - 2.0**-23)
    for a, b in (wide(64, 8), wide(64, 8)), (worst, worst), (1 + torch.rand(64, 8), worst):
        parts_a, parts_b = (parts_of_lines(t.to(OCL), 8).cpu().double() for t in (a, b))
        order = [(2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)]  # A_PLANES and B_PLANES
        total = sum(parts_a[i] * parts_b[j] for i, j in order)
        exact = a.double() * b.double()
        assert ((total - exact).abs() <= exact.abs() * 2.0**-24).all()


def multiplies_by_bfloat16x3():
    """Whether the device's products of float32 are made of bfloat16's."""
    x = torch.zeros(1024, 1024, device=OCL)
    with testing.dispatches() as lines:
        x @ x
    return any("bfloat16x3 runs" in line for line in lines)


def relative(result, exact, magnitudes):
    """The root of the mean square error: the largest of a million errors is a matter of luck."""
    return ((result.cpu().double() - exact) / magnitudes).square().mean().sqrt().item()


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", [(1024, 1040, 777), (1000, 1003, 997)])
def test_large_products_are_as_exact_as_the_cpus(sizes, turned):
    m, n, k = sizes
    a, b = torch.randn(m, k), torch.randn(k, n)
    x = a.t().contiguous().to(OCL).t() if turned[0] else a.to(OCL)
    y = b.t().contiguous().to(OCL).t() if turned[1] else b.to(OCL)
    exact, magnitudes = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    assert relative(x @ y, exact, magnitudes) <= 2 * relative(a @ b, exact, magnitudes)


def test_products_with_one_in_each_row_are_exact():
    a = wide(1024, 1024)
    eye = torch.eye(1024, device=OCL)
    assert torch.equal((eye @ a.to(OCL)).cpu(), a)
    assert torch.equal((a.to(OCL) @ eye).cpu(), a)


def test_infinities_and_nans_are_the_cpus():
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    a[3, 5], a[7, 9], a[11, 2], b[100, 200] = INF, NAN, -INF, INF
    b[5, 6], b[5, 7], b[5, 8], b[2, 9] = 0, 1.0, -0.5, -1
    a[20], a[21, 100], a[22, 100], a[23, 100] = 0, 1.0, -1.0, 0.0
    torch.testing.assert_close(
        (a.to(OCL) @ b.to(OCL)).cpu(), a @ b, equal_nan=True, atol=1e-3, rtol=1e-4
    )


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "images, channels, size, results, window, stride",
    [(4, 64, 40, 64, 3, 1), (4, 128, 28, 96, 3, 2), (8, 256, 14, 512, 1, 2), (2, 36, 61, 72, 5, 2)],
)
def test_convolutions_are_as_exact_as_the_cpus(
    last, images, channels, size, results, window, stride
):
    torch.manual_seed(0)
    x = torch.randn(images, channels, size, size)
    weight = torch.randn(results, channels, window, window)
    bias, padding = torch.randn(results), window // 2
    layout = torch.channels_last if last else torch.contiguous_format

    def run(device, dtype):
        leaves = [
            t.to(device, dtype).contiguous(memory_format=layout).detach().requires_grad_()
            for t in (x, weight)
        ]
        y = F.conv2d(*leaves, bias.to(device, dtype), stride, padding)
        g = torch.Generator().manual_seed(0)
        grad = torch.randn(y.shape, generator=g).to(device, dtype)
        y.backward(grad.contiguous(memory_format=layout))
        return [t.detach().cpu().double() for t in (y, leaves[0].grad, leaves[1].grad)]

    for exact, theirs, ours in zip(
        run("cpu", torch.float64), run("cpu", torch.float32), run(OCL, torch.float32), strict=True
    ):
        largest = exact.abs().max()
        bound = max(3 * (theirs - exact).abs().max() / largest, 1e-6)
        assert (ours - exact).abs().max() / largest <= bound


def test_hopper_multiplies_float32_by_bfloat16x3():
    properties = torch.ocl.get_device_properties()
    hopper = any(name in properties.name for name in ("H100", "H200"))
    assert multiplies_by_bfloat16x3() == hopper
    with torch.backends.flags(fp32_precision="tf32"):
        assert not multiplies_by_bfloat16x3()
