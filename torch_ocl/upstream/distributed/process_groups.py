"""Process groups of gloo and NCCL take `ocl` tensors, in scripts that know nothing of `ocl`.

`init_process_group()`, `"gloo"` and `"cpu:gloo,ocl:gloo"` name gloo for `ocl`; this puts the
backend of csrc/distributed around that gloo as soon as a group is made, and loads it then. Gloo
itself, and groups for CPU tensors only ("cpu:gloo"), raise an error for `ocl` tensors: some of
gloo's calls look at no device and read a tensor's address, which on `ocl` is only reserved. What a
group without a backend for `ocl` says is in csrc/ops/Collectives.cpp. NCCL is named as nccl.py
says.
"""

import datetime
import functools
import os
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.distributed import distributed_c10d
from torch.utils import _pytree

from torch_ocl import _import_hook
from torch_ocl.upstream.distributed import (
    nccl,
    quantization_hooks,
    rpc,
    sharded_attention,
    sharded_random,
    symmetric_memory,
)

# Gloo's own calls, which Python code may make on a backend that it made or took out of a group.
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
    "gloo itself takes no ocl tensors. Make the group with init_process_group() or the backend "
    '"gloo" or "cpu:gloo,ocl:gloo", or send them as CPU tensors, tensor.cpu().'
)


def install() -> None:
    """Nothing where torch was built without gloo."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        return
    group, gloo = distributed_c10d.ProcessGroup, distributed_c10d.ProcessGroupGloo
    backends = distributed_c10d.Backend
    for name in ("gloo", "mpi", "ucc"):
        if "ocl" not in backends.backend_capability.get(name, ["ocl"]):
            backends.backend_capability[name].append("ocl")
    backends.default_device_backend_map.setdefault("ocl", "gloo")
    nccl.install()
    group._register_backend = _wrapping_for_ocl(group._register_backend)
    for name in ("_get_backend", "_start_coalescing"):
        setattr(group, name, _saying_what_to_do(getattr(group, name)))
    for name in _METHODS:
        setattr(gloo, name, _without_ocl_tensors(getattr(gloo, name)))
    _import_hook.after("torch.distributed.device_mesh", _sharing_devices)
    for changed in (
        quantization_hooks,
        rpc,
        sharded_attention,
        sharded_random,
        symmetric_memory,
    ):
        for name, change in changed.PATCHES.items():
            _import_hook.after(name, change)
    distributed_c10d._set_pg_timeout = _of_ours_too(distributed_c10d._set_pg_timeout)
    barrier = _taking_devices_by_turns(distributed_c10d.barrier)
    distributed_c10d.barrier = torch.distributed.barrier = barrier


def chunk_size() -> int:
    """Bytes of a chunk of large tensors: TORCH_OCL_DISTRIBUTED_CHUNK, the same in all processes."""
    text = os.environ.get("TORCH_OCL_DISTRIBUTED_CHUNK", "")
    if text.isdecimal() and int(text) < 2**63:
        return int(text)
    if text:
        warnings.warn(
            f"TORCH_OCL_DISTRIBUTED_CHUNK={text}: it is a number of bytes; ignored", stacklevel=2
        )
    from torch_ocl import _distributed

    return int(_distributed.USUAL_CHUNK)


def are_unused() -> bool:
    """Whether no group has been used for `ocl` tensors yet, though there are some that could be."""
    backends = [
        group._get_backend(device)
        for group in distributed_c10d._world.pg_map
        if isinstance(group, distributed_c10d.ProcessGroup)
        for device in group._device_types
        if device.type == "ocl"
    ]
    return bool(backends) and not any(getattr(backend, "calls", 1) for backend in backends)


def _wrapping_for_ocl(upstream: Callable[..., None]) -> Callable[..., None]:
    kinds = distributed_c10d.ProcessGroup.BackendType
    inner = (kinds.GLOO, kinds.MPI, kinds.UCC)

    @functools.wraps(upstream)
    def _register_backend(
        self: Any, device: torch.device, backend_type: Any, backend: Any = None
    ) -> None:
        if device.type == "ocl" and backend_type == kinds.NCCL and backend is not None:
            # Two backends of one type can't be in a group: CUDA's may be there.
            alone = all(other.type == "cpu" for other in self._device_types)
            upstream(self, device, kinds.NCCL if alone else kinds.CUSTOM, nccl.wrap(backend))
            return
        if device.type != "ocl" or backend_type not in inner or backend is None:
            upstream(self, device, backend_type, *([] if backend is None else [backend]))
            return
        if any(known.type == "ocl" for known in self._device_types):
            return  # where cuda means ocl, upstream registers for both
        from torch_ocl import _distributed

        wrapped = _distributed.wrap(backend, self.get_group_store(), chunk_size())
        upstream(self, device, kinds.CUSTOM, wrapped)
        # It becomes the one way to that backend, which numbers its calls: ranks with CPU tensors
        # and ranks with `ocl` tensors must make them in one order. So must those with CUDA's.
        for other in self._device_types:
            if other.type != "ocl" and self._get_backend(other) is backend:
                upstream(self, other, kinds.CUSTOM, wrapped)

    return _register_backend


def _sharing_devices(module: ModuleType) -> None:
    """A mesh makes the device of the local rank's number current. Where there are fewer devices,
    processes take them by turns: on a CPU there is often one for all."""
    kind = module.DeviceMesh
    upstream = kind._setup_world_group_and_device

    @functools.wraps(upstream)
    def _setup_world_group_and_device(self: Any) -> Any:
        rank = os.environ.get("LOCAL_RANK", "")
        if self._device_type == "ocl" and not torch.ocl.is_initialized() and rank.isdecimal():
            count = torch.ocl.device_count()
            if 0 < count <= int(rank):
                torch.ocl.set_device(int(rank) % count)
                torch.ocl.init()  # upstream takes it that the program has chosen
        return upstream(self)

    kind._setup_world_group_and_device = _setup_world_group_and_device


def _taking_devices_by_turns(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """Programs name the device of the local rank's number."""

    @functools.wraps(upstream)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        if device_ids and all(isinstance(index, int) for index in device_ids):
            of = distributed_c10d._get_default_group() if group is None else group
            if any(device.type == "ocl" for device in getattr(of, "_device_types", ())):
                count = max(torch.ocl.device_count(), 1)
                device_ids = [index % count for index in device_ids]
        return upstream(group=group, async_op=async_op, device_ids=device_ids)

    return barrier


def _saying_what_to_do(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """The error of a group without a backend for `ocl`. Upstream names the device."""

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


def _of_ours_too(upstream: Callable[..., None]) -> Callable[..., None]:
    """Upstream asks for the class of gloo, which is inside."""

    @functools.wraps(upstream)
    def _set_pg_timeout(timeout: datetime.timedelta, group: Any = None) -> None:
        group = distributed_c10d._get_default_group() if group is None else group
        ours = isinstance(group, distributed_c10d.ProcessGroup) and any(
            device.type == "ocl" for device in group._device_types
        )
        if not ours or distributed_c10d._rank_not_in_group(group):
            upstream(timeout, group)
            return
        distributed_c10d._check_valid_timeout(timeout)
        group._get_backend(torch.device("ocl"))._set_default_timeout(timeout)

    return _set_pg_timeout
