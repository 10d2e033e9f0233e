"""Kernels of attention are tried with these functions, which a process of its own can call; the
argument of each is a list of dtypes, separated by commas."""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention as attend
from torch.testing import assert_close

from tests.layouts import on_device
from tests.ops.attention import TOLERANCE, compare, made

INF = float("inf")


def dtypes_of(names):
    return [getattr(torch, name) for name in names.split(",")]


def check_shapes(names):
    """Lengths of one, odd ones, parts of tiles and several; narrow and wide heads."""
    for dtype in dtypes_of(names):
        for depth, columns in ((16, 16), (64, 64), (80, 96), (128, 128), (33, 21), (8, 120)):
            for queries, keys in ((1, 1), (1, 70), (17, 17), (64, 64), (70, 200), (200, 33)):
                shapes = (1, 2, queries, depth), (1, 2, keys, depth), (1, 2, keys, columns)
                for causal in (False, True):
                    compare(*made(*shapes, dtype=dtype), backward=False, is_causal=causal)


def check_gradients(names):
    """The logarithms that the forward pass leaves for the other one; heads that share keys."""
    for dtype in dtypes_of(names):
        for queries in (1, 3, 70):
            shapes = (2, 6, queries, 32), (2, 2, 65, 32), (2, 2, 65, 24)
            for causal in (False, True):
                compare(*made(*shapes, dtype=dtype), is_causal=causal, enable_gqa=True)
        for scale in (0.0, -0.3, 5.0):
            compare(*made(*[(1, 2, 40, 16)] * 3, dtype=dtype), scale=scale, backward=False)


def check_masks(names):
    for dtype in dtypes_of(names):
        inputs = made((2, 3, 70, 48), (2, 3, 90, 48), (2, 3, 90, 16), dtype=dtype)
        for shape in ((70, 90), (1, 90), (70, 1), (2, 1, 1, 90), (2, 3, 70, 90)):
            (mask,) = made(shape, dtype=dtype, seed=3)
            compare(*inputs, mask, backward=False)
            compare(*inputs, mask > -0.5, backward=False)
        (mask,) = made((70, 90), dtype=dtype, seed=3)
        inputs = made((2, 3, 70, 48), (2, 3, 90, 48), (2, 3, 90, 48), dtype=dtype)
        compare(*inputs, mask, is_causal=True)


def check_special_rows(names):
    """Rows without keys are 0, of the lowest number the mean; infinities and NaN stay in theirs."""
    for dtype in dtypes_of(names):
        inputs = made((1, 2, 40, 16), (1, 2, 90, 16), (1, 2, 90, 16), dtype=dtype)
        mask = torch.rand(40, 90, generator=torch.Generator().manual_seed(0)) > 0.5
        mask[0] = False
        compare(*inputs, mask)
        here = [t.to("ocl") for t in inputs]
        got = attend(*here, attn_mask=mask.to("ocl"))
        assert got[..., 0, :].count_nonzero() == 0
        mask = torch.zeros(40, 90, dtype=dtype)
        mask[0, 3], mask[1, 80], mask[2], mask[3, 5:] = float("nan"), INF, -INF, -3e4
        mask[4], mask[5, 64:], mask[6, :64] = torch.finfo(dtype).min, -INF, -INF
        wanted = attend(*(t.double() for t in inputs), attn_mask=mask.double()).to(dtype)
        got = attend(*here, attn_mask=mask.to("ocl")).cpu()
        assert_close(got, wanted, equal_nan=True, **TOLERANCE[dtype])
        query = inputs[0].clone()
        query[0, 0, 7, 3], query[0, 1, 9, 0] = float("nan"), INF
        compare(query, *inputs[1:], backward=False)


def check_layouts(names):
    """Columns that are strided, rows that aren't aligned, heads side by side, broadcast ones."""
    for dtype in dtypes_of(names):
        shapes = (2, 3, 40, 32), (2, 3, 70, 32), (2, 3, 70, 32)
        for lay in (
            lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
            lambda t: t.mT.contiguous().mT,
            lambda t: torch.cat([t, t], -1)[..., ::2],
            lambda t: torch.cat([t, t], -1)[..., 1:33],
            lambda t: t[:1, :, :1].expand(t.shape),
        ):
            inputs = [lay(t) for t in made(*shapes, dtype=dtype)]
            wanted = attend(*(t.double() for t in inputs)).to(dtype)
            got = attend(*(on_device(t) for t in inputs))
            assert_close(got.cpu(), wanted, **TOLERANCE[dtype])


def check_many_keys(names):
    """Few queries, whose keys are split among work-groups."""
    for dtype in dtypes_of(names):
        for queries, heads in ((1, (1, 1)), (3, (4, 1)), (1, (4, 2))):
            shapes = (1, heads[0], queries, 64), *[(1, heads[1], 700, 64)] * 2
            compare(*made(*shapes, dtype=dtype), enable_gqa=True, backward=False)


def check_dropout(names):
    """Both passes drop the same weights."""
    for dtype in dtypes_of(names):
        q, k, v = made((2, 4, 70, 16), (2, 2, 60, 16), (2, 2, 60, 24), dtype=dtype)
        here = [t.to("ocl").requires_grad_() for t in (q, k, v)]
        unit = torch.eye(60, dtype=dtype, device="ocl").expand(2, 2, 60, 60)
        options = {"dropout_p": 0.4, "enable_gqa": True}
        torch.manual_seed(2)
        out = attend(*here, **options)
        torch.manual_seed(2)
        kept = (attend(here[0], here[1], unit, **options) != 0).cpu()
        assert 0.55 < kept.double().mean() < 0.65
        wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (q, k, v)]
        key, value = (t.repeat_interleave(2, 1) for t in wide[1:])
        wanted = ((wide[0] @ key.mT / 4).softmax(-1) * kept / 0.6) @ value
        assert_close(out.detach().cpu(), wanted.detach().to(dtype), **TOLERANCE[dtype])
        (grad,) = made(wanted.shape, dtype=dtype, seed=1)
        wanted.backward(grad.double())
        out.backward(grad.to("ocl"))
        for a, e in zip(here, wide, strict=True):
            assert_close(a.grad.cpu(), e.grad.to(dtype), **TOLERANCE[dtype])


MODIFICATION = """
#include "include/dtype.clh"
#define CAPTURED_SIGNATURE , global const char* bias
#define CAPTURED_PARAMETERS , global const char *bias_base, const ulong bias_offset
#define CAPTURED_DECLARATIONS global const char* const bias = bias_base + bias_offset;
#define CAPTURED , bias
#define MODIFIED_MAXIMA 1
static inline float score_mod(float score, int b, int h, int q, int k CAPTURED_SIGNATURE) {
  return score + LOAD(f32, bias, k);
}
static inline int mask_mod(int b, int h, int q, int k CAPTURED_SIGNATURE) { return k <= q + 9; }
"""


def check_modification(names):
    """flex_attention's functions, as its lowering calls them, with blocks of 16 queries and 32
    keys: of some nothing is taken, of some all."""
    for dtype in dtypes_of(names):
        query, key, value = made((1, 4, 40, 33), (1, 2, 90, 33), (1, 2, 90, 21), dtype=dtype)
        (bias,) = made((90,), seed=2)
        some = torch.tensor([[[1, 2, 0]]], dtype=torch.int32)
        full = torch.tensor([[[1, 0, 2]]], dtype=torch.int32)
        order = torch.tensor([[[[0, 1, 2], [2, 0, 1], [1, 0, 2]]]], dtype=torch.int32)
        full_order = order.flip(-1).contiguous()
        allowed = torch.zeros(40, 90, dtype=torch.bool)
        rule = torch.arange(90) <= torch.arange(40)[:, None] + 9
        for row in range(3):
            rows = slice(16 * row, 16 * row + 16)
            for column in order[0, 0, row, : some[0, 0, row]].tolist():
                columns = slice(32 * column, 32 * column + 32)
                allowed[rows, columns] |= rule[rows, columns]
            for column in full_order[0, 0, row, : full[0, 0, row]].tolist():
                allowed[rows, 32 * column : 32 * column + 32] = True
        mask = [t.to("ocl") for t in (some, order, full, full_order)]
        out, lse, maxima = torch.ops.ocl.flex_attention(
            *(t.to("ocl") for t in (query, key, value)),
            *(0.2, MODIFICATION, *mask, 16, 32, [bias.to("ocl")], [], [0, 1, 2, 3], True),
        )
        wide = [t.double() for t in (query, key, value)]
        wide[1:] = [t.repeat_interleave(2, 1) for t in wide[1:]]
        scores = wide[0] @ wide[1].mT * 0.2 + bias.double()
        scores = scores.masked_fill(~allowed, -INF)
        wanted = scores.softmax(-1).nan_to_num() @ wide[2]
        assert_close(out.cpu(), wanted.to(dtype), **TOLERANCE[dtype])
        for logarithm, natural in ((lse, scores.logsumexp(-1)), (maxima, scores.amax(-1))):
            wanted = (natural / math.log(2)).float()
            assert_close(logarithm.cpu(), wanted, rtol=1e-4, atol=1e-4)
