"""Names of torch.cuda, torch.xpu and torch.mps: what has another name here, and what is missing.

docs/reference/names.md is made from this, and torch.ocl's AttributeErrors say it.
"""

_LIBRARY = "There is no library behind it: {} are kernels of this package."
_SENSOR = "OpenCL has no question for it. Tools of the device's vendor tell."
_ALLOCATOR = "OpenCL's memory is a handle, and no address that another allocator could return."
_CUDA = "It is about CUDA's runtime library."
_METAL = "It is about Metal's tools. torch.ocl.profiler is a context."
_NESTED = "Ranges of a profile are nested: range_push and range_pop name them."
_TUNED_LATER = "Matrix products are tuned where they run, and not recorded to be tuned later."

#: By upstream's full name: what the same is called here.
RENAMED = {
    "torch.cuda.CUDAGraph": "torch.ocl.OclGraph",
    "torch.cuda.amp.autocast_mode": "torch.ocl.amp",
    "torch.cuda.amp.grad_scaler": "torch.ocl.amp",
    "torch.cuda.graphs.CUDAGraph": "torch.ocl.OclGraph",
    "torch.cuda.CudaError": "torch.ocl.AcceleratorError",
    "torch.mps.compile_shader": "torch.ocl.compile_kernel",
    "torch.mps.current_allocated_memory": "torch.ocl.memory_allocated",
    "torch.mps.driver_allocated_memory": "torch.ocl.memory_reserved",
    "torch.mps.recommended_max_memory": "torch.ocl.mem_get_info",
    "torch.mps.event": "torch.ocl.streams",
    "torch.xpu.XPUGraph": "torch.ocl.OclGraph",
    "torch.xpu.graphs.XPUGraph": "torch.ocl.OclGraph",
}

#: By upstream's full name: why there is no such thing here.
NOT_APPLICABLE = {
    "torch.cuda.CUDAPluggableAllocator": _ALLOCATOR,
    "torch.cuda.DeferredCudaCallError": "Nothing is deferred until the first use.",
    "torch.cuda.GreenContext": "OpenCL has no part of a device that work could be limited to.",
    "torch.cuda.amp.amp_definitely_not_available": "torch.amp.is_autocast_available('ocl') tells.",
    "torch.cuda.amp.common": "torch.amp.is_autocast_available('ocl') tells what it has.",
    "torch.cuda.change_current_allocator": _ALLOCATOR,
    "torch.cuda.check_error": _CUDA,
    "torch.cuda.clock_rate": _SENSOR + " `get_device_properties().clock_rate` is the highest.",
    "torch.cuda.comm": "Its functions serve ocl by that name: import torch.cuda.comm.",
    "torch.cuda.cudaStatus": _CUDA,
    "torch.cuda.cudart": _CUDA,
    "torch.cuda.current_blas_handle": _LIBRARY.format("matrix products"),
    "torch.cuda.current_solver_handle": _LIBRARY.format("factorisations"),
    "torch.cuda.gds": "OpenCL can't read files into a device's memory.",
    "torch.cuda.green_contexts": "OpenCL has no part of a device that work could be limited to.",
    "torch.cuda.jiterator": "Its functions are CUDA C++. torch.ocl.compile_kernel takes OpenCL C.",
    "torch.cuda.memory.CUDAPluggableAllocator": _ALLOCATOR,
    "torch.cuda.memory.change_current_allocator": _ALLOCATOR,
    "torch.cuda.memory_usage": _SENSOR,
    "torch.cuda.nccl": "It is NVIDIA's library. torch.distributed works over gloo and NCCL.",
    "torch.cuda.nvtx.range_end": _NESTED,
    "torch.cuda.nvtx.range_start": _NESTED,
    "torch.cuda.power_draw": _SENSOR,
    "torch.cuda.profiler.start": "It starts NVIDIA's profiler. torch.ocl.profiler is a context.",
    "torch.cuda.profiler.stop": "It stops NVIDIA's profiler. torch.ocl.profiler is a context.",
    "torch.cuda.sparse": "It has the old tensor types. Sparse tensors are made as on the CPU.",
    "torch.cuda.temperature": _SENSOR,
    "torch.cuda.tunable.get_rotating_buffer_size": "Tuning works on data of its own.",
    "torch.cuda.tunable.mgpu_tune_gemm_in_file": _TUNED_LATER,
    "torch.cuda.tunable.record_untuned_enable": _TUNED_LATER,
    "torch.cuda.tunable.record_untuned_is_enabled": _TUNED_LATER,
    "torch.cuda.tunable.set_numerical_check_tolerances": "Every kernel's results are compared.",
    "torch.cuda.tunable.set_rotating_buffer_size": "Tuning works on data of its own.",
    "torch.cuda.tunable.tune_gemm_in_file": _TUNED_LATER,
    "torch.cuda.utilization": _SENSOR,
    "torch.mps.load_metallib": "It is about Metal. torch.ocl.compile_kernel takes OpenCL C.",
    "torch.mps.profiler.is_capturing_metal": _METAL,
    "torch.mps.profiler.is_metal_capture_enabled": _METAL,
    "torch.mps.profiler.metal_capture": _METAL,
    "torch.mps.profiler.start": _METAL,
    "torch.mps.profiler.stop": _METAL,
    "torch.xpu.XPUPluggableAllocator": _ALLOCATOR,
    "torch.xpu.change_current_allocator": _ALLOCATOR,
    "torch.xpu.clock_rate": _SENSOR + " `get_device_properties().clock_rate` is the highest.",
    "torch.xpu.memory.XPUPluggableAllocator": _ALLOCATOR,
    "torch.xpu.memory.change_current_allocator": _ALLOCATOR,
    "torch.xpu.memory_usage": _SENSOR,
    "torch.xpu.power_draw": _SENSOR,
    "torch.xpu.temperature": _SENSOR,
    "torch.xpu.utilization": _SENSOR,
}

_MODULES = ("torch.cuda", "torch.xpu", "torch.mps")


def reason(name: str) -> str:
    """Why torch.ocl has no such name, as the end of a sentence; empty if nothing is known."""
    for module in _MODULES:
        if other := RENAMED.get(f"{module}.{name}"):
            return f": {module}.{name} is {other} here"
        if why := NOT_APPLICABLE.get(f"{module}.{name}"):
            return f": {why.rstrip('.').replace('`', '')}"
    return ""
