"""Gloo's process groups know nothing of `ocl` tensors: an error instead of a crash.

Some of gloo's calls look at no device and read a tensor's address, which on `ocl` is only reserved.
Collectives go by the device to the backend that a group has for it, so gloo must not be registered
for `ocl`; a backend's own methods are guarded one by one. What a group without a backend for `ocl`
says is in csrc/ops/Collectives.cpp.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import distributed_c10d
from torch.utils import _pytree

_METHODS = (
    "_allgather_base",
    "_reduce_scatter_base",
    "allgather",
    "allgather_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
)
_ADVICE = (
    "gloo takes no ocl tensors. Send them as CPU tensors, tensor.cpu(), in a group of the backend "
    '"gloo" or "cpu:gloo".'
)


def install() -> None:
    """Nothing where torch was built without gloo."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return
    group, gloo = distributed_c10d.ProcessGroup, distributed_c10d.ProcessGroupGloo
    group._register_backend = _not_gloo_for_ocl(group._register_backend)
    for name in ("_get_backend", "_start_coalescing"):
        setattr(group, name, _saying_what_to_do(getattr(group, name)))
    for name in _METHODS:
        setattr(gloo, name, _without_ocl_tensors(getattr(gloo, name)))


def _not_gloo_for_ocl(upstream: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(upstream)
    def _register_backend(
        self: Any, device: torch.device, backend_type: Any, *backend: Any
    ) -> None:
        if device.type == "ocl" and backend_type == distributed_c10d.ProcessGroup.BackendType.GLOO:
            raise RuntimeError(_ADVICE)
        upstream(self, device, backend_type, *backend)

    return _register_backend


def _saying_what_to_do(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """Of a group without a backend for `ocl`. Upstream names the device."""

    @functools.wraps(upstream)
    def method(self: Any, device: torch.device) -> Any:
        if device.type == "ocl" and all(known.type != "ocl" for known in self._device_types):
            raise RuntimeError(_ADVICE)
        return upstream(self, device)

    return method


def _without_ocl_tensors(upstream: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(upstream)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        for value in _pytree.tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor) and value.device.type == "ocl":
                raise RuntimeError(_ADVICE)
        return upstream(self, *args, **kwargs)

    return method
