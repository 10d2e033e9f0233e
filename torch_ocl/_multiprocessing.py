"""Tensors on `ocl` don't travel between processes: OpenCL shares no memory among them.

Torch's own reducers would try to share the storage as if it were the CPU's.
"""

import functools
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions


def install() -> None:
    """Makes sending such tensors an error that says what to do, and is_shared() False for them."""
    for kind, reduce in (
        (torch.Tensor, reductions.reduce_tensor),
        (torch.nn.Parameter, reductions.reduce_tensor),
        (torch.UntypedStorage, reductions.reduce_storage),
        (torch.TypedStorage, reductions.reduce_typed_storage),
    ):
        reduction.register(kind, _refusing(reduce))
    torch.UntypedStorage.is_shared = _false_on_ocl(torch.UntypedStorage.is_shared)


def _refusing(reduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def wrapper(sent: Any) -> Any:
        # Asking a TypedStorage itself warns.
        if getattr(sent, "_untyped_storage", sent).device.type == "ocl":
            raise RuntimeError(
                "a tensor on ocl can't be sent to another process: OpenCL shares no memory among "
                "processes. Send it as a CPU tensor, tensor.cpu()."
            )
        return reduce(sent)

    return wrapper


def _false_on_ocl(is_shared: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(is_shared)
    def wrapper(self: torch.UntypedStorage) -> bool:
        return self.device.type != "ocl" and is_shared(self)

    return wrapper
