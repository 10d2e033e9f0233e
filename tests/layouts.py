"""Views of a tensor in several memory layouts, and their like on the device."""

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
    """The same view of a copy on the device: `to` alone would make it contiguous."""
    storage = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return storage.to("ocl").as_strided(x.size(), x.stride(), x.storage_offset())
