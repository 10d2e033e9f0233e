"""torch_ocl::int4_*, the ops on packed 4-bit integers, against their numbers in double."""

import pytest
import torch
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu, takes_gpu_kernels
from torch_ocl.utils.int4 import Int4Tensor, pack

OPS = torch.ops.torch_ocl
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def matrix(n, k, group, kind=torch.float16, ordered=True):
    """A packed matrix on the device, and its numbers in double. kind: the dtype of scales."""
    torch.manual_seed(n + k)
    values = torch.randint(0, 16, (n, k), dtype=torch.uint8)
    scales = (torch.rand(max(1, k // group), n) + 0.1).to(kind)
    points = torch.randint(0, 17, scales.shape)
    order = None if ordered else torch.randperm(k).int()
    made = pack(
        values.ocl(), scales.ocl(), points.ocl(), None if ordered else order.ocl(), torch.float32
    )
    wide = [part.double().repeat_interleave(group, 0)[:k].t() for part in (scales, points)]
    exact = (values.double() - wide[1]) * wide[0]
    if not ordered:
        exact = torch.empty_like(exact).index_copy_(1, order.long(), exact)
    return made, exact


def parts(weight):
    return weight.bits, weight.pairs, weight.order, weight.in_lanes


def near(found, exact, dtype, scale=None):
    """Within a rounding of the dtype and what sums in float32 lose."""
    assert found.dtype == dtype and found.device.type == "ocl" and found.shape == exact.shape
    largest = exact.abs().max() if scale is None else scale
    allowed = torch.finfo(dtype).eps * exact.abs() + 4e-6 * largest
    assert ((found.cpu().double() - exact).abs() <= allowed).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ordered", [True, False], ids=["", "permuted"])
@pytest.mark.parametrize("group", [32, 96, 128, 160, 480])
def test_dequantize(group, ordered, dtype):
    for n in (16, 5, 48):
        weight, exact = matrix(n, 2 * group, group, ordered=ordered)
        near(OPS.int4_dequantize(*parts(weight), dtype), exact, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 33])
@pytest.mark.parametrize("group", [32, 64, 96, 128, 224, 256, 416])
def test_linear(group, rows, dtype):
    """Groups of any multiple of 32 columns, rows of the matrix that fill vectors and that don't."""
    torch.manual_seed(rows)
    for n, count in ((48, 2), (144, 1), (7, 3)):
        k = count * group
        weight, exact = matrix(n, k, group)
        x, bias = torch.randn(rows, k).to(dtype), torch.randn(n).to(dtype)
        in_kernel = rows <= 8 and (weight.in_lanes or takes_gpu_kernels())
        # Numbers that are in memory are rounded, too.
        weights = exact if in_kernel else exact.float().to(dtype).double()
        wanted = x.double() @ weights.t()
        near(OPS.int4_linear(x.ocl(), *parts(weight), None), wanted, dtype)
        found = OPS.int4_linear(x.ocl()[None], *parts(weight), bias.ocl())
        near(found[0], wanted + bias.double(), dtype, wanted.abs().max())


@pytest.mark.parametrize("kind", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 9])
def test_scales_of_another_dtype(rows, kind):
    weight, exact = matrix(32, 256, 128, kind)
    x = torch.randn(rows, 256)
    near(OPS.int4_linear(x.ocl(), *parts(weight), None), x.double() @ exact.t(), torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 8, 9])
def test_columns_in_another_order(rows, dtype):
    weight, exact = matrix(32, 256, 128, ordered=False)
    x = torch.randn(rows, 256).to(dtype)
    weights = exact if rows <= 8 else exact.float().to(dtype).double()
    near(OPS.int4_linear(x.ocl(), *parts(weight), None), x.double() @ weights.t(), dtype)
    vector = OPS.int4_linear(x[0].ocl(), *parts(weight), None)
    near(vector, x[0].double() @ exact.t(), dtype)
    grad = torch.randn(rows, 32).to(dtype)
    found = OPS.int4_linear_gradient(grad.ocl(), *parts(weight))
    near(found, grad.double() @ exact.float().to(dtype).double(), dtype)


@pytest.mark.parametrize("rows", [3, 9])
def test_operands_that_begin_anywhere(rows):
    weight, exact = matrix(32, 256, 64)
    x = torch.randn(2 * rows, 257)
    part = x.ocl()[::2, 1:]
    wanted = x[::2, 1:].double() @ exact.t()
    near(OPS.int4_linear(part, *parts(weight), None), wanted, torch.float32)
    turned = x[::2, 1:].t().contiguous().ocl().t()
    near(OPS.int4_linear(turned, *parts(weight), None), wanted, torch.float32)

    def moved(t):
        store = torch.zeros(t.numel() + 1, dtype=t.dtype, device="ocl")
        return store[1:].view(t.shape).copy_(t)

    bits, pairs = moved(weight.bits), moved(weight.pairs)
    near(OPS.int4_linear(part, bits, pairs, None, weight.in_lanes, None), wanted, torch.float32)


@pytest.mark.parametrize("rows", [1, 9])
def test_bits_that_lie_as_another_device_has_them(rows):
    torch.manual_seed(0)
    values, x = torch.randint(0, 16, (32, 96), dtype=torch.uint8), torch.randn(rows, 96)
    lanes = values.view(2, 16, 48, 2).transpose(1, 2)
    blocks = values.view(32, 3, 2, 16)
    pairs = torch.rand(3, 32, 2)
    wide = pairs.double().repeat_interleave(32, 0)
    exact = (values.double() - wide[..., 1].t()) * wide[..., 0].t()
    for in_lanes, packed in (
        (True, lanes[..., 0] + 16 * lanes[..., 1]),
        (False, blocks[:, :, 0] + 16 * blocks[:, :, 1]),
    ):
        bits = packed.reshape(32, 48)
        for device in ("ocl", "cpu"):
            weight = bits.to(device), pairs.to(device), None, in_lanes
            found = OPS.int4_linear(x.to(device), *weight, None)
            assert_close(found.cpu().double(), x.double() @ exact.t(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("n", [35, 48])
def test_gradient(n, rows, dtype):
    torch.manual_seed(rows)
    weight, exact = matrix(n, 192, 64)
    grad = torch.randn(rows, n).to(dtype)
    found = OPS.int4_linear_gradient(grad.ocl(), *parts(weight))
    near(found, grad.double() @ exact.float().to(dtype).double(), dtype)


def test_a_matrix_that_is_unpacked_in_parts():
    """2^24 numbers are in memory at a time."""
    weight, exact = matrix(528, 32768, 128)
    x, grad, bias = torch.randn(9, 32768), torch.randn(9, 528), torch.randn(528)
    found = OPS.int4_linear(x.ocl(), *parts(weight), bias.ocl())
    near(found, x.double() @ exact.t() + bias.double(), torch.float32)
    found = OPS.int4_linear_gradient(grad.ocl(), *parts(weight))
    near(found, grad.double() @ exact, torch.float32)


def test_nothing():
    weight, _ = matrix(16, 64, 32)
    bits, pairs, _, in_lanes = parts(weight)
    none = torch.empty(0, 64, device="ocl")
    assert OPS.int4_linear(none, *parts(weight), None).shape == (0, 16)
    assert OPS.int4_linear(none[None], *parts(weight), None).shape == (1, 0, 16)
    assert OPS.int4_linear_gradient(none[:, :16], *parts(weight)).shape == (0, 64)
    no_rows = bits[:0], pairs[:, :0], None, in_lanes
    assert OPS.int4_linear(torch.ones(2, 64, device="ocl"), *no_rows, None).shape == (2, 0)
    empty = OPS.int4_linear_gradient(torch.ones(2, 0, device="ocl"), *no_rows)
    assert empty.shape == (2, 64) and not empty.any()
    assert OPS.int4_dequantize(*no_rows, torch.half).shape == (0, 64)
    no_columns = bits[:, :0], pairs[:0], None, in_lanes
    bias = torch.randn(16, device="ocl")
    found = OPS.int4_linear(torch.ones(2, 0, device="ocl"), *no_columns, bias)
    assert torch.equal(found.cpu(), bias.cpu().expand(2, 16))
    assert not OPS.int4_linear(torch.ones(2, 0, device="ocl"), *no_columns, None).any()
    packed, _ = OPS.int4_pack(torch.empty(0, 64, dtype=torch.uint8, device="ocl"))
    assert packed.shape == (0, 32)


@pytest.mark.parametrize("n", [16, 80])
@pytest.mark.parametrize("rows", [1, 4, 8, 12])
def test_infinities(n, rows):
    """Results have the signs of the weights that infinities meet. A NaN is one row's alone."""
    weight, exact = matrix(n, 192, 64)
    x = torch.randn(rows, 192)
    x[0, 70] = torch.inf
    x[-1, 3], x[-1, 150] = -torch.inf, torch.nan if rows > 4 else 1
    found = OPS.int4_linear(x.ocl(), *parts(weight), None)
    wanted = (x.double() @ exact.t()).float()
    assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_what_is_refused():
    weight, _ = matrix(16, 64, 32)
    bits, pairs, _, lanes = parts(weight)
    x = torch.ones(2, 64, device="ocl")
    order = torch.arange(64, device="ocl")
    whole = torch.empty(16, 1024, dtype=torch.uint8, device="ocl")
    for match, call in (
        ("bits as bytes", lambda: OPS.int4_linear(x, bits.char(), pairs, None, lanes, None)),
        ("groups of a multiple of 32", lambda: OPS.int4_linear(x, bits, pairs[:0], None, 0, None)),
        ("256 at most", lambda: OPS.int4_dequantize(whole, pairs[:1], None, 0, torch.half)),
        (r"\[groups, 16, 2\]", lambda: OPS.int4_linear(x, bits, pairs[0], None, lanes, None)),
        ("points of float32", lambda: OPS.int4_linear(x, bits, pairs.int(), None, 0, None)),
        ("16 rows", lambda: OPS.int4_linear(x, bits[:7], pairs[:, :7], None, True, None)),
        ("64 columns as int32", lambda: OPS.int4_linear(x, bits, pairs, order, lanes, None)),
        ("input of float32", lambda: OPS.int4_linear(x.double(), bits, pairs, None, lanes, None)),
        ("numbers of float32", lambda: OPS.int4_dequantize(bits, pairs, None, lanes, torch.double)),
        ("64 features", lambda: OPS.int4_linear(x[:, 1:], bits, pairs, None, lanes, None)),
        ("16 features", lambda: OPS.int4_linear_gradient(x, bits, pairs, None, lanes)),
        ("bias of 16", lambda: OPS.int4_linear(x, bits, pairs, None, lanes, x[0])),
        ("bias of 16", lambda: OPS.int4_linear(x, bits, pairs, None, lanes, x[0, :16].half())),
        ("integers as bytes", lambda: OPS.int4_pack(bits[:, :31])),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=match):
            call()


@pytest.mark.parametrize("ordered", [True, False], ids=["", "permuted"])
@pytest.mark.parametrize("rows", [1, 9])
def test_ops_as_pytorch_checks_them(rows, ordered):
    """Their schemas, what traces them and what differentiates them."""
    weight, _ = matrix(16, 128, 64, ordered=ordered)
    x = torch.randn(rows, 128, device="ocl", requires_grad=True)
    bias = torch.randn(16, device="ocl", requires_grad=True)
    # A fourth of its checks knows three kinds of devices.
    kinds = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    for op, operands in (
        (OPS.int4_linear, (x, *parts(weight), bias)),
        (OPS.int4_linear_gradient, (x[:, :16].detach(), *parts(weight))),
        (OPS.int4_dequantize, (*parts(weight), torch.bfloat16)),
    ):
        torch.library.opcheck(op.default, operands, test_utils=kinds)


@pytest.mark.parametrize("ordered", [True, False], ids=["", "permuted"])
def test_the_same_numbers_on_the_cpu(ordered):
    for n in (16, 7):
        weight, exact = matrix(n, 128, 64, ordered=ordered)
        here = weight.cpu()
        assert isinstance(here, Int4Tensor) and here.device.type == "cpu"
        x = torch.randn(3, 128)
        found = torch.nn.functional.linear(x, here)
        assert_close(found.double(), x.double() @ exact.t(), rtol=1e-5, atol=1e-4)
        back = OPS.int4_linear_gradient(found, *parts(here))
        assert_close(back.double(), found.double() @ exact, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.as_gpu
def test_kernels_for_gpus():
    run_as_gpu(__file__, "-k", "not refused and not pytorch_checks")
