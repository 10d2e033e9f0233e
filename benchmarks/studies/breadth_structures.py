"""The study `breadth`: ops that move, look up, sort and transform, and layers."""

import torch
from torch.nn import functional

from benchmarks.studies.breadth_elements import gradient
from benchmarks.studies.breadth_samples import add, functions, randn

for dim in (0, 1):
    add(f"flip, dim {dim}", lambda t, d=dim: t.flip(d), "square")
    add(f"roll, dim {dim}", lambda t, d=dim: t.roll(77, d), "square")
    add(f"cat, dim {dim}", lambda a, b, d=dim: torch.cat([a, b], d), "square positive")
    add(f"stack, dim {dim}", lambda a, b, d=dim: torch.stack([a, b], d), "square positive")
    add(f"repeat_interleave, dim {dim}", lambda t, d=dim: t.repeat_interleave(2, d), "table")
    add(f"index_select, dim {dim}", lambda t, i, d=dim: t.index_select(d, i), "square rows")
    add(f"gather, dim {dim}", lambda t, i, d=dim: t.gather(d, i), "square places")
    add(f"scatter, dim {dim}", lambda t, i, d=dim: t.scatter(d, i, 1.5), "square places")
    add(f"index_fill, dim {dim}", lambda t, i, d=dim: t.index_fill(d, i, 1.5), "square rows")
    for op in ("scatter_add", "index_add", "index_copy"):
        add(
            f"{op}, dim {dim}",
            lambda t, i, v, f=op, d=dim: getattr(t, f)(d, i, v),
            "square places positive" if op == "scatter_add" else "square order positive",
        )
    for op, inputs in (
        ("scatter_reduce", "square places positive"),
        ("index_reduce", "square rows positive"),
    ):
        add(
            f"{op}, dim {dim}",
            lambda t, i, v, f=op, d=dim: getattr(t, f)(d, i, v, "amax"),
            inputs,
        )
gradient("gather, dim 1")
functions("tril triu trace rot90", "square")
add("index rows", lambda t, i: t[i], "square rows")
add("index columns", lambda t, i: t[:, i], "square rows")
add("index by two", lambda t, i, j: t[i, j], "square places other_places")
add("index by a mask", lambda t, mask: t[mask], "x mask")
add("index_put", lambda t, i, v: t.clone().index_put_((i,), v), "square order positive")
add(
    "index_put, accumulate",
    lambda t, i, v: t.clone().index_put_((i,), v, accumulate=True),
    "square rows positive",
)
add(
    "index_put by two, accumulate",
    lambda t, i, j, v: t.clone().index_put_((i, j), v, accumulate=True),
    "square places other_places positive",
)
add("take", torch.take, "square places")
add("masked_scatter", lambda t, mask, v: t.masked_scatter(mask, v), "x mask y")
functions("nonzero", "mask")
add("diag_embed", torch.diag_embed, "vector")
functions("vander", "vector")
add("tile", lambda t: t.tile(2, 2), "table")
add("permute and copy", lambda t: t.permute(2, 0, 3, 1).contiguous(), "images")
add("unfold and copy", lambda t: t.unfold(1, 16, 4).contiguous(), "table")
add("one_hot", lambda t: functional.one_hot(t % 100, 100), "classes")
add("combinations", lambda t: torch.combinations(t[:800]), "vector")
add("block_diag", lambda t: torch.block_diag(t, t), "table")
add("fftshift", torch.fft.fftshift, "square")

add("sort", lambda t: t.sort().values, "long")
add("sort, dim 0", lambda t: t.sort(0).values, "table")
add("sort, dim 1", lambda t: t.sort(1).values, "table")
add("sort of int64", lambda t: t.sort().values, "long_int")
add("topk of long rows", lambda t: t.topk(50), "logits")
add("topk of a vector", lambda t: t.topk(100), "x")
add("kthvalue", lambda t: t.kthvalue(100, 1).values, "table")
add("median of rows", lambda t: t.median(1).values, "table")
add("mode", lambda t: (t * 5).round().mode(1).values, "table")
functions("quantile nanquantile", "table bounds", differs=False)
add("unique", torch.unique, "long_int")
add("unique with inverse", lambda t: torch.unique(t, return_inverse=True), "long_int")
functions("unique_consecutive", "int64")
add("isin", lambda t: torch.isin(t, t[:1000]), "long_int")
functions("searchsorted", "sorted y")
functions("bucketize", "y bounds")
add("histc", lambda t: torch.histc(t, 100, 0, 1), "share")
functions("bincount", "int64")
add("bincount, weights", torch.bincount, "int64 y")
add("argmax of long rows", lambda t: t.argmax(1), "logits")
add("segment_reduce", lambda t: torch.segment_reduce(
    t, "max", lengths=torch.ones(2048, dtype=torch.long, device=t.device)), "square")  # fmt: skip

for op in "cholesky inv det qr eigvalsh svdvals".split():
    add(f"linalg.{op}, 64 of 64", getattr(torch.linalg, op), "spd", op == "qr")
    if op not in ("eigvalsh", "svdvals"):
        add(f"linalg.{op}, 512", getattr(torch.linalg, op), "spd_512", op in ("qr", "det"))
add("linalg.eigh, 64 of 64", torch.linalg.eigh, "spd", differs=True)
add("linalg.svd, 64 of 64", torch.linalg.svd, "batch", differs=True)
add("linalg.solve, 64 of 64", torch.linalg.solve, "spd batch")
add("linalg.solve, 512", torch.linalg.solve, "matrix_512 spd_512")
add("linalg.lu, 64 of 64", torch.linalg.lu, "spd")
add("linalg.lstsq", lambda a, b: torch.linalg.lstsq(a, b).solution, "tall tall_right")
add("linalg.pinv", lambda t: torch.linalg.pinv(t[:200]), "tall")
add("linalg.matrix_exp", lambda t: torch.linalg.matrix_exp(t / 8), "batch")
add("linalg.cross", lambda t: torch.linalg.cross(t, t.flip(1)), "triples")
add(
    "linalg.solve_triangular",
    lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
    "upper table",
)
functions("outer", "vector vector")
functions("addr", "square vector vector")
functions("mv", "square vector")
functions("baddbmm", "batch batch batch")
add("mm of int64", lambda t: t[:65536].view(256, 256) @ t[:65536].view(256, 256), "small")
add("cdist", lambda t: torch.cdist(t, t + 1), "points")
add("cdist, p = 1", lambda t: torch.cdist(t, t + 1, p=1), "points")
add("pdist", functional.pdist, "points")
add("cosine_similarity", lambda a, b: functional.cosine_similarity(a, b, 1), "square positive")
functions("normalize", "square", functional)
add("renorm", lambda t: t.renorm(2, 0, 1.0), "square")
functions("cov corrcoef", "table")

functions("cross_entropy nll_loss", "square rows", functional)
add("multi_margin_loss", lambda t, i: functional.multi_margin_loss(t[:, :100], i), "table classes")
add("ctc_loss", lambda t: functional.ctc_loss(
    t, torch.ones(16, 20, dtype=torch.long, device=t.device), (100,) * 16, (20,) * 16),
    "speech")  # fmt: skip
gradient("ctc_loss")
add("batch_norm", lambda t: functional.batch_norm(t, None, None, training=True), "images")
gradient("batch_norm")
functions("instance_norm", "images", functional)
add("group_norm", lambda t: functional.group_norm(t, 8), "images")
gradient("group_norm")
add("layer_norm", lambda t: functional.layer_norm(t, (2048,)), "square")
add("rms_norm", lambda t: functional.rms_norm(t, (2048,)), "square")
add("local_response_norm", lambda t: functional.local_response_norm(t, 5), "images")
add("max_pool1d", lambda t: functional.max_pool1d(t, 3, 2), "signals")
for op in ("avg_pool3d", "max_pool3d"):
    add(op, lambda t, f=op: getattr(functional, f)(t, 2), "volumes")
    gradient(op)
add("lp_pool2d", lambda t: functional.lp_pool2d(t, 2, 2), "images")
add("adaptive_max_pool2d", lambda t: functional.adaptive_max_pool2d(t, 7), "images")
for mode in ("constant", "replicate", "circular"):
    add(f"pad, {mode}", lambda t, m=mode: functional.pad(t, (2, 2, 2, 2), mode=m), "images")
add("pixel_shuffle", lambda t: functional.pixel_shuffle(t, 2), "images")
add("pixel_unshuffle", lambda t: functional.pixel_unshuffle(t, 2), "images")
add("channel_shuffle", lambda t: functional.channel_shuffle(t, 4), "images")
add(
    "trilinear x2",
    lambda t: functional.interpolate(t, scale_factor=2, mode="trilinear"),
    "volumes",
)
add("conv1d 3", lambda t: functional.conv1d(t, weight(t, 64, 64, 3), padding=1), "signals")
add("conv3d 3", lambda t: functional.conv3d(t, weight(t, 32, 16, 3, 3, 3), padding=1), "volumes")
for layout in ("images", "images_last"):
    add(
        f"conv2d 3, 8 groups, {layout}",
        lambda t: functional.conv2d(t, weight(t, 64, 8, 3, 3), padding=1, groups=8),
        layout,
    )
    add(
        f"conv2d 3, dilation 2, {layout}",
        lambda t: functional.conv2d(t, weight(t, 64, 64, 3, 3), padding=2, dilation=2),
        layout,
    )
    add(
        f"conv_transpose2d 4, stride 2, {layout}",
        lambda t: functional.conv_transpose2d(t, weight(t, 64, 32, 4, 4), stride=2, padding=1),
        layout,
    )
functions("embedding_bag", "bags square", functional)
add("embedding_bag of weights", lambda w, i: functional.embedding_bag(i, w), "square bags")
gradient("embedding_bag of weights")
functions("fft ifft", "table", torch.fft, "fft.")
add("fft.fftn", torch.fft.fftn, "volumes")
add("stft", lambda t: torch.stft(
    t, 512, window=torch.ones(512, device=t.device), return_complex=True), "long")  # fmt: skip

_weights = {}


def weight(tensor, *shape):
    """A convolution's weight beside `tensor`; made once."""
    key = tensor.device, shape
    if key not in _weights:
        _weights[key] = (randn(*shape) / 16).to(tensor.device)
    return _weights[key]
