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


def check_shapes_of_gradients(names):
    """Such lengths and heads in both passes; wide heads with a mask."""
    for dtype in dtypes_of(names):
        for depth, columns, queries, keys in (
            (16, 16, 1, 70),
            (64, 64, 70, 200),
            (80, 96, 200, 33),
            (128, 128, 64, 70),
            (33, 21, 17, 40),
            (8, 120, 17, 33),
        ):
            shapes = (1, 2, queries, depth), (1, 2, keys, depth), (1, 2, keys, columns)
            inputs = made(*shapes, dtype=dtype)
            for causal in (False, True):
                compare(*inputs, is_causal=causal)
            if columns == 96:
                compare(*inputs, *made((queries, keys), dtype=dtype, seed=3))


def check_masks(names):
    for dtype in dtypes_of(names):
        inputs = made((2, 3, 70, 48), (2, 3, 90, 48), (2, 3, 90, 16), dtype=dtype)
        for shape in ((70, 90), (1, 90), (70, 1), (2, 1, 1, 90), (2, 3, 70, 90)):
            (mask,) = made(shape, dtype=dtype, seed=3)
            compare(*inputs, mask, backward=False)
            compare(*inputs, mask > -0.5, backward=shape == (1, 90))
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
        wide = [t.double().requires_grad_() for t in inputs]
        for t in here:
            t.requires_grad_()
        (grad,) = made((1, 2, 40, 16), dtype=dtype, seed=1)
        grad[0, 0, 5, 2] = grad[0, 1, 7, 3] = float("nan")
        attend(*wide).backward(grad.double())
        attend(*here).backward(grad.to("ocl"))
        for a, e in zip(here, wide, strict=True):
            assert_close(a.grad.cpu(), e.grad.to(dtype), equal_nan=True, **TOLERANCE[dtype])


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
            wide = [t.double().requires_grad_() for t in inputs]
            here = [on_device(t).requires_grad_() for t in inputs]
            wanted, got = attend(*wide), attend(*here)
            assert_close(got.detach().cpu(), wanted.detach().to(dtype), **TOLERANCE[dtype])
            grad = lay(*made((2, 3, 40, 32), dtype=dtype, seed=1))
            wanted.backward(grad.double())
            got.backward(on_device(grad))
            for a, e in zip(here, wide, strict=True):
                assert_close(a.grad.cpu(), e.grad.to(dtype), **TOLERANCE[dtype])


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
#include "include/atomics.clh"
#define CAPTURED_DECLARATIONS                              \\
  global const char* const bias = bias_base + bias_offset; \\
  DECLARE_SLOPES
static inline float score_mod(float score, int b, int h, int q, int k CAPTURED_SIGNATURE) {
  return 1.25f * score + LOAD(f32, bias, k);
}
static inline int mask_mod(int b, int h, int q, int k CAPTURED_SIGNATURE) { return k <= q + 9; }
"""
FORWARD = """
#define CAPTURED_SIGNATURE , global const char* bias
#define CAPTURED_PARAMETERS , global const char *bias_base, const ulong bias_offset
#define CAPTURED , bias
#define DECLARE_SLOPES
#define MODIFIED_MAXIMA 1
"""
BACKWARD = """
#define CAPTURED_SIGNATURE , global const char *bias, global char* bias_slopes
#define CAPTURED_PARAMETERS                                                                     \\
  , global const char *bias_base, const ulong bias_offset, global char *bias_slopes_base,       \\
      const ulong bias_slopes_offset, const ulong bias_slopes_copy
#define CAPTURED , bias, bias_slopes
#define DECLARE_SLOPES        \\
  global char* const bias_slopes = \\
      bias_slopes_base + bias_slopes_offset + OWN_COPY * bias_slopes_copy;
#define MODIFIED_SLOPES 1
#define CAPTURED_SLOPES 1
#define MODIFIED_LSE 1
"""
SLOPES = """
static inline float score_slope(float score, int b, int h, int q, int k,
                                float slope CAPTURED_SIGNATURE) {
  return 1.25f * slope;
}
static inline void add_captured_slopes(float score, int b, int h, int q, int k,
                                       float slope CAPTURED_SIGNATURE) {
  atomic_add_f32(bias_slopes + 4 * k, slope);
}
"""


def modified_blocks():
    """Blocks of 16 queries and 32 keys: of some nothing is taken, of some all; the lists as
    flex_attention has them, and which of 40 queries and 90 keys that allows."""
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
    return [t.to("ocl") for t in (some, order, full, full_order)], allowed


def check_modification(names):
    """flex_attention's functions, as its lowering calls them, with the gradient of what they
    capture, and of the logarithms."""
    mask, allowed = modified_blocks()
    for dtype in dtypes_of(names):
        inputs = made((1, 4, 40, 33), (1, 2, 90, 33), (1, 2, 90, 21), dtype=dtype)
        (bias,) = made((90,), seed=2)
        here, blocks = [t.to("ocl") for t in inputs], (*mask, 16, 32)
        captured, order = bias.to("ocl"), [0, 1, 2, 3]
        out, lse, maxima = torch.ops.ocl.flex_attention(
            *here, 0.2, FORWARD + MODIFICATION, *blocks, [captured], [], order, True
        )
        wide = [t.double().requires_grad_() for t in (*inputs, bias)]
        key, value = (t.repeat_interleave(2, 1) for t in wide[1:3])
        scores = (wide[0] @ key.mT * 0.2 * 1.25 + wide[3]).masked_fill(~allowed, -INF)
        wanted = scores.masked_fill(~allowed.any(1)[:, None], 0).softmax(-1) * allowed @ value
        assert_close(out.cpu(), wanted.detach().to(dtype), **TOLERANCE[dtype])
        logarithms, maximum = (x / math.log(2) for x in (scores.logsumexp(-1), scores.amax(-1)))
        for got, expected in ((lse, logarithms), (maxima, maximum)):
            assert_close(got.cpu(), expected.detach().float(), rtol=1e-4, atol=1e-4)

        (grad,), (grad_lse,) = made(wanted.shape, dtype=dtype, seed=1), made(lse.shape, seed=4)
        some = allowed.any(1)
        grad_lse[..., ~some] = 0
        wanted.backward(grad.double(), retain_graph=True)
        logarithms[..., some].backward(grad_lse[..., some].double())
        results = *here, out, lse, grad.to("ocl"), grad_lse.to("ocl")
        source = BACKWARD + MODIFICATION + SLOPES
        *gradients, captured_gradients = torch.ops.ocl.flex_attention_backward(
            *results, 0.2, source, *blocks, [captured], [captured], [], order, order, order
        )
        for got, t in zip([*gradients, *captured_gradients], wide, strict=True):
            tolerance = {"rtol": 1e-2, "atol": 1e-2} if t is wide[3] else TOLERANCE[dtype]
            assert_close(got.cpu().to(dtype), t.grad.to(dtype), **tolerance)
