"""The op matrix's check of forward-mode automatic differentiation."""

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves


def tangents(call, sample, dtype):
    """The tangents of what `call(sample)` returns, for random ones of what requires a gradient.

    None stands for an output that doesn't depend on those; the whole is None without any. Tangents
    are numbers of `dtype` whatever the sample's dtype, as cotangents are in the backward check.
    """
    generator = torch.Generator().manual_seed(7)

    def dual(leaf):
        if not (isinstance(leaf, torch.Tensor) and leaf.requires_grad):
            return leaf
        tangent = torch.randn(leaf.shape, dtype=torch.float64, generator=generator)
        return forward_ad.make_dual(leaf.detach(), tangent.to(dtype).to(leaf))

    with forward_ad.dual_level():
        result = sample.output_process_fn_grad(call(sample.transform(dual)))
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        found = [forward_ad.unpack_dual(output).tangent for output in outputs]
        return found if any(tangent is not None for tangent in found) else None
