"""A warning for processes of one launch that train separate models.

torchrun starts several and sets WORLD_SIZE. Libraries choose how processes work together from lists
of devices that they know; on any other each trains alone, in silence. Some make a process group all
the same, and don't use it.
"""

import os
import warnings
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def install() -> None:
    """Nothing in a process that is the only one."""
    size = os.environ.get("WORLD_SIZE", "1")
    if not size.isdecimal() or int(size) < 2:
        return

    looked = False

    # It stays registered: upstream goes through all hooks, and none may leave meanwhile.
    def check(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal looked
        if looked:
            return
        if any(p.device.type == "ocl" for group in optimizer.param_groups for p in group["params"]):
            looked = True
            if not torch.distributed.is_initialized():
                _warn(size, "is in no process group")
                return
            from torch_ocl.upstream.distributed import process_groups

            if process_groups.are_unused():
                _warn(size, "has made no call to another yet")

    register_optimizer_step_post_hook(check)


def _warn(size: str, what: str) -> None:
    warnings.warn(
        f"WORLD_SIZE is {size}, but this process trains on ocl and {what}: unless they meet "
        "later, each of the processes trains a model of its own. Call "
        "torch.distributed.init_process_group() and wrap the model in "
        "DistributedDataParallel. docs/user/distributed.md says what to set "
        "for transformers' Trainer and accelerate.",
        stacklevel=3,
    )
