"""torch.nn.parallel's functions that use several devices of one process.

Their copies are functions of torch._C that only builds for CUDA have. Here they are made of copies
between tensors, for `ocl`. What is above them is upstream's: DataParallel, torch.cuda.comm.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._utils import (
    _flatten_dense_tensors,
    _reorder_tensors_as,
    _take_tensors,
    _unflatten_dense_tensors,
)

from torch_ocl.upstream.as_cuda import names as cuda_to_ocl

Tensors = Sequence[torch.Tensor]

_thread = threading.local()  # whether DataParallel's module is on `ocl`


def install() -> None:
    """Adds the copies, and has DataParallel take the devices that are meant."""
    for copy in (
        _broadcast,
        _broadcast_coalesced,
        _broadcast_out,
        _gather,
        _gather_out,
        _scatter,
        _scatter_out,
    ):
        if not hasattr(torch._C, copy.__name__):
            setattr(torch._C, copy.__name__, torch.no_grad()(copy))
    # The package's attributes of these names are functions.
    module = sys.modules["torch.nn.parallel.data_parallel"]
    _choose_devices(module)
    module.parallel_apply = _with_autocast(module.parallel_apply)
    torch.nn.parallel.parallel_apply = module.parallel_apply
    torch.cuda.nccl.is_available = _not_on_ocl(torch.cuda.nccl.is_available)


def _choose_devices(module: Any) -> None:
    """DataParallel takes the accelerator's devices. As without an accelerator it runs a module on
    the CPU as it is, unless "cuda" means `ocl`."""
    available = module._get_available_device_type

    @functools.wraps(available)
    def get_available_device_type() -> str | None:
        device_type = available()
        return None if device_type == "ocl" and not _is_meant() else device_type

    module._get_available_device_type = get_available_device_type
    module.DataParallel.__init__ = _meaning(module.DataParallel.__init__, 1)
    module.data_parallel = torch.nn.parallel.data_parallel = _meaning(module.data_parallel, 0)
    indices = module._get_all_device_indices

    @functools.wraps(indices)
    def get_all_device_indices() -> Any:
        found = indices()
        return _alike(found) if _is_meant() else found

    module._get_all_device_indices = get_all_device_indices


def _is_meant() -> bool:
    return getattr(_thread, "is_meant", False) or cuda_to_ocl._installed


def _alike(indices: Iterable[int]) -> list[int]:
    """The devices that are like the first one: not the CPU beside a GPU, nor the same CPU by
    another driver."""
    properties = {index: torch.ocl.get_device_properties(index) for index in indices}
    kinds = {index: (p.name, p.platform_name) for index, p in properties.items()}
    return [index for index, kind in kinds.items() if kind == next(iter(kinds.values()))]


def _meaning(upstream: Callable[..., Any], position: int) -> Callable[..., Any]:
    """The function, which has a module at that position, with `ocl` seen if the module is there."""

    @functools.wraps(upstream)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        module = args[position] if len(args) > position else kwargs.get("module")
        _thread.is_meant = isinstance(module, torch.nn.Module) and any(
            parameter.device.type == "ocl" for parameter in module.parameters()
        )
        try:
            return upstream(*args, **kwargs)
        finally:
            _thread.is_meant = False

    return wrapper


def _with_autocast(upstream: Callable[..., Any]) -> Callable[..., Any]:
    """A replica's thread has no autocast of its own, and upstream asks for CUDA's."""

    @functools.wraps(upstream)
    def parallel_apply(modules: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled("ocl"):
            modules = [_under_autocast(each, torch.get_autocast_dtype("ocl")) for each in modules]
        return upstream(modules, *args, **kwargs)

    return parallel_apply


def _under_autocast(module: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("ocl", dtype=dtype):
            return module(*args, **kwargs)

    return call


def _not_on_ocl(upstream: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Upstream warns that there is no NCCL, each time that gradients are added up."""

    @functools.wraps(upstream)
    def is_available(tensors: Any) -> bool:
        return all(tensor.device.type != "ocl" for tensor in tensors) and upstream(tensors)

    return is_available


def _device(index: int | None) -> torch.device:
    """A number is a device of the accelerator's, -1 the CPU, and nothing the current device."""
    if not torch.ocl.is_initialized() and not cuda_to_ocl._installed:
        raise RuntimeError("torch.nn.parallel copies between devices, and this program uses none")
    if index == -1:
        return torch.device("cpu")
    return torch.device("ocl", torch.ocl.current_device() if index is None else index)


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return [tensor.to(_device(index), non_blocking=True) for index in devices]


def _broadcast_out(tensor: torch.Tensor, out: Tensors) -> Tensors:
    for index, each in enumerate(out):
        if each.shape != tensor.shape:
            raise RuntimeError(
                "Expected all output tensors to have same shape as the source tensor "
                f"{tuple(tensor.shape)}, but output tensor at index {index} has {tuple(each.shape)}"
            )
        each.copy_(tensor, non_blocking=True)
    return out


def _broadcast_coalesced(
    tensors: Tensors, devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """The tensors on each device, copied by chunks. The first device has them already."""
    places = [_device(index) for index in devices]
    if any(tensor.device != places[0] for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
    made: list[list[torch.Tensor]] = [[] for _ in places[1:]]
    for chunk in _take_tensors(tensors, buffer_size):
        if chunk[0].is_sparse:
            for place, copies in zip(places[1:], made, strict=True):
                copies += [tensor.to(place) for tensor in chunk]
            continue
        flat = _flatten_dense_tensors(chunk)
        for place, copies in zip(places[1:], made, strict=True):
            moved = _unflatten_dense_tensors(flat.to(place, non_blocking=True), chunk)
            copies += [tensor.data for tensor in moved]  # each with a version of its own
    return [list(tensors), *(list(_reorder_tensors_as(copies, tensors)) for copies in made)]


def _on(streams: Sequence[Any] | None, index: int) -> contextlib.AbstractContextManager[Any]:
    stream = streams[index] if streams else None
    return torch.ocl.stream(stream) if stream is not None else contextlib.nullcontext()


def _scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[Any] | None,
) -> list[torch.Tensor]:
    parts = tensor.split(chunk_sizes, dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    if chunk_sizes and len(chunk_sizes) != len(devices):
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    scattered = []
    for number, (part, index) in enumerate(zip(parts, devices, strict=False)):
        with _on(streams, number):
            scattered.append(part.to(_device(index), non_blocking=True))
    return scattered


def _scatter_out(
    tensor: torch.Tensor, out: Tensors, dim: int, streams: Sequence[Any] | None
) -> Tensors:
    parts = tensor.split([each.size(dim) for each in out], dim)
    for number, (part, each) in enumerate(zip(parts, out, strict=True)):
        with _on(streams, number):
            each.copy_(part, non_blocking=True)
    return out


def _moved(tensors: Tensors, place: torch.device) -> list[torch.Tensor]:
    """The tensors on a device. A copy to the CPU is waited for."""
    if any(tensor.device.type == "cpu" for tensor in tensors):
        raise RuntimeError("Gather expects all inputs to be on devices, but one is on the CPU")
    return [tensor.to(place, non_blocking=place.type != "cpu") for tensor in tensors]


def _gather(tensors: Tensors, dim: int, destination: int | None) -> torch.Tensor:
    return torch.cat(_moved(tensors, _device(destination)), dim)


def _gather_out(tensors: Tensors, out: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.cat(_moved(tensors, out.device), dim, out=out)
