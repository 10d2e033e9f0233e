"""bitsandbytes' ops under torch_ocl, against its rules written out: blocks of 4 and 8 bits,
products with 4-bit weights, rows of int8. tests/integrations has its own library beside them."""

import math
import os

import pytest
import torch
from torch.testing import assert_close

from tests import fresh
from tests.as_gpu import run_as_gpu

OPS = torch.ops.torch_ocl
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
FP4 = (0, 0.0625, 8, 12, 4, 6, 2, 3)
CODES = {
    "nf4": torch.tensor(NF4),
    "fp4": torch.tensor([*FP4, *(-x for x in FP4)]).float().div_(12),
}
EIGHT = torch.linspace(-1, 1, 256).pow(3)


def blocks_of(x, size):
    """Elements divided by their block's largest magnitude, and these."""
    x = x.flatten().float()
    whole = x[: len(x) // size * size].view(-1, size)
    rest = x[whole.numel() :]
    largest = whole.abs().amax(1)
    scaled = (whole * (1 / largest.clamp_min(1e-38))[:, None]).flatten()
    if len(rest):
        most = rest.abs().amax().clamp_min(1e-38)
        largest, scaled = torch.cat([largest, most[None]]), torch.cat([scaled, rest / most])
    return scaled, largest


def nearest(scaled, code):
    """Positions of the nearest number in the code; of two the lower one."""
    order = code.argsort(stable=True)
    between = (code[order[:-1]] + code[order[1:]]) / 2
    return order[torch.bucketize(scaled, between)]


def encoded4(x, size, kind):
    scaled, largest = blocks_of(x, size)
    bits = nearest(torch.nn.functional.pad(scaled, (0, len(scaled) % 2)), CODES[kind])
    return (bits[::2] << 4 | bits[1::2]).to(torch.uint8)[:, None], largest


def decoded4(bits, largest, size, kind, shape):
    flat = bits.flatten().long()
    values = CODES[kind][torch.stack([flat >> 4, flat & 15], 1).flatten()][: math.prod(shape)]
    return (values * largest.repeat_interleave(size)[: len(values)]).view(shape)


def ocl(*tensors):
    return [t.to("ocl") for t in tensors]


def near(found, exact, dtype):
    """Within a rounding of the dtype and what sums in float32 lose."""
    assert found.dtype == dtype and found.device.type == "ocl"
    allowed = torch.finfo(dtype).eps * exact.abs() + 4e-6 * exact.abs().max()
    assert ((found.cpu().double() - exact).abs() <= allowed).all()


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [32, 64, 128, 256, 512, 1024, 2048, 4096])
def test_4_bits(size, dtype, kind):
    torch.manual_seed(size)
    for elements in (2 * size, size - 1, 3 * size + 7, 1):
        x = torch.randn(elements).to(dtype)
        bits, largest = OPS.quantize_4bit(x.to("ocl"), size, kind, torch.uint8)
        wanted_bits, wanted_largest = encoded4(x, size, kind)
        assert_close(largest.cpu(), wanted_largest, rtol=0, atol=0)
        assert torch.equal(bits.cpu(), wanted_bits)
        back = OPS.dequantize_4bit(bits, largest, size, kind, [elements], dtype)
        exact = decoded4(wanted_bits, wanted_largest, size, kind, [elements])
        assert_close(back.cpu(), exact.to(dtype), rtol=0, atol=0)
        out = torch.empty(2 * elements, dtype=dtype, device="ocl")[::2]
        OPS.dequantize_4bit(bits, largest, size, kind, [elements], dtype, out=out)
        assert torch.equal(out.cpu(), back.cpu())


@pytest.mark.parametrize("kind", CODES)
def test_4_bits_of_what_is_not_finite_and_of_zeros(kind):
    x = torch.randn(6, 32)
    x[0] = 0
    x[1, 3] = torch.nan
    x[2, 3] = torch.inf
    x[3, 3] = -torch.inf
    x[4] *= 1e-42
    x[5] *= 1e-30
    for part in (x, x[0, :7], x[1, :7]):
        bits, largest = OPS.quantize_4bit(part.to("ocl"), 32, kind, torch.uint8)
        wanted_bits, wanted_largest = encoded4(part, 32, kind)
        # Devices may take numbers that small for 0.
        assert_close(largest.cpu(), wanted_largest, rtol=0, atol=2e-38, equal_nan=True)
        apart = (bits.cpu() != wanted_bits).view(len(wanted_largest), -1).any(1)
        assert not apart[wanted_largest > 1e-37].any() and not apart[wanted_largest == 0].any()


@pytest.mark.parametrize("storage", [torch.uint8, torch.bfloat16, torch.float32], ids=str)
def test_4_bits_stored_as_another_dtype(storage):
    x = torch.randn(64, 8)
    bits, largest = OPS.quantize_4bit(x.to("ocl"), 64, "nf4", storage)
    assert bits.dtype == storage and bits.shape == (256 // storage.itemsize, 1)
    wanted, scales = encoded4(x, 64, "nf4")
    assert torch.equal(bits.cpu().view(-1).view(torch.uint8), wanted.view(-1))
    back = OPS.dequantize_4bit(bits, largest, 64, "nf4", x.shape, torch.float32)
    assert_close(back.cpu(), decoded4(wanted, scales, 64, "nf4", x.shape), rtol=0, atol=0)
    found = OPS.gemm_4bit(x.t().to("ocl")[:, :32], bits, [16, 32], largest, 64, "nf4")
    exact = x.t()[:, :32].double() @ decoded4(wanted, scales, 64, "nf4", [16, 32]).double().t()
    near(found, exact, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 5, 256, 4096])
def test_8_bits(size, dtype):
    torch.manual_seed(size)
    for shape in ((3, 100), (4096,), (1,), (5000,)):
        x = torch.randn(shape).to(dtype)
        code, device = EIGHT.to("ocl"), x.to("ocl")
        bits, largest = OPS.quantize_blockwise(device, code, size)
        scaled, wanted_largest = blocks_of(x, size)
        wanted = nearest(scaled, EIGHT).to(torch.uint8).view(shape)
        assert_close(largest.cpu(), wanted_largest, rtol=0, atol=0)
        assert torch.equal(bits.cpu(), wanted)
        back = OPS.dequantize_blockwise(bits, largest, code, size, dtype)
        scales = wanted_largest.repeat_interleave(size)[: x.numel()].view(shape)
        assert_close(back.cpu(), (EIGHT[wanted.long()] * scales).to(dtype), rtol=0, atol=0)
        out = torch.empty_like(back)
        OPS.dequantize_blockwise(bits, largest, code, size, dtype, out=out)
        assert torch.equal(out.cpu(), back.cpu())


def test_nothing():
    none = torch.empty(0, device="ocl")
    bits, largest = OPS.quantize_4bit(none, 64, "nf4", torch.uint8)
    assert bits.shape == (0, 1) and largest.shape == (0,)
    back = OPS.dequantize_4bit(bits, largest, 64, "nf4", [0, 4], torch.half)
    assert back.shape == (0, 4) and back.dtype == torch.half
    assert OPS.quantize_blockwise(none, EIGHT.to("ocl"), 64)[0].shape == (0,)
    rows, scales, left_out = OPS.int8_vectorwise_quant(none.view(0, 4), 0.0)
    assert rows.shape == (0, 4) and scales.shape == (0,) and left_out is None


def matrix(n, k, size, kind, nested):
    """Weights as the operands of gemm_4bit, and in double."""
    bits, largest = encoded4(torch.randn(n, k), size, kind)
    if not nested:
        exact = decoded4(bits, largest, size, kind, (n, k)).double()
        return ocl(bits, largest), {}, exact
    offset = largest.mean()
    scaled, outer = blocks_of(largest - offset, 256)
    inner = nearest(scaled, EIGHT).to(torch.uint8)
    scales = EIGHT[inner.long()] * outer.repeat_interleave(256)[: len(inner)] + offset
    exact = decoded4(bits, scales, size, kind, (n, k)).double()
    names = ("absmax_8bit", "absmax_code", "absmax_offset")
    return ocl(bits, outer), dict(zip(names, ocl(inner, EIGHT, offset), strict=True)), exact


@pytest.mark.parametrize("nested", [False, True], ids=["", "nested and biased"])
@pytest.mark.parametrize("kind, dtype", [*(("nf4", d) for d in DTYPES), ("fp4", DTYPES[0])])
@pytest.mark.parametrize("n, k, size", [(37, 96, 32), (3, 64, 64), (70, 2080, 64), (5, 45, 32)])
def test_products(n, k, size, dtype, kind, nested):
    torch.manual_seed(n)
    (bits, largest), extra, exact = matrix(n, k, size, kind, nested)
    for rows in (1, 2, 4, 7, 8, 9):
        x, bias = torch.randn(rows, k).to(dtype), torch.randn(n).to(dtype)
        # Where weights are expanded they are rounded, too.
        weights = exact if rows <= 8 and k % 32 == 0 else exact.float().to(dtype).double()
        wanted = x.double() @ weights.t()
        if nested:
            extra["bias"] = bias.to("ocl")
            wanted += bias.double()
        device = x.to("ocl")
        found = OPS.gemm_4bit(device, bits, [n, k], largest, size, kind, **extra)
        near(found, wanted, dtype)
        found = OPS.gemm_4bit(device[None], bits, [n, k], largest, size, kind, **extra)
        assert found.shape == (1, rows, n)
        near(found[0], wanted, dtype)


@pytest.mark.parametrize("kind", CODES)
def test_products_by_a_code(kind):
    (bits, largest), _, exact = matrix(16, 64, 64, kind, False)
    x = torch.randn(1, 1, 64)
    code = CODES[kind].to("ocl")
    found = OPS.gemv_4bit(x.to("ocl"), bits, [16, 64], largest, code, 64)
    near(found, x.double() @ exact.t(), torch.float32)
    out = torch.empty_like(found)
    OPS.gemv_4bit(x.to("ocl"), bits, [16, 64], largest, code, 64, out=out)
    assert torch.equal(out.cpu(), found.cpu())


@pytest.mark.parametrize("first", [1, 3])
def test_operands_that_begin_anywhere(first):
    (bits, largest), _, exact = matrix(24, 64, 64, "nf4", False)
    x = torch.randn(3, 64)

    def moved(t):
        store = torch.zeros(t.numel() + first, dtype=t.dtype, device="ocl")
        store[first:].copy_(t.flatten())
        return store[first:].view(t.shape)

    found = OPS.gemm_4bit(moved(x), moved(bits), [24, 64], moved(largest), 64, "nf4")
    near(found, x.double() @ exact.t(), torch.float32)
    back = OPS.dequantize_4bit(moved(bits), moved(largest), 64, "nf4", [24, 64], torch.float32)
    assert_close(back.cpu(), exact.float(), rtol=0, atol=0)


def rows_of_int8(x, threshold):
    """bitsandbytes' function for any device."""
    x = x.float()
    is_out = x.abs() >= threshold if threshold > 0 else torch.zeros_like(x, dtype=torch.bool)
    kept = x.masked_fill(is_out, 0)
    largest = kept.abs().amax(1)
    rows = torch.round(kept * (127 / largest)[:, None]).nan_to_num().to(torch.int8)
    columns = is_out.any(0)
    if len(x) > 1:
        rows[:, columns] = 0
    return rows, largest, columns.nonzero().view(-1) if threshold > 0 else None


@pytest.mark.parametrize("threshold", [0.0, 2.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 100), (1, 64), (3, 1000)])
def test_rows_of_int8(shape, dtype, threshold):
    torch.manual_seed(1)
    x = torch.randn(shape).to(dtype)
    x[-1, 2:] = 0
    found = OPS.int8_vectorwise_quant(x.to("ocl"), threshold)
    wanted = rows_of_int8(x, threshold)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        assert b is None or torch.equal(a.cpu(), b)
    both = OPS.int8_double_quant(x.to("ocl"), threshold)
    if threshold == 0:
        columns, scales, _ = rows_of_int8(x.t(), threshold)
        assert torch.equal(both[1].cpu(), columns.t()) and torch.equal(both[3].cpu(), scales)
    assert torch.equal(both[0].cpu(), wanted[0]) and torch.equal(both[2].cpu(), wanted[1])


@pytest.mark.parametrize("dtype", [None, *DTYPES], ids=str)
def test_products_of_int8(dtype):
    torch.manual_seed(1)
    a = torch.randint(-127, 128, (2, 3, 80), dtype=torch.int8)
    b = torch.randint(-127, 128, (70, 80), dtype=torch.int8)
    sums = OPS.int8_linear_matmul(*ocl(a, b))
    assert torch.equal(sums.cpu(), (a.long() @ b.long().t()).int())
    out = torch.empty_like(sums)
    OPS.int8_linear_matmul(*ocl(a, b), out=out)
    assert torch.equal(out.cpu(), sums.cpu())
    of_rows, of_columns = torch.rand(6), torch.rand(70)
    plain = OPS.int8_mm_dequant(sums, *ocl(of_rows, of_columns), dtype)
    scales = of_rows.view(2, 3, 1).double() * of_columns.double()
    exact = sums.cpu().double() * scales * 6.200124e-05
    near(plain, exact, dtype or torch.float16)
    bias = torch.randn(70).half()
    biased = OPS.int8_mm_dequant(sums, *ocl(of_rows, of_columns), dtype, bias.to("ocl"))
    near(biased, exact + bias.double(), dtype or torch.float16)


def test_what_is_refused():
    x, bits = torch.randn(64, device="ocl"), torch.zeros(32, 1, dtype=torch.uint8, device="ocl")
    largest, code = torch.ones(1, device="ocl"), EIGHT.to("ocl")
    decode, product = OPS.dequantize_4bit, OPS.gemm_4bit
    for match, call in (
        ("invalid blocksize 48", lambda: OPS.quantize_4bit(x, 48, "nf4", torch.uint8)),
        ("'nf4' or 'fp4'", lambda: OPS.quantize_4bit(x, 64, "int4", torch.uint8)),
        ("16/32-bit", lambda: OPS.quantize_4bit(x.double(), 64, "nf4", torch.uint8)),
        ("32 bytes", lambda: decode(bits[1:], largest, 64, "nf4", [64], torch.half)),
        ("2 scales", lambda: decode(bits, largest, 32, "nf4", [64], torch.half)),
        ("be float32", lambda: decode(bits, largest.half(), 64, "nf4", [64], torch.half)),
        ("16/32-bit", lambda: decode(bits, largest, 64, "nf4", [64], torch.double)),
        ("blocksize", lambda: OPS.quantize_blockwise(x, code, 0)),
        ("256 entries", lambda: OPS.quantize_blockwise(x, code[1:], 64)),
        ("inner dim", lambda: product(x[None], bits, [2, 32], largest, 64, "nf4")),
        ("bias", lambda: product(x[None], bits, [1, 64], largest, 64, "nf4", x)),
        ("absmax_code", lambda: product(x[None], bits, [1, 64], largest, 64, "nf4", None, bits[0])),
        ("B must be int8", lambda: OPS.int8_linear_matmul(bits.char(), bits)),
        ("int32", lambda: OPS.int8_mm_dequant(x, x, x)),
    ):
        with pytest.raises(RuntimeError, match=match):
            call()


def test_another_schema_is_left_alone():
    """bitsandbytes may change an op: then its own function for any device stays."""
    script = """
import torch
from torch_ocl import _C
torch.library.define("bitsandbytes::quantize_4bit", "(Tensor A) -> Tensor")
torch.library.define("bitsandbytes::int8_linear_matmul", "(Tensor A, Tensor B) -> Tensor")
torch.library.impl("bitsandbytes::quantize_4bit", "default", lambda A: A + 1)
refused = _C.register_bitsandbytes_ops()
assert len(refused) == 1 and refused[0].startswith("quantize_4bit: "), refused
ones = torch.ones(2, 2, device="ocl")
assert torch.ops.bitsandbytes.quantize_4bit(ones).sum() == 8
assert torch.ops.bitsandbytes.int8_linear_matmul(ones.char(), ones.char()).sum() == 8
"""
    done = fresh.run_script(script, environment={**os.environ, "TORCH_OCL_INTEGRATIONS": "off"})
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.as_gpu
def test_kernels_for_gpus():
    """Groups that share blocks and rows."""
    run_as_gpu(__file__, "-k", "bits or products or int8 or anywhere")
