"""Products with quantised weights against CPU torch; what language models do beside them."""

import pytest
import torch
from torch.nn import functional

from tests.as_gpu import run_as_gpu
from tests.refusals import raise_the_same

HALVES_TOO = [torch.float32, torch.float16, torch.bfloat16]
ROWS = [1, 2, 3, 8, 9, 40]


def check(call, tensors, reference=None):
    """Compares with CPU torch, allowing one step of the dtype more than rounding of exact sums."""
    actual = call(*(t.to("ocl") for t in tensors))
    expected = call(*tensors)
    exact = expected.double() if reference is None else reference
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert actual.stride() == expected.stride()
    scale = exact.abs().max().item()
    allowed = (actual.cpu().double() - exact).abs()
    eps = torch.finfo(actual.dtype).eps
    assert (allowed <= eps * exact.abs() + 2e-6 * scale).all()


@pytest.mark.parametrize("dtype", HALVES_TOO, ids=str)
@pytest.mark.parametrize("rows", [0, *ROWS])
def test_int8_weights(rows, dtype):
    torch.manual_seed(rows)
    x, scales = torch.randn(rows, 96).to(dtype), torch.rand(33).to(dtype)
    weights = torch.randint(-128, 128, (33, 96), dtype=torch.int8)
    exact = (x.double() @ weights.double().t()) * scales.double()
    if rows == 0:
        assert torch._weight_int8pack_mm(
            x.to("ocl"), weights.to("ocl"), scales.to("ocl")
        ).shape == (
            0,
            33,
        )
        return
    check(torch._weight_int8pack_mm, [x, weights, scales], exact)


def test_int8_sums_past_the_range_of_half():
    x = torch.full((1, 256), 10.0, dtype=torch.float16)
    weights, scales = torch.full((16, 256), 127, dtype=torch.int8), torch.full((16,), 0.01)
    check(torch._weight_int8pack_mm, [x, weights, scales.half()])


@pytest.mark.parametrize("dtype", HALVES_TOO, ids=str)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_int4_weights(group, rows, dtype):
    torch.manual_seed(rows)
    n, k = 48, 512
    x = torch.randn(rows, k).to(dtype)
    values = torch.randint(0, 16, (n, k), dtype=torch.int32)
    scales = torch.rand(k // group, n, 2).to(dtype)

    def call(x, values, scales):
        packed = torch._convert_weight_to_int4pack_for_cpu(values, 1)
        assert packed.shape == (n, k // 2) and packed.dtype == torch.uint8
        return torch._weight_int4pack_mm_for_cpu(x, packed, group, scales)

    wide = scales.double().repeat_interleave(group, 0)  # [k, n, 2]
    weights = (values.double() - 8) * wide[:, :, 0].t() + wide[:, :, 1].t()
    check(call, [x, values, scales], x.double() @ weights.t())


@pytest.mark.parametrize("n", [16, 80, 144])
@pytest.mark.parametrize("rows", [1, 4, 8, 12])
def test_int4_weights_and_infinities(n, rows):
    """Results have the signs of the weights that infinities meet. A NaN is one row's alone."""
    torch.manual_seed(n)
    k, group = 192, 64
    x = torch.randn(rows, k)
    x[0, 70] = torch.inf
    x[-1, 3], x[-1, 150] = -torch.inf, torch.nan if rows > 4 else 1
    values = torch.randint(0, 16, (n, k), dtype=torch.int32)
    scales = torch.rand(k // group, n, 2) + 0.01
    packed = torch._convert_weight_to_int4pack_for_cpu(values.to("ocl"), 1)
    actual = torch._weight_int4pack_mm_for_cpu(x.to("ocl"), packed, group, scales.to("ocl"))
    wide = scales.repeat_interleave(group, 0)
    weights = (values - 8) * wide[:, :, 0].t() + wide[:, :, 1].t()
    expected = (x.double() @ weights.double().t()).float()
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES_TOO, ids=str)
@pytest.mark.parametrize("first", [1, 3])
def test_int4_weights_that_begin_anywhere(first, dtype):
    torch.manual_seed(0)
    n, k = 16, 96
    x, values = torch.randn(2, k).to(dtype), torch.randint(0, 16, (n, k), dtype=torch.int32)
    scales = torch.rand(k // 32, n, 2).to(dtype)

    def moved(t):
        store = torch.zeros(t.numel() + first, dtype=t.dtype, device="ocl")
        return store[first:].view(t.shape).copy_(t)

    packed = torch._convert_weight_to_int4pack_for_cpu(values.to("ocl"), 1)
    expected = torch._weight_int4pack_mm_for_cpu(x.to("ocl"), packed, 32, scales.to("ocl"))
    actual = torch._weight_int4pack_mm_for_cpu(moved(x), moved(packed), 32, moved(scales))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("tiles", [2, 4, 8])
def test_int4_weights_as_other_devices_take_them(tiles):
    torch.manual_seed(0)
    x, values = torch.randn(3, 256), torch.randint(0, 16, (32, 256), dtype=torch.int32)
    scales = torch.rand(256 // 64, 32, 2)
    pairs = (values[:, ::2] * 16 + values[:, 1::2]).to(torch.uint8).to("ocl")
    packed = torch._convert_weight_to_int4pack(pairs, tiles)
    assert packed.shape == (4, 16 // tiles, 32, tiles // 2) and packed.dtype == torch.int32
    actual = torch._weight_int4pack_mm(x.to("ocl"), packed, 64, scales.to("ocl"))
    packed = torch._convert_weight_to_int4pack_for_cpu(values, 1)
    expected = torch._weight_int4pack_mm_for_cpu(x, packed, 64, scales)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("n", [8, 24])
def test_int4_weights_of_rows_that_fill_no_vector(n, rows):
    """CPU torch refuses them, CUDA's takes them: a formula judges."""
    torch.manual_seed(0)
    k, group = 128, 32
    x, values = torch.randn(rows, k), torch.randint(0, 16, (n, k), dtype=torch.int32)
    scales = torch.rand(k // group, n, 2)
    pairs = (values[:, ::2] * 16 + values[:, 1::2]).to(torch.uint8).to("ocl")
    packed = torch._convert_weight_to_int4pack(pairs, 2)
    actual = torch._weight_int4pack_mm(x.to("ocl"), packed, group, scales.to("ocl"))
    wide = scales.double().repeat_interleave(group, 0)
    weights = (values - 8) * wide[:, :, 0].t() + wide[:, :, 1].t()
    torch.testing.assert_close(
        actual.cpu().double(), x.double() @ weights.t(), rtol=1e-5, atol=1e-4
    )


def test_wrong_arguments_raise_what_the_cpu_raises():
    x, s = torch.randn(3, 64), torch.rand(32)
    int8 = torch.ones(32, 64, dtype=torch.int8)
    int32, groups = torch.ones(32, 64, dtype=torch.int32), torch.rand(2, 32, 2)
    pack = torch._convert_weight_to_int4pack_for_cpu
    int8_mm, int4_mm = torch._weight_int8pack_mm, torch._weight_int4pack_mm_for_cpu
    cases = [
        lambda d: int8_mm(x.double().to(d), int8.to(d), s.double().to(d)),
        lambda d: int8_mm(x.to(d)[:, ::2], int8.to(d)[:, ::2], s.to(d)),
        lambda d: int8_mm(x.to(d), int8.to(d)[:, :32].contiguous(), s.to(d)),
        lambda d: int8_mm(x.to(d), int8.to(d).t().contiguous().t(), s.to(d)),
        lambda d: int8_mm(x.to(d), int8.int().to(d), s.to(d)),
        lambda d: int8_mm(x.to(d), int8.to(d), s[:3].to(d)),
        lambda d: int8_mm(x.half().to(d), int8.to(d), s.to(d)),
        lambda d: pack(int32[0].to(d), 1),
        lambda d: pack(int32.to(torch.uint8).to(d), 1),
        lambda d: pack(int32[:20].to(d), 1),
        lambda d: pack(int32[:, :3].to(d), 1),
        lambda d: int4_mm(x.double().to(d), pack(int32.to(d), 1), 32, groups.to(d)),
        lambda d: int4_mm(x.to(d), pack(int32.to(d), 1), 16, groups.to(d)),
        lambda d: int4_mm(x.to(d), pack(int32.to(d), 1), 128, groups.to(d)),
        lambda d: int4_mm(x.to(d), pack(int32.to(d), 1), 32, groups.half().to(d)),
        lambda d: int4_mm(x.to(d), pack(int32.to(d), 1), 32, groups[0].to(d)),
        lambda d: int4_mm(x.to(d), int32.to(d), 32, groups.to(d)),
    ]
    raise_the_same(cases)


def rotated(x, angles):
    """Rotary embedding of [..., sequence, dim]."""
    first, second = x.chunk(2, -1)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def gated(x, gate, up, down):
    return functional.linear(
        functional.silu(functional.linear(x, gate)) * functional.linear(x, up), down
    )


@pytest.mark.parametrize("dtype", HALVES_TOO, ids=str)
def test_rotary_embeddings_and_gated_layers(dtype):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 16).to(dtype)
    angles = torch.outer(torch.arange(5.0), 1e4 ** (-torch.arange(8.0) / 8))
    exact = rotated(x.double(), angles.double())
    actual = rotated(x.to("ocl"), angles.to("ocl")).cpu().double()
    eps = torch.finfo(dtype).eps
    assert (actual - exact).abs().max() <= 4 * eps * exact.abs().max()
    weights = [torch.randn(24, 16).to(dtype) / 4, torch.randn(24, 16).to(dtype) / 4]
    weights.append(torch.randn(16, 24).to(dtype) / 5)
    exact = gated(x.double(), *(w.double() for w in weights))
    actual = gated(x.to("ocl"), *(w.to("ocl") for w in weights)).cpu().double()
    assert (actual - exact).abs().max() <= 8 * eps * exact.abs().max()


def kept_probabilities(logits, top_k, top_p):
    """The distributions that top-k and then top-p sampling leave."""
    least = logits.topk(top_k, -1).values[..., -1:]
    logits = logits.masked_fill(logits < least, -torch.inf)
    ordered, order = logits.sort(-1, descending=True)
    probabilities = ordered.softmax(-1)
    dropped = probabilities.cumsum(-1) - probabilities > top_p
    dropped = torch.zeros_like(dropped).scatter(-1, order, dropped)
    return logits.masked_fill(dropped, -torch.inf).softmax(-1)


def test_sampling():
    torch.manual_seed(0)
    logits = torch.randn(4, 1000) * 3
    expected = kept_probabilities(logits, 50, 0.8)
    actual = kept_probabilities(logits.to("ocl"), 50, 0.8)
    torch.testing.assert_close(actual.cpu(), expected)
    drawn = actual.multinomial(200, replacement=True).cpu()
    assert (expected.gather(1, drawn) > 0).all()
    # The likeliest token comes about as often as it should.
    best = expected.argmax(1, keepdim=True)
    share = (drawn == best).float().mean(1, keepdim=True)
    assert (share - expected.gather(1, best)).abs().max() < 0.2


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(
    "block, dtype", [(64, torch.float32), (32, torch.float32), (64, torch.bfloat16)]
)
def test_dynamic_quantisation(block, dtype, rows):
    torch.manual_seed(rows)
    n, k = 24, 64
    x = (torch.randn(rows, k) * 3).to(dtype)
    x[0, :4] = torch.tensor([0.0, 2.5, -2.5, 6.0])
    weights = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
    scales, bias = torch.rand(n, k // block), torch.randn(n)

    def call(x, weights, scales, bias):
        packed = torch._dyn_quant_pack_4bit_weight(weights, scales, bias, block, k, n)
        return packed, torch._dyn_quant_matmul_4bit(x, packed, block, k, n)

    expected = call(x, weights, scales, bias)
    packed, actual = call(*(t.to("ocl") for t in (x, weights, scales, bias)))
    assert torch.equal(packed.cpu(), expected[0])
    assert actual.dtype == expected[1].dtype
    # The CPU cuts what doesn't fit bfloat16 off instead of rounding.
    rtol = 2**-7 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(actual.cpu(), expected[1], rtol=rtol, atol=1e-4)


@pytest.mark.as_gpu
def test_as_a_gpu():
    run_as_gpu(__file__, "-k", "int4 or int8")


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_float32_that_may_lose_bits(precision):
    """The kernels that round both factors take weights of bytes for no floats."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 96, generator=generator)
    weights = torch.randint(-128, 128, (70, 96), generator=generator, dtype=torch.int8)
    scales = torch.rand(70, generator=generator)
    torch.set_float32_matmul_precision(precision)
    try:
        moved = (t.to("ocl") for t in (x, weights, scales))
        actual = torch._weight_int8pack_mm(*moved).cpu()
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(actual, x @ weights.float().t() * scales, rtol=1e-4, atol=1e-2)
