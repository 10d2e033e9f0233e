"""flex_attention under torch.compile against its formula, in float64 on the CPU."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
)

from tests.as_gpu import run_as_gpu

TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 2e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}


@pytest.fixture(autouse=True)
def _forget():
    torch._dynamo.reset()


def made(*shapes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def reference(query, key, value, mod=None, mask=None, scale=None):
    """The formula in float64: out and logsumexp. mod and mask take tensors that broadcast."""
    query, key, value = (x.double() for x in (query, key, value))
    batch, heads, queries, depth = query.shape
    share = heads // key.shape[1]
    key, value = (x.expand(batch, -1, -1, -1).repeat_interleave(share, 1) for x in (key, value))
    scores = query @ key.transpose(-1, -2) * (depth**-0.5 if scale is None else scale)
    sizes = (batch, heads, queries, key.shape[2])
    places = [torch.arange(n).view([-1 if d == i else 1 for d in range(4)])
              for i, n in enumerate(sizes)]  # fmt: skip
    if mod is not None:
        scores = mod(scores, *places)
    if mask is not None:
        taken = mask(*places).expand(sizes)
        scores = torch.where(taken, scores, -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.where(empty, 0.0, scores.masked_fill(empty, 0).softmax(-1))
    return weights @ value, scores.logsumexp(-1)


def compare(query, key, value, mod=None, mask=None, captured=(), blocks=128, scale=None,
            gradients=True, block_mask=None):  # fmt: skip
    """Output and gradients, those of captured tensors included: mod and mask are functions of
    these."""
    dtype = query.dtype
    grads = [torch.randn(*query.shape[:3], value.shape[-1], dtype=torch.float64).to(dtype)]

    def run(device, attend):
        moved = [x.to(device, copy=True) for x in (query, key, value, *captured)]
        for x in moved:
            if gradients and x.is_floating_point():
                x.requires_grad_()
        out = attend(moved[:3], [f and f(*moved[3:]) for f in (mod, mask)])
        if gradients:
            (out * grads[0].to(device)).sum().backward()
        return [out.detach(), *(x.grad for x in moved if x.grad is not None)]

    def formula(operands, functions):
        return reference(*operands, *functions, scale=scale)[0]

    def compiled(operands, functions):
        given = block_mask
        if functions[1] is not None and given is None:
            sizes = query.shape[0], query.shape[1], query.shape[2], key.shape[2]
            given = create_block_mask(functions[1], *sizes, device="ocl", BLOCK_SIZE=blocks)
        return torch.compile(flex_attention, fullgraph=True)(
            *operands,
            score_mod=functions[0],
            block_mask=given,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    results, expected = run("ocl", compiled), run("cpu", formula)
    assert len(results) == len(expected)
    for actual, wanted in zip(results, expected, strict=True):
        assert actual.device.type == "ocl" and actual.dtype == dtype
        tolerance = TOLERANCE[dtype] * max(1.0, wanted.abs().max().item())
        torch.testing.assert_close(actual.cpu().double(), wanted.double(), rtol=0, atol=tolerance)


def causal(*captured):
    return lambda b, h, q, k: q >= k


def window(*captured):
    return lambda b, h, q, k: ((q - k).abs() < 50) & (h != 1)


MODS = {
    "none": (None, None),
    "causal": (None, causal),
    "window": (None, window),
    "soft cap": (lambda: lambda s, b, h, q, k: 2 * torch.tanh(s / 2), causal),
    "positions": (lambda: lambda s, b, h, q, k: s + (q - k) * (h + 1) * 0.01, None),
    "squares": (lambda: lambda s, b, h, q, k: s * s * 0.3 + b, window),
    "where": (lambda: lambda s, b, h, q, k: torch.where(q < k, -math.inf, s.sin()), None),
}


@pytest.mark.parametrize("shapes", [(2, 3, 200, 200, 32), (1, 2, 130, 257, 16)], ids=str)
@pytest.mark.parametrize("name", MODS)
def test_functions(name, shapes):
    batch, heads, queries, keys, depth = shapes
    operands = made((batch, heads, queries, depth), *[(batch, heads, keys, depth)] * 2)
    compare(*operands, *MODS[name])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_dtypes(dtype):
    operands = made((2, 2, 150, 40), (2, 2, 90, 40), (2, 2, 90, 24), dtype=dtype)
    compare(*operands, MODS["soft cap"][0], window)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 8), (2, 4, 1, 300, 64), (1, 2, 65, 3, 200)], ids=str
)
def test_sizes(sizes):
    batch, heads, queries, keys, depth = sizes
    operands = made((batch, heads, queries, depth), *[(batch, heads, keys, depth)] * 2)
    compare(*operands, MODS["positions"][0])


def test_grouped_heads_and_a_scale():
    compare(*made((2, 6, 140, 32), (2, 2, 140, 32), (2, 2, 140, 48)), MODS["positions"][0], causal,
            scale=0.3)  # fmt: skip


def test_a_batch_that_broadcasts():
    compare(*made((3, 2, 70, 16), (1, 2, 90, 16), (1, 2, 90, 16)), mask=window)


@pytest.mark.parametrize("blocks", [16, 48, (128, 32), 1000], ids=str)
def test_sizes_of_blocks(blocks):
    compare(*made(*[(1, 2, 300, 16)] * 3), MODS["soft cap"][0], window, blocks=blocks)


def test_strides():
    query, key, value = (x.transpose(1, 2) for x in made(*[(2, 100, 3, 32)] * 3))
    compare(query, key, value, MODS["positions"][0], causal)


def test_rows_without_a_key_are_0():
    def mask():
        return lambda b, h, q, k: (q > 60) & (k < 100)

    compare(*made(*[(1, 2, 200, 16)] * 3), mask=mask)


# ---- Captured tensors ----------------------------------------------------------------------------


def test_documents():
    """Documents of a batch each, packed into one sequence: a mask that reads."""
    documents = torch.arange(300).div(70, rounding_mode="floor").repeat(2, 1)
    documents[1] += torch.arange(300) > 20

    def mask(documents):
        return lambda b, h, q, k: (documents[b, q] == documents[b, k]) & (q >= k)

    compare(*made(*[(2, 2, 300, 16)] * 3), mask=mask, captured=[documents])


def test_gradients_of_what_is_captured():
    bias, slopes = made((2, 399), (2,))

    def mod(bias, slopes):
        return lambda s, b, h, q, k: s * slopes[h] + bias[h, q - k + 199]

    compare(*made(*[(2, 2, 200, 16)] * 3), mod, causal, captured=[bias, slopes])


def test_a_captured_tensor_that_is_computed():
    (table,) = made((2, 64))

    def attend(query, key, value, table):
        offsets = table.cos().t().contiguous()[:, 0]
        return flex_attention(query, key, value, score_mod=lambda s, b, h, q, k: s + offsets[k])

    operands = made(*[(1, 2, 64, 16)] * 3)
    result = torch.compile(attend, fullgraph=True)(*(x.to("ocl") for x in (*operands, table)))
    offsets = table.double().cos()[0]
    expected, _ = reference(*operands, lambda s, b, h, q, k: s + offsets[k])
    torch.testing.assert_close(result.cpu().double(), expected, rtol=0, atol=1e-5)


def test_indices_past_an_end_read_nothing_else():
    """As Triton's kernels read what lies there, any number will do; but none of other memory."""
    (bias,) = made((10,))

    def attend(*operands):
        bias = operands[3]
        return flex_attention(*operands[:3], score_mod=lambda s, b, h, q, k: s + bias[k])

    operands = made(*[(1, 1, 64, 16)] * 3)
    result = torch.compile(attend)(*(x.to("ocl") for x in (*operands, bias)))
    bias = bias.double()
    expected, _ = reference(*operands, lambda s, b, h, q, k: s + bias[k.clamp(max=9)])
    torch.testing.assert_close(result.cpu().double(), expected, rtol=0, atol=1e-5)


# ---- Statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [1, 90])
def test_statistics(queries):
    query, key, value = made((2, 2, queries, 16), *[(2, 2, 700, 16)] * 2)
    mod = MODS["soft cap"][0]()

    def attend(query, key, value):
        request = AuxRequest(lse=True, max_scores=True)
        return flex_attention(query, key, value, score_mod=mod, return_aux=request)

    out, aux = torch.compile(attend, fullgraph=True)(*(x.to("ocl") for x in (query, key, value)))
    expected, lse = reference(query, key, value, mod)
    scores = 2 * torch.tanh(query.double() @ key.double().transpose(-1, -2) * 0.125)
    for actual, wanted in ((out, expected), (aux.lse, lse), (aux.max_scores, scores.amax(-1))):
        torch.testing.assert_close(actual.cpu().double(), wanted, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_logsumexp():
    operands = made(*[(1, 2, 100, 16)] * 3)
    mod = MODS["squares"][0]()

    def loss(out, lse):
        return (out * 0.5).sum() + lse.square().sum()

    def attend(*operands):
        out, aux = flex_attention(*operands, score_mod=mod, return_aux=AuxRequest(lse=True))
        return loss(out, aux.lse)

    moved = [x.to("ocl").requires_grad_() for x in operands]
    torch.compile(attend, fullgraph=True)(*moved).backward()
    wanted = [x.double().requires_grad_() for x in operands]
    loss(*reference(*wanted, mod)).backward()
    for x, y in zip(moved, wanted, strict=True):
        torch.testing.assert_close(x.grad.cpu().double(), y.grad, rtol=1e-4, atol=1e-4)


# ---- Block masks ---------------------------------------------------------------------------------


def test_a_block_mask_without_a_function():
    """Blocks alone say what is taken."""
    counts = torch.tensor([[[1, 2, 3]]], dtype=torch.int32)
    indices = torch.tensor([[[[2, 0, 1], [0, 1, 2], [2, 1, 0]]]], dtype=torch.int32)
    given = BlockMask.from_kv_blocks(counts.to("ocl"), indices.to("ocl"), BLOCK_SIZE=32)
    taken = torch.tensor([[0, 0, 1], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)

    def mask(*captured):
        return lambda b, h, q, k: taken[q // 32, k // 32]

    operands = made(*[(2, 2, 96, 16)] * 3)
    compare(*operands, mask=mask, block_mask=given)


def test_blocks_that_are_left_out_are_not_read():
    """A NaN there would be in every sum."""
    query, key, value = made(*[(1, 1, 256, 16)] * 3)
    key[:, :, 128:] = value[:, :, 128:] = math.nan
    given = create_block_mask(
        lambda b, h, q, k: k < 128, 1, 1, 256, 256, device="ocl", BLOCK_SIZE=128
    )
    operands = [x.to("ocl") for x in (query, key, value)]
    out = torch.compile(flex_attention)(*operands, block_mask=given).cpu()
    expected, _ = reference(query, key[:, :, :128], value[:, :, :128])
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5)


def test_lengths_that_change():
    """One more graph for symbolic lengths, and none after that."""
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    compiled = torch.compile(flex_attention, backend=counter)
    mod = MODS["positions"][0]()
    for length in (70, 90, 200, 33):
        operands = made(*[(1, 2, length, 16)] * 3)
        out = compiled(*(x.to("ocl") for x in operands), score_mod=mod)
        expected, _ = reference(*operands, mod)
        torch.testing.assert_close(out.cpu().double(), expected, rtol=0, atol=1e-4)
    assert counter.frame_count <= 2


# ---- Errors, and without torch.compile -----------------------------------------------------------


def test_errors():
    compiled = torch.compile(flex_attention)
    with pytest.raises(Exception, match="heads of 300 columns, of 256 at most"):
        compiled(*(x.to("ocl") for x in made(*[(1, 1, 8, 300)] * 3)))
    query, key, value = (x.to("ocl") for x in made(*[(1, 1, 8, 16)] * 3))
    with pytest.raises(Exception, match="same dtype|one dtype"):
        compiled(query, key.half(), value.half())


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_eager():
    operands = made(*[(1, 2, 40, 16)] * 3)
    mod = MODS["soft cap"][0]()
    out = flex_attention(*(x.to("ocl") for x in operands), score_mod=mod)
    torch.testing.assert_close(out.cpu().double(), reference(*operands, mod)[0], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.as_gpu
def test_as_gpu():
    run_as_gpu(__file__)
