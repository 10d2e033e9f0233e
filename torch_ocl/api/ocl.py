"""torch.ocl: the device module of OpenCL devices."""

import builtins
from typing import Any

import torch

from torch_ocl import _C  # noqa: F401
from torch_ocl.api import (  # noqa: F401
    amp,
    graphs,
    memory,
    nvtx,
    packed,
    random,
    streams,
    tunable,
)
from torch_ocl.api import device_arguments as _utils  # noqa: F401
from torch_ocl.api import names as _names
from torch_ocl.api import profiler as _profiler  # noqa: F401
from torch_ocl.api import storages as _storages
from torch_ocl.api import tensor_types as _tensor_types
from torch_ocl.api.device import (  # noqa: F401
    DeviceProperties,
    _is_in_bad_fork,
    _lazy_init,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    is_tf32_supported,
    set_device,
    synchronize,
    unavailable_reason,
)
from torch_ocl.api.diagnostics import (
    fallback_counts,
    host_staged_counts,
    launch_count,
    program_stats,
    reset_fallback_counts,
    reset_host_staged_counts,
    reset_launch_count,
)
from torch_ocl.api.exchange import from_pyopencl, pyopencl_queue, to_pyopencl
from torch_ocl.api.graphs import (
    OclGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_ocl.api.memory import (
    device_memory_used,
    empty_cache,
    empty_host_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    ipc_collect,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_ocl.api.packed import PackedLinear, pack_weights
from torch_ocl.api.pools import (
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    use_mem_pool,
)
from torch_ocl.api.profiling import mark, profiler, range, range_pop, range_push
from torch_ocl.api.random import (
    default_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_ocl.api.snapshots import memory_snapshot
from torch_ocl.api.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    get_sync_debug_mode,
    set_stream,
    set_sync_debug_mode,
    stream,
)
from torch_ocl.source_kernels.kernels import compile_kernel, local_memory

__all__ = [
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "MemPool",
    "OclGraph",
    "PackedLinear",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "can_device_access_peer",
    "compile_kernel",
    "current_device",
    "current_stream",
    "default_generator",
    "default_generators",  # noqa: F822
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "fallback_counts",
    "from_pyopencl",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "host_staged_counts",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "launch_count",
    "list_gpu_processes",
    "local_memory",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "mark",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "pack_weights",
    "profiler",
    "program_stats",
    "pyopencl_queue",
    "range",
    "range_pop",
    "range_push",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_fallback_counts",
    "reset_host_staged_counts",
    "reset_launch_count",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "synchronize",
    "to_pyopencl",
    "tunable",
    "unavailable_reason",
    "use_mem_pool",
]

AcceleratorError = torch.AcceleratorError
OutOfMemoryError = torch.OutOfMemoryError
has_half = True
has_magma = False  # factorisations are this package's own

globals().update(_storages.legacy_classes())
globals().update(_tensor_types.legacy_types())


def __getattr__(name: str) -> Any:
    # A tuple as in torch.cuda, but made when asked for: it initialises OpenCL.
    if name == "default_generators":
        return tuple(map(default_generator, builtins.range(device_count())))
    # torch.utils.checkpoint saves the state of a device's generator only if this says so.
    if name == "_initialized":
        return is_initialized()
    if name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):
        from torch_ocl.inductor import classes

        return getattr(classes, name)
    raise AttributeError(f"module 'torch.ocl' has no attribute {name!r}{_names.reason(name)}")
