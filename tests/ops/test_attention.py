"""scaled_dot_product_attention against CPU torch: its kernels, both passes, and dropout."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend
from torch.testing import assert_close

from tests.as_gpu import run_as_gpu
from tests.layouts import on_device
from tests.ops.attention import FLOATS, HALVES, TOLERANCE, compare, made

INF, NAN = float("inf"), float("nan")


# ---- The kernels ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + HALVES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "lengths", [(64, 64), (1, 1), (1, 7), (7, 1), (33, 130), (150, 67)], ids=str
)
def test_lengths(lengths, causal, dtype):
    queries, keys = lengths
    shapes = (2, 3, queries, 64), (2, 3, keys, 64), (2, 3, keys, 64)
    compare(*made(*shapes, dtype=dtype), is_causal=causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "widths", [(1, 1), (8, 24), (40, 16), (80, 112), (176, 200), (256, 256)], ids=str
)
def test_head_sizes(widths, dtype):
    depth, columns = widths
    shapes = (1, 2, 37, depth), (1, 2, 70, depth), (1, 2, 70, columns)
    compare(*made(*shapes, dtype=dtype))


def test_heads_past_the_largest():
    q, k, v = (t.to("ocl") for t in made((1, 2, 5, 264), (1, 2, 6, 264), (1, 2, 6, 264)))
    assert_close(attend(q, k, v).cpu(), attend(q.cpu(), k.cpu(), v.cpu()))


@pytest.mark.parametrize("scale", [0.0, 0.7, -0.3, 30.0])
def test_scale(scale):
    compare(*made((1, 2, 20, 16), (1, 2, 70, 16), (1, 2, 70, 16)), scale=scale, backward=scale < 30)


@pytest.mark.parametrize("queries", [37, 130])
def test_saturated_rows(queries):
    """Large scores leave one weight of 1 in a row, which the backward pass must get, too."""
    query, key, value = made((1, 2, queries, 64), (1, 2, 90, 64), (1, 2, 90, 64))
    grads = []
    for device, dtype in (("cpu", torch.float64), ("ocl", torch.float32)):
        wanted = value.to(device, dtype).requires_grad_()
        out = attend((query * 1000).to(device, dtype), (key * 1000).to(device, dtype), wanted)
        grads.append(torch.autograd.grad(out, wanted, torch.ones_like(out))[0].cpu())
    assert_close(grads[1], grads[0].float(), rtol=1e-6, atol=1e-6)


MASKS = [
    *((70, 90), (1, 90), (70, 1), (1, 1)),
    *((2, 1, 1, 90), (2, 3, 70, 90), (3, 70, 90), (1, 3, 1, 90)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_masks(shape, dtype):
    inputs = made((2, 3, 70, 16), (2, 3, 90, 16), (2, 3, 90, 16), dtype=dtype)
    (mask,) = made(shape, dtype=dtype, seed=3)
    compare(*inputs, mask)
    compare(*inputs, mask > -0.5)
    single = [t[:, :, :1] if i == 0 else t for i, t in enumerate(inputs)]
    if shape[-2] == 1:
        compare(*single, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lengths", [(9, 9), (1, 9), (70, 130), (1, 300)], ids=str)
def test_masks_of_the_lowest_number(lengths, dtype):
    """A row of nothing else takes the mean of the values, of minus infinity it is 0."""
    queries, keys = lengths
    inputs = made((1, 2, queries, 16), (1, 2, keys, 16), (1, 2, keys, 16), dtype=dtype)
    for number in (torch.finfo(dtype).min, torch.finfo(dtype).max):
        mask = torch.full(lengths, number, dtype=dtype)
        here = [on_device(t).requires_grad_() for t in inputs]
        out = attend(*here, mask.to("ocl"))
        assert_close(
            out.cpu(), inputs[2].mean(2, keepdim=True).expand(out.shape), **TOLERANCE[dtype]
        )
        out.sum().backward()
        assert all(t.grad.isfinite().all() for t in here)
    mask = torch.zeros(lengths, dtype=dtype)
    mask[:, 4:] = torch.finfo(dtype).min
    compare(*inputs, mask)


def test_mask_beside_causal():
    inputs = made((2, 3, 70, 16), (2, 3, 90, 16), (2, 3, 90, 16))
    (mask,) = made((70, 90), seed=3)
    compare(*inputs, mask, is_causal=True)
    compare(inputs[0][:, :, :2], *inputs[1:], mask[:2], is_causal=True)


def test_mask_layouts():
    inputs = made((2, 3, 70, 16), (2, 3, 90, 16), (2, 3, 90, 16))
    (mask,) = made((90, 70), seed=3)
    here = [t.to("ocl") for t in inputs]
    for turn in (lambda m: m.t(), lambda m: torch.cat([m, m], 1)[:, ::2].t()):
        wanted = attend(*inputs, attn_mask=turn(mask))
        got = attend(*here, attn_mask=turn(mask.to("ocl")))
        assert_close(got.cpu(), wanted, **TOLERANCE[torch.float32])


@pytest.mark.parametrize("queries", [1, 20])
def test_rows_without_keys(queries):
    """Zeros, as CPU torch gives, and gradients of zero."""
    inputs = made((1, 2, queries, 16), (1, 2, 90, 16), (1, 2, 90, 16))
    mask = torch.rand(queries, 90, generator=torch.Generator().manual_seed(0)) > 0.5
    mask[0] = False
    compare(*inputs, mask)
    got = attend(*(t.to("ocl") for t in inputs), attn_mask=mask.to("ocl"))
    assert got[..., 0, :].count_nonzero() == 0


@pytest.mark.parametrize("queries", [4, 40])
def test_special_values_in_masks(queries):
    inputs = made((1, 2, queries, 16), (1, 2, 90, 16), (1, 2, 90, 16))
    mask = torch.zeros(queries, 90)
    mask[0, 3] = NAN
    mask[1, 80] = INF
    mask[2] = -INF
    mask[3, 5:] = -1e30
    got = attend(*(t.to("ocl") for t in inputs), attn_mask=mask.to("ocl")).cpu()
    assert_close(got, attend(*inputs, attn_mask=mask), equal_nan=True, **TOLERANCE[torch.float32])


def test_special_values_in_inputs():
    for which in range(3):
        for value in (NAN, INF):
            inputs = made((1, 1, 9, 16), (1, 1, 70, 16), (1, 1, 70, 16))
            inputs[which][0, 0, 3, 2] = value
            got = attend(*(t.to("ocl") for t in inputs)).cpu()
            with sdpa_kernel(SDPBackend.MATH):
                wanted = attend(*inputs)
            assert_close(got.isnan(), wanted.isnan())
            finite = wanted.isfinite()
            assert_close(got[finite], wanted[finite], **TOLERANCE[torch.float32])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("queries", [1, 3, 45])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_heads(queries, causal, dtype):
    for heads, key_heads in ((4, 2), (6, 1), (8, 2)):
        shapes = (2, heads, queries, 24), (2, key_heads, 70, 24), (2, key_heads, 70, 40)
        compare(*made(*shapes, dtype=dtype), enable_gqa=True, is_causal=causal)


def test_heads_that_do_not_fit():
    q, k, v = (t.to("ocl") for t in made((1, 4, 5, 8), (1, 3, 6, 8), (1, 3, 6, 8)))
    for options in ({}, {"enable_gqa": True}):
        with pytest.raises(RuntimeError):
            attend(q, k, v, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("heads", [(1, 1), (4, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("queries", [1, 3])
def test_many_keys(queries, heads, dtype):
    """Few queries and heads: the keys are split, one part without any key that counts."""
    shapes = (1, heads[0], queries, 40), (1, heads[1], 1500, 40), (1, heads[1], 1500, 24)
    inputs = made(*shapes, dtype=dtype)
    mask = torch.rand(queries, 1500, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[:, 300:1100] = False
    compare(*inputs, enable_gqa=True)
    compare(*inputs, mask, enable_gqa=True)
    compare(*inputs, is_causal=True, enable_gqa=True)


LAYOUTS = {
    "rows first": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "columns first": lambda t: t.mT.contiguous().mT,
    "every other": lambda t: torch.cat([t, t], -1)[..., ::2],
    "offset": lambda t: torch.cat([t, t], 2)[:, :, 1 : 1 + t.size(2)],
    "expanded": lambda t: t[:, :1].expand(-1, t.size(1), -1, -1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("queries", [2, 40])
def test_layouts(layout, queries, dtype):
    inputs = made((2, 3, queries, 32), (2, 3, 70, 32), (2, 3, 70, 32), dtype=dtype)
    inputs = [LAYOUTS[layout](t) for t in inputs]
    wide = [t.double() for t in inputs]
    got = attend(*(on_device(t) for t in inputs))
    assert_close(got.cpu(), attend(*wide).to(dtype), **TOLERANCE[dtype])
    if layout == "expanded":
        return
    compare(*inputs)
    # The gradient of the result in that layout, too.
    here = [on_device(t).requires_grad_() for t in inputs]
    (grad,) = made((2, 3, queries, 32), dtype=dtype, seed=2)
    dense = torch.autograd.grad(attend(*here), here, grad.to("ocl"))
    laid = torch.autograd.grad(attend(*here), here, on_device(LAYOUTS[layout](grad).copy_(grad)))
    for a, e in zip(laid, dense, strict=True):
        assert_close(a, e)


def test_result_is_laid_out_as_query():
    q, k, v = (t.transpose(1, 2).to("ocl") for t in made(*[(2, 10, 3, 8)] * 3))
    assert q.stride() == (240, 8, 24, 1)
    assert attend(q, k, v).stride() == q.stride()


def test_three_dimensions():
    compare(*made((3, 20, 16), (3, 30, 16), (3, 30, 16)), is_causal=True)
    (mask,) = made((20, 30), seed=1)
    compare(*made((3, 20, 16), (3, 30, 16), (3, 30, 16)), mask)


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 0, 8), (2, 3, 5, 8)),
        ((2, 3, 4, 8), (2, 3, 0, 8)),
        ((0, 3, 4, 8), (0, 3, 5, 8)),
        ((2, 0, 4, 8), (2, 0, 5, 8)),
        ((2, 3, 4, 0), (2, 3, 5, 0)),
    ],
    ids=str,
)
def test_empty(shapes):
    wide = [t.requires_grad_() for t in made(shapes[0], shapes[1], shapes[1])]
    here = [t.detach().to("ocl").requires_grad_() for t in wide]
    got = attend(*here)
    got.sum().backward()
    if shapes[0][1] == 0:
        # CPU torch 2.11 divides by the number of heads.
        assert got.shape == shapes[0] and all(t.grad.shape == t.shape for t in here)
        return
    wanted = attend(*wide)
    assert_close(got.detach().cpu(), wanted.detach())
    wanted.sum().backward()
    for a, e in zip(here, wide, strict=True):
        assert_close(a.grad.cpu(), e.grad)


def test_deterministic():
    inputs = [t.to("ocl").requires_grad_() for t in made(*[(1, 3, 300, 64)] * 3)]
    runs = []
    for _ in range(3):
        out = attend(*inputs, is_causal=True)
        runs.append([out, *torch.autograd.grad(out.pow(2).sum(), inputs)])
    for run in runs[1:]:
        for a, e in zip(run, runs[0], strict=True):
            assert torch.equal(a, e)


def test_few_and_many_heads():
    """The backward pass gives a work-item a whole head, or parts of it."""
    for heads in (1, 5, 16):
        compare(*made(*[(1, heads, 200, 32)] * 3), is_causal=True)


def test_memory_is_linear():
    """Scores of 2 heads of 4096 x 4096 would take 128 MiB."""
    inputs = [t.to("ocl").requires_grad_() for t in made(*[(1, 2, 4096, 32)] * 3)]
    grad = torch.ones_like(inputs[0])
    torch.ocl.synchronize()
    torch.ocl.reset_peak_memory_stats()
    before = torch.ocl.memory_allocated()
    out = attend(*inputs)
    grads = torch.autograd.grad(out, inputs, grad)
    torch.ocl.synchronize()
    kept = sum(t.numel() * t.element_size() for t in (out, *grads))
    assert torch.ocl.max_memory_allocated() - before - kept <= 2 * 2**20


# ---- Dropout ----------------------------------------------------------------------------------


def weights_of(query, key, p):
    """The weights after dropout: attention to the unit vectors."""
    keys = key.size(2)
    unit = torch.eye(keys, device=query.device).expand(*key.shape[:2], keys, keys)
    return attend(query, key, unit, dropout_p=p)


@pytest.mark.parametrize("queries", [2, 200])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_statistics(queries, p):
    q, k = (t.to("ocl") for t in made((4, 8, queries, 16), (4, 8, 120, 16)))
    torch.manual_seed(1)
    dropped = weights_of(q, k, p)
    plain = weights_of(q, k, 0.0)
    gone = dropped == 0
    count = gone.numel()
    assert abs(gone.float().mean().item() - p) < 5 * (p * (1 - p) / count) ** 0.5
    assert_close(dropped[~gone], plain[~gone] / (1 - p), rtol=1e-4, atol=1e-6)
    # No pattern along queries, keys or heads.
    share = gone.float()
    for dims in ((0, 1, 2), (0, 1, 3), (2, 3)):
        n = count / share.mean(dims).numel()
        assert (share.mean(dims) - p).abs().max().item() < 6 * (p * (1 - p) / n) ** 0.5
    for shift in (share.roll(1, 2), share.roll(1, 3)):
        product = ((share - p) * (shift - p)).mean().item()
        assert abs(product) < 6 * p * (1 - p) / count**0.5


def test_dropout_is_a_function_of_the_seed():
    q, k, v = (t.to("ocl") for t in made(*[(2, 3, 50, 16)] * 3))
    torch.manual_seed(5)
    first, second = (attend(q, k, v, dropout_p=0.3) for _ in range(2))
    torch.manual_seed(5)
    again = attend(q, k, v, dropout_p=0.3)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(attend(q, k, v, dropout_p=1.0), torch.zeros_like(q))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [3, 70])
def test_dropout_backward(queries, causal, dtype):
    """Both passes drop the same weights: the gradient is that of the composed product with them."""
    q, k, v = made((2, 4, queries, 16), (2, 2, 70, 16), (2, 2, 70, 24), dtype=dtype)
    here = [t.to("ocl").requires_grad_() for t in (q, k, v)]
    unit = torch.eye(70, dtype=dtype, device="ocl").expand(2, 2, 70, 70)
    options = {"dropout_p": 0.4, "is_causal": causal, "enable_gqa": True}
    torch.manual_seed(2)
    out = attend(*here, **options)
    torch.manual_seed(2)
    kept = (attend(here[0], here[1], unit, **options) != 0).cpu()
    wide = [t.to(torch.float64, copy=True).requires_grad_() for t in (q, k, v)]
    key, value = (t.repeat_interleave(2, 1) for t in wide[1:])
    scores = wide[0] @ key.mT / 4
    if causal:
        allowed = torch.ones(queries, 70, dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -INF)
    wanted = (scores.softmax(-1) * kept / 0.6) @ value
    assert_close(out.detach().cpu(), wanted.detach().to(dtype), **TOLERANCE[dtype])
    (grad,) = made(wanted.shape, dtype=dtype, seed=1)
    wanted.backward(grad.double())
    out.backward(grad.to("ocl"))
    for a, e in zip(here, wide, strict=True):
        assert_close(a.grad.cpu(), e.grad.to(dtype), **TOLERANCE[dtype])


@pytest.mark.as_gpu
def test_as_a_gpu():
    """Everything above with the kernels that GPUs get."""
    run_as_gpu(__file__)
