"""Who serves scaled_dot_product_attention, function transforms, and the layers on it."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend
from torch.testing import assert_close

from tests.ops.attention import FLOATS, TOLERANCE, is_fused, made

# ---- The choice, and what composed functions do -----------------------------------------------


def test_gradcheck():
    inputs = [
        t.to("ocl").requires_grad_()
        for t in made((1, 4, 5, 3), (1, 2, 6, 3), (1, 2, 6, 4), dtype=torch.float64)
    ]
    (mask,) = made((5, 6), dtype=torch.float64, seed=1)
    for options in ({"is_causal": True}, {"attn_mask": mask.to("ocl")}):
        assert torch.autograd.gradcheck(
            lambda *x, o=options: attend(*x, enable_gqa=True, **o), inputs
        )


def test_composed_where_asked_for():
    inputs = [t.to("ocl").requires_grad_() for t in made(*[(1, 2, 4, 3)] * 3, dtype=torch.float64)]
    with sdpa_kernel(SDPBackend.MATH):
        assert not is_fused(attend(*inputs))
        assert torch.autograd.gradgradcheck(lambda *x: attend(*x, is_causal=True), inputs)
        q, k, v = (t.detach() for t in inputs)
        tangent = torch.func.jvp(lambda x: attend(x, k, v), (q,), (k,))[1]
        wanted = torch.func.jvp(lambda x: attend(x, k.cpu(), v.cpu()), (q.cpu(),), (k.cpu(),))[1]
        assert_close(tangent.cpu(), wanted)
        many = torch.stack([q, k, v])
        got = torch.func.vmap(lambda x: attend(x, k, v))(many)
        assert_close(got, torch.stack([attend(x, k, v) for x in many]))
    assert is_fused(attend(*inputs))


def test_vmap_of_the_kernel():
    q, k, v = (t.to("ocl") for t in made(*[(1, 2, 4, 8)] * 3))
    many = torch.stack([q, k, v])
    got = torch.func.vmap(lambda x: attend(x, k, v))(many)
    assert_close(got, torch.stack([attend(x, k, v) for x in many]))


def test_mask_with_a_gradient():
    inputs = made(*[(2, 3, 6, 8)] * 3)
    (mask,) = made((6, 6), seed=1)
    grads = []
    for place in ("cpu", "ocl"):
        leaf = mask.to(place).detach().clone().requires_grad_()
        out = attend(*(t.to(place) for t in inputs), attn_mask=leaf)
        out.pow(2).sum().backward()
        grads.append(leaf.grad.cpu())
    assert_close(grads[1], grads[0])


def test_batches_that_broadcast():
    inputs = made((3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8))
    assert_close(attend(*(t.to("ocl") for t in inputs)).cpu(), attend(*inputs))
    inputs = made((2, 3, 2, 4, 8), (2, 3, 2, 5, 8), (2, 3, 2, 5, 8))
    assert_close(attend(*(t.to("ocl") for t in inputs)).cpu(), attend(*inputs))


def test_the_choice():
    q, k, v = (t.to("ocl") for t in made(*[(1, 2, 4, 8)] * 3))
    assert torch._fused_sdp_choice(q, k, v) == SDPBackend.OVERRIDEABLE.value
    assert torch._fused_sdp_choice(q[0, 0], k[0, 0], v[0, 0]) == SDPBackend.MATH.value
    with sdpa_kernel(SDPBackend.MATH):
        assert torch._fused_sdp_choice(q, k, v) == SDPBackend.MATH.value


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v: {"key": k.double()},
        lambda q, k, v: {"key": k[..., :4]},
        lambda q, k, v: {"attn_mask": torch.zeros(4, 3, device=q.device)},
        lambda q, k, v: {"attn_mask": torch.zeros(4, 4, dtype=torch.int64, device=q.device)},
        lambda q, k, v: {"dropout_p": 1.5},
        lambda q, k, v: {"query": q[0, 0, 0]},
    ],
)
def test_errors(change):
    for place in ("cpu", "ocl"):
        q, k, v = (t.to(place) for t in made(*[(1, 2, 4, 8)] * 3))
        with pytest.raises(RuntimeError):
            attend(**{"query": q, "key": k, "value": v, **change(q, k, v)})


# ---- Layers -----------------------------------------------------------------------------------


def layer_and_twin(make, dtype=torch.float32):
    torch.manual_seed(0)
    layer = make().to(dtype).eval()
    twin = make().to(dtype).eval()
    twin.load_state_dict(layer.state_dict())
    return layer, twin.to("ocl")


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("masks", ["none", "source", "padding", "both"])
def test_multihead_attention(masks, average, need_weights):
    layer, twin = layer_and_twin(lambda: nn.MultiheadAttention(24, 3, batch_first=True))
    (x,) = made((4, 10, 24))
    source = torch.rand(10, 10, generator=torch.Generator().manual_seed(1)) > 0.6
    source.fill_diagonal_(False)
    padding = torch.zeros(4, 10, dtype=torch.bool)
    padding[1, 7:] = padding[3, 9:] = True
    options = {
        "attn_mask": source if masks in ("source", "both") else None,
        "key_padding_mask": padding if masks in ("padding", "both") else None,
        "need_weights": need_weights,
        "average_attn_weights": average,
    }
    there = {k: v.to("ocl") if torch.is_tensor(v) else v for k, v in options.items()}
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            wanted, wanted_weights = layer(x, x, x, **options)
            got, weights = twin(*[x.to("ocl")] * 3, **there)
        assert_close(got.detach().cpu(), wanted.detach())
        assert (weights is None) == (wanted_weights is None)
        if weights is not None:
            assert_close(weights.detach().cpu(), wanted_weights.detach())


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_encoder_layer(dtype, activation, norm_first):
    layer, twin = layer_and_twin(
        lambda: nn.TransformerEncoderLayer(
            24, 3, 40, batch_first=True, activation=activation, norm_first=norm_first
        ),
        dtype,
    )
    (x,) = made((4, 10, 24), dtype=dtype)
    causal = nn.Transformer.generate_square_subsequent_mask(10, dtype=dtype)
    padding = torch.zeros(4, 10, dtype=torch.bool)
    padding[1, 7:] = True
    for mask in ({}, {"src_mask": causal}, {"src_key_padding_mask": padding}):
        there = {k: v.to("ocl") for k, v in mask.items()}
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                wanted, got = layer(x, **mask), twin(x.to("ocl"), **there)
            assert_close(got.detach().cpu(), wanted.detach(), **TOLERANCE[dtype])


def test_encoder_layer_trains():
    layer, twin = layer_and_twin(
        lambda: nn.TransformerEncoderLayer(24, 3, 40, batch_first=True, dropout=0)
    )
    (x,) = made((4, 10, 24))
    layer.train()(x).pow(2).sum().backward()
    twin.train()(x.to("ocl")).pow(2).sum().backward()
    for a, e in zip(twin.parameters(), layer.parameters(), strict=True):
        assert_close(a.grad.cpu(), e.grad, rtol=1e-4, atol=1e-4)


def test_encoder_with_padding():
    """CPU torch takes nested tensors, which leave zeros for the padding."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x, padding = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False, False, False]])
    with torch.inference_mode():
        expected = encoder(x, src_key_padding_mask=padding)
        actual = encoder.to("ocl")(x.to("ocl"), src_key_padding_mask=padding.to("ocl"))
    assert_close(actual.cpu()[~padding], expected[~padding])
