"""torch.ocl.amp: torch.amp with `ocl` as its device, under the names of torch.cuda.amp."""

import functools
from typing import Any

import torch

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast_mode.autocast):
    """torch.autocast("ocl").

    Args:
        enabled: whether it does anything.
        dtype: torch.float16 or torch.bfloat16.
        cache_enabled: whether a parameter is converted once in the block.
    """

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("ocl", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("ocl"); its arguments are the same."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            "ocl",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )


def custom_fwd(fwd: Any = None, *, cast_inputs: torch.dtype | None = None) -> Any:
    """torch.amp.custom_fwd(device_type="ocl"), for the forward() of an autograd function."""
    return functools.partial(torch.amp.custom_fwd, device_type="ocl")(
        fwd=fwd, cast_inputs=cast_inputs
    )


def custom_bwd(bwd: Any) -> Any:
    """torch.amp.custom_bwd(device_type="ocl"), for its backward()."""
    return torch.amp.custom_bwd(bwd, device_type="ocl")
