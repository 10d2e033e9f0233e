"""clamp() of integers by a float that changes gives floats, as with one that doesn't.

A change of torch, for tensors on ocl alone. PyTorch 2.13 needs it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def install() -> None:
    """Has the bounds' types known to the decomposition: clamp() in torch/_inductor/decomposition.py
    promotes by Python's numbers, of which symbols aren't any."""
    from torch._inductor.decomposition import decompositions, fast_random_decomps

    fast_random_decomps.cache_clear()
    for op in (torch.ops.aten.clamp.default, torch.ops.aten.clamp.Tensor):
        decompositions[op] = _promoted(decompositions[op])


def _promoted(upstream: Any) -> Any:
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

    @functools.wraps(upstream)
    def clamp(x: torch.Tensor, min: Any = None, max: Any = None) -> torch.Tensor:  # noqa: A002
        if x.device.type == "ocl":
            bounds = [bound for bound in (min, max) if bound is not None]
            kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
            x = x.to(elementwise_dtypes(x, *bounds, type_promotion_kind=kind)[1])
        return upstream(x, min, max)  # type: ignore[no-any-return]

    return clamp
