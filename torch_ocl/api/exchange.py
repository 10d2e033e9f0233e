"""Memory and queues shared with PyOpenCL, without copies."""

import itertools
from typing import TYPE_CHECKING, Any

import torch

from torch_ocl import _C
from torch_ocl.api.device_arguments import DeviceLike, existing_device_index

if TYPE_CHECKING:
    import pyopencl
    import pyopencl.array

__all__ = ["from_pyopencl", "pyopencl_queue", "to_pyopencl"]


def _pyopencl() -> Any:
    try:
        import pyopencl.array
    except ImportError as error:
        raise ImportError(f"PyOpenCL is needed (pip install pyopencl): {error}") from error
    return pyopencl


def pyopencl_queue(device: DeviceLike = None) -> "pyopencl.CommandQueue":
    """The current stream of a device (default: the current one) as a PyOpenCL queue.

    Its `context` is that of the device's tensors. What PyOpenCL enqueues on it runs in order with
    the stream's ops, so that no waiting is needed between them.
    """
    cl = _pyopencl()
    return cl.CommandQueue.from_int_ptr(_C.shared_queue(existing_device_index(device)))


def to_pyopencl(tensor: torch.Tensor) -> "pyopencl.array.Array":
    """A PyOpenCL array of a tensor's memory, strides included; `data` is its buffer.

    The array's queue is pyopencl_queue(). Work that is enqueued on other queues must be waited for
    by hand. The memory lives as long as the tensor, or the buffer, or commands that use it.

    If the tensor's offset is not one that a buffer can have, `data` raises PyOpenCL's
    ArrayHasOffsetError; `base_data` and `offset` serve there.

    Raises TypeError for what is no strided `ocl` tensor of a dtype that NumPy has (bfloat16: pass
    x.view(torch.uint16)), ValueError for tensors without elements, since there are no empty
    buffers, and RuntimeError for tensors that require grad.
    """
    cl = _pyopencl()
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "ocl":
        what = tensor.device if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise TypeError(f"expected a tensor on an ocl device, got {what}")
    if tensor.requires_grad:
        raise RuntimeError("PyOpenCL knows no gradients: use to_pyopencl(tensor.detach())")
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_conj() or tensor.is_neg():
        raise TypeError("expected a strided tensor; resolve_conj() and resolve_neg() copy")
    try:
        dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    except TypeError:
        same_bytes = {1: "torch.uint8", 2: "torch.uint16", 4: "torch.uint32"}
        bits = same_bytes.get(tensor.element_size(), "an integer dtype")
        raise TypeError(
            f"NumPy and PyOpenCL have no {tensor.dtype}: pass tensor.view({bits}), whose elements "
            "are the same bytes"
        ) from None
    if tensor.numel() == 0:
        raise ValueError("a tensor without elements has no buffer")
    address, storage = tensor.data_ptr(), tensor.untyped_storage()
    nbytes = storage.data_ptr() + storage.nbytes() - address
    handle, offset = _C.export_memory(tensor.device.index, address, nbytes, storage)
    buffer = cl.Buffer.from_int_ptr(handle, retain=False)
    strides = tuple(stride * tensor.element_size() for stride in tensor.stride())
    queue = pyopencl_queue(tensor.device)
    return cl.array.Array(
        queue, tuple(tensor.shape), dtype, data=buffer, offset=offset, strides=strides
    )


def _device_of(buffer: Any) -> int:
    """The device whose context a buffer belongs to; the current one if there is none."""
    context, current = buffer.context.int_ptr, _C.current_device()
    others = (index for index in range(_C.device_count()) if index != current)
    for index in itertools.chain([current], others):
        if _C.context_handle(index) == context:
            return index
    return current


def from_pyopencl(source: "pyopencl.array.Array | pyopencl.Buffer") -> torch.Tensor:
    """A tensor of a PyOpenCL array's memory, or of a buffer's as uint8 (`.view(dtype)` follows).

    The buffer must belong to the context of torch.ocl.pyopencl_queue(). It, and memory of a pool,
    lives as long as the tensor does. What other queues than that one have under way on a buffer
    must be waited for by hand; for an array, the commands that it knows of are. A buffer that was
    made READ_ONLY must not be written.

    Raises ValueError for a buffer of another context, and for negative strides; TypeError for other
    objects, and for dtypes that torch lacks.
    """
    cl = _pyopencl()
    if isinstance(source, cl.array.Array):
        try:
            dtype = torch.from_numpy(_empty(source.dtype)).dtype
        except TypeError:
            raise TypeError(f"torch has no dtype for {source.dtype}") from None
        if source.size == 0:
            return torch.empty(source.shape, dtype=dtype, device="ocl")
        if any(stride < 0 for stride in source.strides):
            raise ValueError("torch has no tensors with negative strides")
        source.finish()
        memory = _memory(source.base_data)
        element = dtype.itemsize
        if source.offset % element or any(stride % element for stride in source.strides):
            raise ValueError(f"offset and strides must be multiples of {element} bytes, of {dtype}")
        memory = memory[: memory.numel() // element * element].view(dtype)
        strides = [stride // element for stride in source.strides]
        return memory.as_strided(source.shape, strides, source.offset // element)
    if isinstance(source, cl.Buffer):
        return _memory(source)
    raise TypeError(f"expected a pyopencl.array.Array or Buffer, got {type(source).__name__}")


def _empty(dtype: Any) -> Any:
    import numpy

    return numpy.empty(0, dtype)


def _memory(buffer: Any) -> torch.Tensor:
    if not hasattr(buffer, "int_ptr") or not hasattr(buffer, "context"):
        raise TypeError(f"expected memory of a buffer, got {type(buffer).__name__}")
    return _C.import_memory(_device_of(buffer), buffer.int_ptr, buffer)
