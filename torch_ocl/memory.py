"""Memory: statistics of the caching allocator, and control over it."""

from typing import Any

from torch_ocl import _C
from torch_ocl._utils import DeviceLike, existing_device_index, is_unused


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """Statistics of a device's allocator, under the keys of torch.cuda.memory_stats:
    "<metric>.{all,small_pool,large_pool}.{current,peak,allocated,freed}" and event counts."""
    if is_unused(device):
        return {}
    return dict(sorted(_C.memory_stats(existing_device_index(device)).items()))


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


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Sets the peaks to what is in use now."""
    if not is_unused(device):
        _C.reset_peak_memory_stats(existing_device_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Sets the totals of allocations and frees, and the event counts, to 0."""
    if not is_unused(device):
        _C.reset_accumulated_memory_stats(existing_device_index(device))


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
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool):
        raise TypeError(f"the memory fraction must be a number, got {fraction!r}")
    _C.set_memory_fraction(existing_device_index(device), float(fraction))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """What set_per_process_memory_fraction or TORCH_OCL_MEMORY_FRACTION set, else 1."""
    return _C.memory_fraction(existing_device_index(device))


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
