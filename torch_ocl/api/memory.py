"""Memory: statistics of the caching allocator, and control over it."""

import os
from typing import Any

import torch

from torch_ocl import _C
from torch_ocl.api.device_arguments import (
    DeviceLike,
    _get_device_index,
    begin_use,
    existing_device_index,
    is_unused,
)
from torch_ocl.api.pools import (  # noqa: F401
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    use_mem_pool,
)
from torch_ocl.api.snapshots import (  # noqa: F401
    _allocation_traceback,
    _attach_out_of_memory_observer,
    _dump_snapshot,
    _get_memory_metadata,
    _record_memory_history,
    _save_memory_usage,
    _save_segment_usage,
    _set_memory_metadata,
    _snapshot,
    memory_snapshot,
)

OutOfMemoryError = torch.OutOfMemoryError


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Statistics of a device's allocator, under the keys of torch.cuda.memory_stats:
    "<metric>.{all,small_pool,large_pool}.{current,peak,allocated,freed}" and event counts.

    Before the device is used they are all 0. Does not initialise OpenCL.
    """
    unused = is_unused(device)
    index = _get_device_index(device, optional=True) if unused else existing_device_index(device)
    return dict(sorted(_C.memory_stats(index).items()))


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        place = result
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return result


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """The statistics as dictionaries in each other: stats["allocated_bytes"]["all"]["current"]."""
    return _nested(memory_stats(device))


def host_memory_stats() -> dict[str, Any]:
    """Statistics of pinned host memory, under the keys of torch.cuda.host_memory_stats.

    "<metric>.{current,peak,allocated,freed}" of "allocations" and "allocated_bytes" (all that is
    pinned), "active_requests" and "active_bytes" (what tensors have), "num_host_alloc" and
    "num_host_free"; "host_alloc_time" and "host_free_time" are the driver's, in microseconds.
    """
    return dict(sorted(_C.host_memory_stats().items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """host_memory_stats() as dictionaries in each other."""
    return _nested(host_memory_stats())


def reset_accumulated_host_memory_stats() -> None:
    """Sets the totals of host_memory_stats() to 0."""
    if _C.is_initialized():
        _C.reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Sets the peaks of host_memory_stats() to what is in use now."""
    if _C.is_initialized():
        _C.reset_peak_host_memory_stats()


def _stat(key: str, device: DeviceLike) -> int:
    return memory_stats(device).get(key, 0)


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors occupy now."""
    return _stat("allocated_bytes.all.current", device)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that tensors occupied since the start or reset_peak_memory_stats()."""
    return _stat("allocated_bytes.all.peak", device)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the allocator holds now, for tensors and cached."""
    return _stat("reserved_bytes.all.current", device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes the allocator held since the start or reset_peak_memory_stats()."""
    return _stat("reserved_bytes.all.peak", device)


def memory_cached(device: DeviceLike = None) -> int:
    """The old name of memory_reserved()."""
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """The old name of max_memory_reserved()."""
    return max_memory_reserved(device)


def device_memory_used(device: DeviceLike = None) -> int:
    """Bytes that are taken, as far as OpenCL tells: by this process alone, and on a CPU by all."""
    free, total = mem_get_info(device)
    return total - free


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Sets the peaks to what is in use now."""
    if not is_unused(device):
        _C.reset_peak_memory_stats(existing_device_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Sets the totals of allocations and frees, and the event counts, to 0."""
    if not is_unused(device):
        _C.reset_accumulated_memory_stats(existing_device_index(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Sets all peaks to what is in use now, as reset_peak_memory_stats()."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Sets all peaks to what is in use now, as reset_peak_memory_stats()."""
    reset_peak_memory_stats(device)


def empty_cache() -> None:
    """Gives cached memory that no tensor uses back to the driver; waits for the devices."""
    if _C.is_initialized():
        _C.empty_cache()


def empty_host_cache() -> None:
    """Gives cached pinned memory back to the driver."""
    if _C.is_initialized():
        _C.empty_host_cache()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of a device. OpenCL does not say what other processes use, so free means
    free for this one."""
    return _C.mem_get_info(existing_device_index(device))


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits what the allocator may hold to a fraction, in (0, 1], of the device's memory.

    Past that, allocations raise torch.OutOfMemoryError. TypeError for what is no number, ValueError
    for a fraction out of range.
    """
    begin_use()
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool):
        raise TypeError(f"the memory fraction must be a number, got {fraction!r}")
    _C.set_memory_fraction(existing_device_index(device), float(fraction))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The part that set_per_process_memory_fraction or TORCH_OCL_MEMORY_FRACTION set, else 1."""
    begin_use()
    return _C.memory_fraction(existing_device_index(device))


def get_allocator_backend() -> str:
    """ "native": the caching allocator of this package, which is the only one."""
    return "native"


def list_gpu_processes(device: DeviceLike = None) -> str:
    """A table of the memory that this process uses. OpenCL tells nothing of other processes."""
    index = existing_device_index(device)
    used = memory_reserved(index) / 2**20
    return f"GPU:{index}\nprocess {os.getpid():>10d} uses {used:>12.3f} MB GPU memory"


def ipc_collect() -> None:
    """Does nothing: memory of the device is never shared between processes."""
    begin_use()


def _format_size(size: int) -> str:
    value = float(size)
    for unit in ("B  ", "KiB", "MiB", "GiB"):
        if abs(value) < 10240 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}"


_SUMMARY_ROWS = (
    ("allocated_bytes", "Allocated memory", True),
    ("active_bytes", "Active memory", True),
    ("requested_bytes", "Requested memory", True),
    ("reserved_bytes", "Reserved memory", True),
    ("inactive_split_bytes", "Non-releasable memory", True),
    ("allocation", "Allocations", False),
    ("active", "Active allocs", False),
    ("segment", "Reserved segments", False),
    ("inactive_split", "Non-releasable allocs", False),
)


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The statistics as a table to print; abbreviated leaves out the split into pools."""
    index = existing_device_index(device)
    stats = memory_stats(index)
    width = 79
    title = f"PyTorch OpenCL memory summary, device {index}: {_C.properties(index)['name']}"
    columns = ("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")
    lines = [
        "=" * width,
        title[:width],
        f"OOMs: {stats['num_ooms']}    alloc retries: {stats['num_alloc_retries']}",
        "=" * width,
        f"{'Metric':<23}|" + " |".join(f"{column:>12}" for column in columns),
    ]
    for key, row, is_bytes in _SUMMARY_ROWS:
        lines.append("-" * width)
        for pool in ("all",) if abbreviated else ("all", "large_pool", "small_pool"):
            label = row if pool == "all" else f"      from {pool.replace('_', ' ')}"
            cells = [stats[f"{key}.{pool}.{m}"] for m in ("current", "peak", "allocated", "freed")]
            shown = [_format_size(cell) if is_bytes else str(cell) for cell in cells]
            lines.append(f"{label:<23}|" + " |".join(f"{cell:>12}" for cell in shown))
    lines.append("=" * width)
    return "\n".join(lines) + "\n"
