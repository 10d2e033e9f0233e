"""Views of a tensor in several memory layouts, and their like on the device."""

import math

import torch


def layouts(x):
    """Views of one 3-d tensor that walk memory differently; all but the first not contiguous."""
    yield "contiguous", x
    yield "transposed", x.transpose(0, -1)
    yield "permuted", x.permute(1, 2, 0)
    yield "sliced", torch.cat([x, x], -1)[..., ::2]
    yield "offset", torch.cat([x, x], 0)[1:, 1:, 1:]
    yield "expanded", x[:, :1].expand(-1, 6, -1)


def on_device(x):
    """The view of a copy on the device: `to` alone would make it contiguous."""
    storage = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return storage.to("ocl").as_strided(x.size(), x.stride(), x.storage_offset())


def dense_strides(sizes):
    """Strides of the dense layouts: contiguous, channels last, the last two dimensions swapped, all
    reversed. A dimension of size 1, whose stride says nothing, has the one that its place gives it,
    and in the first two also those that views leave there: 1, and a slice's of something longer.
    """
    whole = tuple(range(len(sizes)))
    orders = [whole]
    if len(sizes) in (4, 5):
        orders.append((0, *whole[2:], 1))
    orders += [(*whole[:-2], *whole[:-3:-1]), whole[::-1]]
    found = [_strides(sizes, order, None) for order in orders]
    if 1 in sizes:
        numel = math.prod(sizes)
        found += [_strides(sizes, order, single) for order in orders[:2] for single in (1, numel)]
    return list(dict.fromkeys(found))


def _strides(sizes, order, single):
    """Strides of dimensions that lie in memory in that order; `single` is that of sizes of 1."""
    strides, step = [0] * len(sizes), 1
    for d in reversed(order):
        strides[d] = single if sizes[d] == 1 and single is not None else step
        step *= sizes[d]
    return tuple(strides)


def laid_out(x, strides):
    """A copy with those strides, on the same device."""
    copy = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    return copy.copy_(x.detach()).requires_grad_(x.requires_grad)


def told_strides(x):
    """Those strides that say something: of dimensions with more than one element."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size != 1]
