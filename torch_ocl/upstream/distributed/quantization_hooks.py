"""DistributedDataParallel's hooks that send gradients as bytes, on `ocl`.

Upstream's index the result of all_gather's future as NCCL has it, one tensor with a row for each
rank. Gloo's has a tensor for each rank, so they raise an IndexError on the CPU, too. They also call
all_gather in a callback. NCCL runs it in the caller's thread at once; gloo would run it in one of
its own, where calls of several buckets take any order."""

from types import ModuleType
from typing import Any

import torch


def change_hooks(module: ModuleType) -> None:
    """`module` is upstream's, with both hooks."""
    module.dist = _Distributed(module.dist)


class _Gathered:
    """The work of an all_gather that has ended, with a future as NCCL's."""

    def __init__(self, outputs: list[torch.Tensor]) -> None:
        self.outputs = outputs

    def get_future(self) -> torch.futures.Future:
        future: torch.futures.Future = torch.futures.Future()
        future.set_result([torch.stack(self.outputs)])
        return future


class _Distributed:
    """torch.distributed as the hooks' module sees it."""

    def __init__(self, upstream: ModuleType) -> None:
        self._upstream = upstream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._upstream, name)

    def all_gather(self, outputs: list[torch.Tensor], tensor: torch.Tensor, **options: Any) -> Any:
        if tensor.device.type != "ocl":
            return self._upstream.all_gather(outputs, tensor, **options)
        self._upstream.all_gather(outputs, tensor, group=options.get("group"))
        return _Gathered(outputs)


#: Modules of torch, each with what changes it once it is imported.
PATCHES = {"torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks": change_hooks}
