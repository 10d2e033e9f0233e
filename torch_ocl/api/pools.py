"""Pools of memory: allocations that are kept apart from others, and allocation by hand."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torch_ocl import _C
from torch_ocl.api.device_arguments import DeviceLike, existing_device_index

__all__ = [
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "use_mem_pool",
]


class MemPool:
    """Memory that is kept apart: tensors made within use_mem_pool() have segments of their own.

    What the pool has cached stays its own as long as the object lives, whatever empty_cache() and
    other allocations want. Its tensors may outlive it.

    Args:
        allocator: must be None, else NotImplementedError is raised: memory of OpenCL is no address
            that an allocator could return.
        use_on_oom: whether other allocations may take the pool's free memory before they fail.
        no_split: whether each tensor has a segment of its own.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        self._id = None
        if allocator is not None:
            raise NotImplementedError("pools of ocl devices have no allocators of their own")
        self._id = _C.new_memory_pool()
        _C.retain_pool(self._id)
        _C.set_pool_options(self._id, use_on_oom, no_split)

    def __del__(self) -> None:
        # At the end of the interpreter the module may be gone, and memory goes with the process.
        if self._id is not None and _C is not None:
            _C.release_pool(self._id)

    @property
    def id(self) -> tuple[int, int]:
        """Its name, which graphs take as `pool`, too."""
        return self._id

    @property
    def allocator(self) -> None:
        """None: its memory is the caching allocator's."""
        return None

    def use_count(self) -> int:
        """How many use it: this object, blocks of use_mem_pool() and graphs."""
        return _C.pool_users(self._id)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Its segments, as memory_snapshot() has them."""
        return torch.ocl.memory_snapshot(self._id, include_traces)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    """A context in which the calling thread's allocations on a device come from a pool.

    Other threads', as those of a backward pass, don't. Within a capture the graph's pool goes
    first.
    """
    index = existing_device_index(device)
    _C.retain_pool(pool.id)
    _C.begin_routing(index, pool.id)
    try:
        yield
    finally:
        _C.end_routing(index, pool.id)
        _C.release_pool(pool.id)


def caching_allocator_alloc(
    size: int, device: DeviceLike = None, stream: torch.Stream | int | None = None
) -> int:
    """Allocates memory that no tensor has, for caching_allocator_delete() to give back.

    Args:
        size: bytes.
        device: default the current one.
        stream: whose work uses it: a stream, or its `stream_id`; default the current one.

    Returns an address as tensors have in data_ptr(), 0 for 0 bytes. It stands for a place in a
    buffer; the host can't read it.
    """
    index = existing_device_index(device)
    if stream is None:
        stream = torch.ocl.current_stream(index)
    if isinstance(stream, torch.Stream):
        stream = stream.stream_id
    if not isinstance(stream, int):
        raise TypeError(f"expected a stream or its id, got {stream!r}")
    return _C.allocate_memory(index, size, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives memory of caching_allocator_alloc() back."""
    _C.release_memory(mem_ptr)


def caching_allocator_enable(value: bool = True) -> None:
    """Whether freed memory is kept for later allocations, as it is by default.

    Without it every tensor is a buffer of its own and every free waits for the device: slow, but
    tools that watch the driver's buffers see each tensor.
    """
    _C.set_caching(bool(value))


@contextlib.contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A context without caching, as caching_allocator_enable(False)."""
    before = _C.caching()
    _C.set_caching(False)
    try:
        yield
    finally:
        _C.set_caching(before)
