"""A small sample of each kernel family, for a run under a memory and race checker:

    oclgrind --data-races --uninitialized --log oclgrind.log python tests/memory_checker/sample.py

`make check-memory` runs it and fails if the log is not empty. Shapes are odd so that tails are hit.
"""

import torch
from torch import nn


def main():
    print("device:", torch.ocl.get_device_name(0))
    torch.manual_seed(0)
    x = torch.randn(7, 37).to("ocl")
    y = torch.randn(37).to("ocl")
    keep = []

    # Pointwise: contiguous, row and strided access, mixed dtypes, host scalars, conversions.
    keep += [x + x, x * y, x.t() + x.t(), x[:, ::3] * 2, x + x.half(), torch.where(x > 0, x, y)]
    keep += [x.exp(), x.bfloat16() + 1, x.to(torch.int8), (x > 0) & (x < 1), x.clamp(-1, 1)]
    # Reductions: rows, columns, everything, arguments, moments.
    keep += [x.sum(), x.sum(0), x.sum(1), x.mean(), x.max(), x.argmax(1), x.var(0), x.norm()]
    keep += [(x > 0).any(), x.prod(1), x.max(0)[1], torch.randn(5000).to("ocl").sum()]
    keep += [x.softmax(1), x.log_softmax(0)]
    # Normalisation: rows, runs, planes and columns, forward and backward.
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
    # Windows and resamplings, of planes and of channels last, forward and backward.
    for given in (images, images.contiguous(memory_format=torch.channels_last)):
        leaf = given.detach().requires_grad_()
        pooled, where = nn.functional.max_pool2d(leaf, 3, 2, 1, return_indices=True)
        random = torch.rand(3, 6, 2).to("ocl")
        turned = torch.eye(2, 3).expand(3, 2, 3).to("ocl") * 1.2
        looks = nn.functional.affine_grid(turned, (3, 6, 4, 5), align_corners=False)
        for result in (
            nn.functional.pad(leaf, (2, 1, 3, 0), "reflect"),
            nn.functional.pad(leaf, (2, 1, 3, 0), "replicate"),
            pooled,
            nn.functional.max_unpool2d(pooled, where, 3, 2, 1, output_size=(5, 7)),
            nn.functional.avg_pool2d(leaf, 2, ceil_mode=True),
            nn.functional.adaptive_avg_pool2d(leaf, (2, 3)),
            nn.functional.adaptive_max_pool2d(leaf, 3),
            nn.functional.fractional_max_pool2d(leaf, 2, 3, _random_samples=random),
            nn.functional.interpolate(leaf, size=(8, 4)),
            nn.functional.interpolate(leaf, size=(8, 4), mode="bilinear"),
            nn.functional.interpolate(leaf, size=(8, 4), mode="bicubic"),
            nn.functional.interpolate(leaf, size=(3, 9), mode="bilinear", antialias=True),
            nn.functional.unfold(leaf, (2, 3), padding=1),
            nn.functional.fold(leaf.reshape(3, 6, 35), (6, 9), (2, 3)),
            nn.functional.grid_sample(leaf, looks, align_corners=False),
        ):
            (gradient,) = torch.autograd.grad(result.pow(2).sum(), leaf, retain_graph=True)
            keep += [result.detach(), gradient]
    # Rows and channels of several vectors.
    long = torch.randn(2, 18, 3, 39).to("ocl")
    for given in (long, long.contiguous(memory_format=torch.channels_last)):
        leaf = given.detach().requires_grad_()
        for result in (
            nn.functional.pad(leaf, (4, 3, 1, 2), "reflect"),
            nn.functional.pad(leaf, (4, -3, 1, 0), "replicate"),
            nn.functional.max_pool2d(leaf, 3, 2, 1),
            nn.functional.avg_pool2d(leaf, 2),
            nn.functional.adaptive_avg_pool2d(leaf, (2, 5)),
            nn.functional.interpolate(leaf, scale_factor=2),
            nn.functional.fold(nn.functional.unfold(leaf, 3, padding=1), (3, 39), 3, padding=1),
        ):
            keep += torch.autograd.grad(result.square().sum(), leaf)
    pixels = (images.abs() * 60).to(torch.uint8)
    keep.append(nn.functional.interpolate(pixels, size=(9, 4), mode="bicubic"))
    # Matrix products.
    a, b = torch.randn(13, 21).to("ocl"), torch.randn(21, 35).to("ocl")
    keep += [
        a @ b,
        b.t() @ a.t(),
        a @ b[:, 0],
        torch.randn(3, 5, 7).to("ocl") @ b[:7],
        a.half() @ b.half(),
        torch.addmm(b[0].double(), a.double(), b.double()),
        torch.randn(36, 40).to("ocl") @ torch.randn(44, 40).to("ocl").t(),
        torch.randn(40, 36).to("ocl").t() @ torch.randn(40, 44).to("ocl"),
    ]
    keep.append(torch.ocl.pack_weights(nn.Linear(37, 35).to("ocl"))(x.detach()))
    # Linear algebra: blocks, panels and what the recursion does around them.
    square = torch.randn(2, 37, 37)
    square = (square @ square.mT + 37 * torch.eye(37)).to("ocl")
    lower, lu = torch.linalg.cholesky(square), torch.linalg.lu_factor(square[:, :, :19])
    keep += [lower, lu[0], torch.linalg.lu(square)[0], torch.linalg.qr(square[:, :, :19])[0]]
    keep += [torch.linalg.solve(square, x.mT), torch.linalg.inv(square[:, :3, :3].cfloat()).real]
    keep += [torch.cdist(x, x), torch.pdist(x, 1), torch.linalg.cross(x[:, :3], x[:, 3:6])]
    keep += [torch.matrix_exp(square[:, :3, :3] / 99), x.renorm(2, 0, 1)]
    # Eigenvalues, singular values, blocks of one and two rows of LDL factors.
    small = square[:, :19, :19].clone()
    small.diagonal(0, 1, 2).zero_()
    keep += [*torch.linalg.eigh(small), *map(abs, torch.linalg.svd(small[:, :, :17].cfloat()))]
    keep.append(torch.linalg.ldl_solve(*torch.linalg.ldl_factor(small), small))
    # Recurrent networks: whole layers with and without whole vectors, cells.
    for network in (nn.LSTM(5, 32), nn.LSTM(5, 7, bidirectional=True), nn.GRU(5, 19)):
        leaf = torch.randn(2, 6, 5).to("ocl").requires_grad_()
        network.to("ocl")(leaf)[0].pow(2).sum().backward()
        keep += [leaf.grad, *(p.grad for p in network.parameters())]
    # Quantised weights, float8.
    rows = torch.randn(11, 64).to("ocl")
    bits = torch.randint(0, 16, (16, 64), dtype=torch.int32).to("ocl")
    packed = torch._convert_weight_to_int4pack_for_cpu(bits, 1)
    scales = torch.rand(2, 16, 2).to("ocl")
    for count in (1, 3, 11):
        keep.append(torch._weight_int4pack_mm_for_cpu(rows[:count], packed, 32, scales))
    keep.append(torch._weight_int8pack_mm(rows, bits.char(), scales[0, :, 0].contiguous()))
    keep += [x.to(torch.float8_e4m3fn).float(), x.t().to(torch.float8_e5m2).eq(1)]
    # Index, shape and factories.
    index = torch.tensor([0, 3, 6, 3]).to("ocl")
    keep += [
        x.index_select(0, index),
        torch.cat([x, x], 1),
        x.tril(),
        torch.arange(10, device="ocl"),
    ]
    keep += [torch.eye(5, device="ocl"), torch.linspace(0, 1, 11, device="ocl")]
    weight = torch.randn(7, 9).to("ocl").requires_grad_()
    nn.functional.embedding(index, weight).sum().backward()
    keep.append(weight.grad)
    # Sorting: in local memory, in tiles, by rows; what is read off sorted rows.
    long_row = torch.randn(2, 4500).to("ocl")
    keep += [x.sort(0)[0], x.long().sort(1)[1], long_row.sort()[0], long_row.double().sort()[1]]
    keep += [
        x.topk(3)[0],
        x.median(1)[0],
        x.round().mode(1)[0],
        x.long().unique(return_counts=True)[1],
    ]
    keep += [x.long()[:, :2].unique(dim=0), torch.isin(index, index[:2])]
    # Duplicate indices, and positions.
    twice = torch.tensor([[1, 1, 0, 1, 5], [2, 2, 2, 2, 2]]).to("ocl")
    filled = x.clone().scatter_add_(0, twice, torch.ones(2, 5, device="ocl"))
    keep += [filled, filled.scatter(1, twice, 3.0), (x > 0).nonzero(), x[x > 1]]
    keep.append(torch.embedding_renorm_(weight.detach().clone(), index, 1.0, 2.0))
    keep += [
        filled.index_put((index, index), y[:4], accumulate=True),
        filled.index_put((index,), y, accumulate=False),
        x.scatter_reduce(1, twice, x[:2, :5], "amax"),
        x.long().index_add(0, index, x[:4].long()),
        # More of them are sorted on GPUs.
        x.index_add(1, torch.arange(80).to("ocl") % 37, torch.ones(7, 80, device="ocl")),
        x.scatter_add(0, torch.arange(7 * 37).view(7, 37).to("ocl") % 7, x),
    ]
    # Complex numbers, integer division (which checks divisors), losses that check probabilities.
    c = torch.randn(7, 37, dtype=torch.complex64).to("ocl")
    keep += [(c * c.conj()).real, c.abs(), torch.view_as_real(c.exp() + c.t().mT / x), (c * 2).imag]
    keep += [x.long() // (y.long() + 9), x.int().t() % 3, 17 % (x.long() + 9)]
    keep.append(nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid().expand(7, 37)))
    # Losses with a loop of their own, bags of embeddings, segments, fake quantisation.
    scores = torch.randn(7, 37).to("ocl").requires_grad_()
    several = torch.randint(0, 37, (7, 37)).to("ocl")
    several[:, 3:] = -1
    functional = nn.functional
    for loss in (
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
    # Fourier transforms: radices of their own and others, several steps, Bluestein's; along lines
    # and across them, of complex numbers, reals and half spectra.
    keep += [torch.fft.fft(c).real, torch.fft.ifft(c, 30, 0).imag, torch.fft.fft(c, 67).abs()]
    keep += [torch.fft.rfft(x, 30).real, torch.fft.rfft(x, 15, 0).imag, torch.fft.fft(x, 30).real]
    keep += [torch.fft.fft(c, 64).real, torch.fft.fft(c, 210, 0).real, torch.fft.irfft(c, 1018)]
    keep += [torch.fft.irfft(c, 60), torch.fft.irfft(c, 7, 0), torch.fft.irfft2(c)]
    keep.append(torch.fft.rfft(torch.randn(2, 4200).to("ocl")).real)
    keep.append(torch.fft.irfft(torch.randn(2101, dtype=torch.complex64).to("ocl"), 4200))
    # Attention: blocks of queries, grouped heads, a mask, dropout; forward and backward.
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
    # Random.
    weights = torch.rand(3, 7).to("ocl")
    keep += [torch.multinomial(weights, 5), torch.multinomial(weights, 9, True)]
    keep += [torch.bernoulli(weights.half()), torch.randperm(21, device="ocl")]
    keep += [torch.rand(33, device="ocl"), torch.randn(33, device="ocl"), nn.functional.dropout(x)]
    shapes = torch.rand(5, 7).to("ocl") * 20
    gamma = torch._standard_gamma(shapes)
    keep += [gamma, torch._standard_gamma_grad(shapes, gamma), torch._sample_dirichlet(shapes)]
    keep += [torch.poisson(shapes), torch.binomial(shapes.round(), shapes / 21)]
    keep += [torch.randint(0, 9, (17,), device="ocl"), torch.empty(9, device="ocl").exponential_()]
    # Convolutions.
    image, taps = torch.randn(2, 6, 7, 9).to("ocl"), torch.randn(9, 6, 3, 2).to("ocl")
    for leaf in (image, taps):
        leaf.requires_grad_()
    for out in (
        nn.functional.conv2d(image, taps, padding=1, stride=2),
        nn.functional.conv_transpose2d(image, taps.view(6, 9, 3, 2), stride=(2, 1)),
        nn.functional.conv2d(image, taps[:6, :1], groups=6, padding=1),
        nn.functional.conv2d(image, taps[:6, :1], groups=6, padding=1, dilation=2),
    ):
        keep += torch.autograd.grad(out.sum(), (image, taps))
    # Few channels, and a stride.
    high, lines = torch.randn(1, 2, 48, 47).to("ocl"), torch.randn(2, 1, 3, 2).to("ocl")
    options = {"stride": (2, 1), "padding": (1, 0), "output_padding": (1, 0)}
    keep.append(nn.functional.conv_transpose2d(high, lines, **options))
    # Few windows of many channels.
    few, many = torch.randn(2, 40, 4, 3).to("ocl"), torch.randn(90, 40, 3, 3).to("ocl")
    for leaf in (few, many):
        leaf.requires_grad_()
    out = nn.functional.conv2d(few, many, padding=1)
    keep += torch.autograd.grad(out.sum(), (few, many))
    # Depthwise ones: planes, and channels last.
    wide = torch.randn(2, 6, 5, 20).to("ocl")
    for given in (image.detach(), wide, wide.contiguous(memory_format=torch.channels_last)):
        leaf = given.detach().requires_grad_()
        for stride, padding in ((1, 1), (2, 1), (2, 0)):
            out = nn.functional.conv2d(leaf, taps[:6, :1], groups=6, stride=stride, padding=padding)
            keep += torch.autograd.grad(out.square().sum(), (leaf, taps))
    # Small planes of many channels.
    small, window = torch.randn(2, 40, 5, 7).to("ocl"), torch.randn(40, 1, 3, 3).to("ocl")
    for leaf in (small, window):
        leaf.requires_grad_()
    for stride in (1, 2):
        out = nn.functional.conv2d(small, window, groups=40, padding=1, stride=stride)
        keep += torch.autograd.grad(out.square().sum(), (small, window))
    # A training step.
    model = nn.Sequential(nn.Linear(37, 19), nn.ReLU(), nn.Linear(19, 5)).to("ocl")
    optimiser = torch.optim.Adam(model.parameters())
    target = torch.tensor([0, 1, 2, 3, 4, 0, 1]).to("ocl")
    nn.functional.cross_entropy(model(x), target).backward()
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
        scaler.scale(nn.functional.cross_entropy(model(x), target)).backward()
        scaler.step(fused)
        scaler.update()
    # A list that is longer than a kernel's parameters.
    keep += torch._foreach_addcmul([x[0]] * 40, [x[1]] * 40, [x[2]] * 40, value=0.5)
    keep += [p.detach() for p in model.parameters()]
    total = sum(float(t.cpu().float().sum()) for t in keep)
    torch.ocl.synchronize()
    print("checksum:", total)


if __name__ == "__main__":
    main()
