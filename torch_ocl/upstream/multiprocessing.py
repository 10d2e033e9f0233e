"""Tensors on `ocl` don't travel between processes: OpenCL shares no memory among them.

Torch's own reducers would try to share the storage as if it were the CPU's.
"""

import functools
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.utils import _pytree
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch


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
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        fetcher.fetch = _refusing_in_workers(fetcher.fetch)


_REASON = (
    "a tensor on ocl can't be sent to another process: OpenCL shares no memory among processes. "
    "Send it as a CPU tensor, tensor.cpu()."
)


def _refusing_in_workers(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """A DataLoader's worker puts its batch into a queue, whose thread could only print the error:
    the loader would wait for ever."""

    @functools.wraps(upstream)
    def wrapper(self: Any, possibly_batched_index: Any) -> Any:
        batch = upstream(self, possibly_batched_index)
        if get_worker_info() is not None:
            for value in _pytree.tree_leaves(batch):
                if isinstance(value, torch.Tensor) and value.device.type == "ocl":
                    raise RuntimeError(_REASON)
        return batch

    return wrapper


def _refusing(reduce: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def wrapper(sent: Any) -> Any:
        # Asking a TypedStorage itself warns.
        if getattr(sent, "_untyped_storage", sent).device.type == "ocl":
            raise RuntimeError(_REASON)
        return reduce(sent)

    return wrapper


def _false_on_ocl(is_shared: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(is_shared)
    def wrapper(self: torch.UntypedStorage) -> bool:
        return self.device.type != "ocl" and is_shared(self)

    return wrapper
