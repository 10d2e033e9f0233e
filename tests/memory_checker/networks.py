"""Families of neural networks: layers, losses, optimisers."""

import torch
from family import family, operands
from torch import nn
from torch.nn import functional


@family
def norms():
    """Rows, runs, planes and columns, forward and backward."""
    x, _ = operands()
    keep = []
    images = torch.randn(3, 6, 5, 7).to("ocl")
    for norm, given in (
        (nn.LayerNorm(37), x),
        (nn.RMSNorm(37), x),
        (nn.LayerNorm(36), x[:, 1:].contiguous()),
        (nn.GroupNorm(2, 6), images),
        (nn.BatchNorm2d(6), images),
        (nn.BatchNorm2d(6), images.contiguous(memory_format=torch.channels_last)),
        (nn.BatchNorm1d(37).eval(), x),
    ):
        leaf = given.detach().requires_grad_()
        norm.to("ocl")(leaf).pow(2).sum().backward()
        keep.append(leaf.grad)
    return keep


@family
def windows():
    """Windows and resamplings, of planes and of channels last, forward and backward."""
    images = torch.randn(3, 6, 5, 7).to("ocl")
    keep = []
    for given in (images, images.contiguous(memory_format=torch.channels_last)):
        leaf = given.detach().requires_grad_()
        pooled, where = functional.max_pool2d(leaf, 3, 2, 1, return_indices=True)
        random = torch.rand(3, 6, 2).to("ocl")
        turned = torch.eye(2, 3).expand(3, 2, 3).to("ocl") * 1.2
        looks = functional.affine_grid(turned, (3, 6, 4, 5), align_corners=False)
        for result in (
            functional.pad(leaf, (2, 1, 3, 0), "reflect"),
            functional.pad(leaf, (2, 1, 3, 0), "replicate"),
            pooled,
            functional.max_unpool2d(pooled, where, 3, 2, 1, output_size=(5, 7)),
            functional.avg_pool2d(leaf, 2, ceil_mode=True),
            functional.adaptive_avg_pool2d(leaf, (2, 3)),
            functional.adaptive_max_pool2d(leaf, 3),
            functional.fractional_max_pool2d(leaf, 2, 3, _random_samples=random),
            functional.interpolate(leaf, size=(8, 4)),
            functional.interpolate(leaf, size=(8, 4), mode="bilinear"),
            functional.interpolate(leaf, size=(8, 4), mode="bicubic"),
            functional.interpolate(leaf, size=(3, 9), mode="bilinear", antialias=True),
            functional.unfold(leaf, (2, 3), padding=1),
            functional.fold(leaf.reshape(3, 6, 35), (6, 9), (2, 3)),
            functional.grid_sample(leaf, looks, align_corners=False),
            functional.grid_sample(images, looks + leaf[0, 0, 0, 0] / 9, align_corners=False),
        ):
            (gradient,) = torch.autograd.grad(result.pow(2).sum(), leaf, retain_graph=True)
            keep += [result.detach(), gradient]
    return keep


@family
def long_windows():
    """Rows and channels of several vectors."""
    images = torch.randn(3, 6, 5, 7).to("ocl")
    keep = []
    long = torch.randn(2, 18, 3, 39).to("ocl")
    for given in (long, long.contiguous(memory_format=torch.channels_last)):
        leaf = given.detach().requires_grad_()
        for result in (
            functional.pad(leaf, (4, 3, 1, 2), "reflect"),
            functional.pad(leaf, (4, -3, 1, 0), "replicate"),
            functional.max_pool2d(leaf, 3, 2, 1),
            functional.avg_pool2d(leaf, 2),
            functional.adaptive_avg_pool2d(leaf, (2, 5)),
            functional.interpolate(leaf, scale_factor=2),
            functional.fold(functional.unfold(leaf, 3, padding=1), (3, 39), 3, padding=1),
        ):
            keep += torch.autograd.grad(result.square().sum(), leaf)
    pixels = (images.abs() * 60).to(torch.uint8)
    keep.append(functional.interpolate(pixels, size=(9, 4), mode="bicubic"))
    return keep


@family
def convolutions():
    """Several strides, paddings and groups; few channels; few windows of many channels."""
    keep = []
    image, taps = torch.randn(2, 6, 7, 9).to("ocl"), torch.randn(9, 6, 3, 2).to("ocl")
    for leaf in (image, taps):
        leaf.requires_grad_()
    for out in (
        functional.conv2d(image, taps, padding=1, stride=2),
        functional.conv_transpose2d(image, taps.view(6, 9, 3, 2), stride=(2, 1)),
        functional.conv2d(image, taps[:6, :1], groups=6, padding=1),
        functional.conv2d(image, taps[:6, :1], groups=6, padding=1, dilation=2),
    ):
        keep += torch.autograd.grad(out.sum(), (image, taps))
    # Few channels, and a stride.
    high, lines = torch.randn(1, 2, 48, 47).to("ocl"), torch.randn(2, 1, 3, 2).to("ocl")
    options = {"stride": (2, 1), "padding": (1, 0), "output_padding": (1, 0)}
    keep.append(functional.conv_transpose2d(high, lines, **options))
    # One channel from many: sums along lines and along channels.
    wide, single = torch.randn(1, 17, 3, 16).to("ocl"), torch.randn(1, 17, 3, 3).to("ocl")
    for given in (wide, wide.contiguous(memory_format=torch.channels_last)):
        leaf = given.detach().requires_grad_()
        out = functional.conv2d(leaf, single.requires_grad_(), padding=1)
        keep += torch.autograd.grad(out.square().sum(), (leaf, single))
    # Groups of two channels.
    pairs, two = torch.randn(2, 40, 8, 8).to("ocl"), torch.randn(40, 2, 3, 1).to("ocl")
    keep.append(functional.conv2d(pairs, two, groups=20, padding=(1, 0)))
    # One channel per group, of volumes whose channels lie innermost.
    volumes = torch.randn(2, 5, 4, 3, 20).to("ocl").permute(0, 4, 1, 2, 3)
    box = torch.randn(2, 2, 1, 1, 20).to("ocl").permute(4, 3, 0, 1, 2)
    keep.append(functional.conv3d(volumes, box, groups=20))
    # Few windows of many channels.
    few, many = torch.randn(2, 40, 4, 3).to("ocl"), torch.randn(90, 40, 3, 3).to("ocl")
    for leaf in (few, many):
        leaf.requires_grad_()
    out = functional.conv2d(few, many, padding=1)
    keep += torch.autograd.grad(out.sum(), (few, many))
    return keep


@family
def winograd():
    """Transformed tiles: an odd size, a panel that is not full, sums of infinite numbers."""
    keep = []
    image, taps = torch.randn(2, 16, 11, 15).to("ocl"), torch.randn(17, 16, 3, 3).to("ocl")
    image[0, 3, 10, 14] = float("inf")
    for given in (image, image.contiguous(memory_format=torch.channels_last)):
        leaf = given.detach().requires_grad_()
        keep += torch.autograd.grad(functional.conv2d(leaf, taps, padding=1).sum(), leaf)
    return keep


@family
def depthwise():
    """Planes, channels last, small planes of many channels."""
    keep = []
    image, wide = torch.randn(2, 6, 7, 9).to("ocl"), torch.randn(2, 6, 5, 20).to("ocl")
    taps = torch.randn(6, 1, 3, 2).to("ocl").requires_grad_()
    for given in (image, wide, wide.contiguous(memory_format=torch.channels_last)):
        leaf = given.detach().requires_grad_()
        for stride, padding in ((1, 1), (2, 1), (2, 0)):
            out = functional.conv2d(leaf, taps, groups=6, stride=stride, padding=padding)
            keep += torch.autograd.grad(out.square().sum(), (leaf, taps))
    # Small planes of many channels.
    small, window = torch.randn(2, 40, 5, 7).to("ocl"), torch.randn(40, 1, 3, 3).to("ocl")
    for leaf in (small, window):
        leaf.requires_grad_()
    for stride in (1, 2):
        out = functional.conv2d(small, window, groups=40, padding=1, stride=stride)
        keep += torch.autograd.grad(out.square().sum(), (small, window))
    return keep


FUNCTIONS = """
#include "include/dtype.clh"
#define CAPTURED_SIGNATURE , global const char* bias
#define CAPTURED_PARAMETERS , global const char *bias_base, const ulong bias_offset
#define CAPTURED_DECLARATIONS global const char* const bias = bias_base + bias_offset;
#define CAPTURED , bias
#define MODIFIED_SLOPES 1
#define MODIFIED_MAXIMA 1
static inline float score_mod(float score, int b, int h, int q, int k CAPTURED_SIGNATURE) {
  return score + LOAD(f32, bias, k);
}
static inline int mask_mod(int b, int h, int q, int k CAPTURED_SIGNATURE) { return k <= q + 9; }
static inline float score_slope(float score, int b, int h, int q, int k,
                                float slope CAPTURED_SIGNATURE) {
  return slope;
}
"""


def modified(heads):
    """As flex_attention's lowering calls it, with blocks of 8 queries and 16 keys."""
    query, key, value = (t.detach() for t in heads)
    bias = torch.randn(37).to("ocl")
    counts = torch.tensor([[[1, 2, 0]]], dtype=torch.int32).to("ocl")
    indices = torch.tensor([[[[0, 1, 2], [2, 0, 1], [1, 0, 2]]]], dtype=torch.int32).to("ocl")
    mask = (counts, indices, counts[..., [2, 0, 1]].contiguous(), indices, 8, 16)
    orders = [[0, 1, 2, 3]] * 3
    out, lse, maxima = torch.ops.ocl.flex_attention(
        query, key, value, 0.2, FUNCTIONS, *mask, [bias], [], orders[0], True
    )
    results = (query, key, value, out, lse, torch.ones_like(out), None)
    gradients = torch.ops.ocl.flex_attention_backward(
        *results, 0.2, FUNCTIONS, *mask, [bias], [], [], *orders
    )
    return [out, lse, maxima, *gradients[:3]]


@family
def attention():
    """Blocks of queries, grouped heads, a mask, dropout; forward and backward."""
    keep = []
    heads = [torch.randn(s).to("ocl") for s in ((1, 4, 19, 33), (1, 2, 37, 33), (1, 2, 37, 21))]
    heads = [t.requires_grad_() for t in heads]
    for options in (
        {"is_causal": True},
        {"attn_mask": torch.randn(19, 37).to("ocl"), "dropout_p": 0.5},
    ):
        out = functional.scaled_dot_product_attention(*heads, enable_gqa=True, **options)
        keep += [out.detach(), *torch.autograd.grad(out.pow(2).sum(), heads)]
    one = functional.scaled_dot_product_attention(heads[0][:, :, :1], *heads[1:], enable_gqa=True)
    keep.append(one.detach())
    # A query against so many keys that several work-items share them; a second derivative.
    long = [torch.randn(1, 2, 600, 16).to("ocl") for _ in range(2)]
    keep.append(functional.scaled_dot_product_attention(long[0][:, :, :1], *long))
    keep += modified(heads)
    few = [t[:, :, :5].clone().requires_grad_() for t in (*long, long[0])]
    out = functional.scaled_dot_product_attention(*few, dropout_p=0.5)
    (first,) = torch.autograd.grad(out.square().sum(), few[0], create_graph=True)
    keep += torch.autograd.grad(first.square().sum(), few)
    return keep


@family
def waves():
    """AMD's matrix instructions, on a device that is taken for such a GPU (run.py), multiply heads
    that are and are not whole pieces, with a mask and dropout, and have their gradients; keys that
    are split; a product."""
    keep = []
    for width, options in ((16, {"is_causal": True}), (21, {"dropout_p": 0.5})):
        query = torch.randn(1, 2, 19, width, dtype=torch.float16).to("ocl")
        key = torch.randn(1, 1, 37, width, dtype=torch.float16).to("ocl")
        if not options.get("is_causal"):
            options["attn_mask"] = torch.randn(19, 37, dtype=torch.float16).to("ocl")
        attend = functional.scaled_dot_product_attention
        leaves = [t.requires_grad_() for t in (query, key)]
        out = attend(query, key, key, enable_gqa=True, **options)
        keep += [out, *torch.autograd.grad(out.square().sum(), leaves)]
    long = torch.randn(1, 1, 140, 16, dtype=torch.float16).to("ocl")
    keep.append(functional.scaled_dot_product_attention(long[:, :, :1], long, long))
    return [*keep, long[0, 0] @ long[0, 0].mT]


@family
def recurrent():
    """Whole layers with and without whole vectors, cells."""
    keep = []
    for network in (nn.LSTM(5, 32), nn.LSTM(5, 7, bidirectional=True), nn.GRU(5, 19)):
        leaf = torch.randn(2, 6, 5).to("ocl").requires_grad_()
        network.to("ocl")(leaf)[0].pow(2).sum().backward()
        keep += [leaf.grad, *(p.grad for p in network.parameters())]
    return keep


@family
def losses():
    """Losses with a loop of their own, bags of embeddings, segments, fake quantisation."""
    x, _ = operands()
    index = torch.tensor([0, 3, 6, 3]).to("ocl")
    keep = []
    scores = torch.randn(7, 37).to("ocl").requires_grad_()
    several = torch.randint(0, 37, (7, 37)).to("ocl")
    several[:, 3:] = -1
    for loss in (
        functional.nll_loss(scores, several[:, 0], reduction="none").sum(),
        functional.nll_loss(scores.view(7, 37, 1, 1), several[:, :1, None]),
        functional.multi_margin_loss(scores, several[:, 0]),
        functional.multilabel_margin_loss(scores, several),
        functional.ctc_loss(
            scores.view(7, 1, 37).log_softmax(2), several[:1, :3], [7], [3], blank=0
        ),
        functional.rrelu(scores, training=True).sum(),
        torch.segment_reduce(scores, "max", lengths=torch.tensor([3, 0, 4]).to("ocl")).sum(),
    ):
        keep.append(torch.autograd.grad(loss, scores)[0].nan_to_num())
    table = torch.randn(9, 11).to("ocl").requires_grad_()
    for mode in ("sum", "mean", "max"):
        bags = functional.embedding_bag(index, table, torch.tensor([0, 1, 1]).to("ocl"), mode=mode)
        keep.append(torch.autograd.grad(bags.sum(), table)[0])
    factors = torch.rand(4).to("ocl").requires_grad_()
    bags = functional.embedding_bag(
        index, table, torch.tensor([0, 3]).to("ocl"), mode="sum", per_sample_weights=factors
    )
    keep += torch.autograd.grad(bags.sum(), (table, factors))
    keep.append(torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15))
    observed = [torch.tensor([v]).to("ocl") for v in (torch.inf, -torch.inf, 1.0)]
    on, zero = torch.ones(1).long().to("ocl"), torch.zeros(1).int().to("ocl")
    keep.append(torch.fused_moving_avg_obs_fake_quant(x, on, on, *observed, zero, 0.1, 0, 15, 0))
    keep.append(torch.hash_tensor(x, 1).view(torch.int64) % 1000)
    return keep


@family
def optimisers():
    """A training step; fused optimisers over lists of tensors, and gradient scaling."""
    x, _ = operands()
    keep = []
    model = nn.Sequential(nn.Linear(37, 19), nn.ReLU(), nn.Linear(19, 5)).to("ocl")
    optimiser = torch.optim.Adam(model.parameters())
    target = torch.tensor([0, 1, 2, 3, 4, 0, 1]).to("ocl")
    functional.cross_entropy(model(x), target).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    # Fused optimisers over lists of tensors, and gradient scaling.
    scaler = torch.amp.GradScaler("ocl")
    for fused in (
        torch.optim.AdamW(model.parameters(), amsgrad=True, fused=True),
        torch.optim.SGD(model.parameters(), momentum=0.9, fused=True),
        torch.optim.Adagrad(model.parameters(), fused=True),
        torch.optim.SGD(model.parameters(), momentum=0.9),
    ):
        fused.zero_grad()
        scaler.scale(functional.cross_entropy(model(x), target)).backward()
        scaler.step(fused)
        scaler.update()
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure():
        lbfgs.zero_grad()
        loss = functional.cross_entropy(model(x), target)
        loss.backward()
        return loss

    lbfgs.step(closure)
    # A list that is longer than a kernel's parameters.
    keep += torch._foreach_addcmul([x[0]] * 40, [x[1]] * 40, [x[2]] * 40, value=0.5)
    for order in (1, 2, torch.inf):
        keep += torch._foreach_norm([x[0][:3], *[x[1]] * 40, x], order)
    copies = [torch.empty_like(x[0]) for _ in range(3)]
    torch._foreach_copy_(copies, [x[0], x[1], x[2]])
    torch._foreach_zero_(copies[:1])
    keep += copies
    keep += [p.detach() for p in model.parameters()]
    return keep
