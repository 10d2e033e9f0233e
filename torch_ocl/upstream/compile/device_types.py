"""Inductor's knowledge of devices: its list of GPUs, their backends and their inputs."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_ocl.upstream.compile.replacement import replace


def install() -> None:
    """Applies all of them, once."""
    _gpu_types()
    _system()
    _create_backend()
    _current_backend()
    _aligned_inputs()
    _big_gpu()


def _gpu_types() -> None:
    """A device in inductor's list of GPUs gets device guards, numbers from 0-dimensional operands
    on the CPU, and copies of inputs that are not aligned any more."""
    from torch._inductor import utils

    if "ocl" not in utils.GPU_TYPES:
        utils.GPU_TYPES.append("ocl")
    upstream = utils.get_gpu_type
    upstream.cache_clear()

    # Upstream's asserts that there is one at most; beside a CUDA device it is that one.
    @functools.lru_cache(None)
    def get_gpu_type() -> str:
        others = [t for t in utils.GPU_TYPES if t != "ocl" and getattr(torch, t).is_available()]
        return others[0] if others else "ocl" if torch.ocl.is_available() else "cuda"

    replace("get_gpu_type", upstream, get_gpu_type)


def _system() -> None:
    """The key of caches names a CUDA device. After cuda_to_ocl() torch.cuda has
    devices, which a torch without CUDA and HIP would take for those of HIP."""
    from torch._inductor import codecache

    upstream = codecache.CacheBase.get_system

    @functools.wraps(upstream)
    def get_system() -> Any:
        if torch.version.cuda is not None or torch.version.hip is not None:
            return upstream()
        # Upstream's answer where torch.cuda has no devices.
        return {"hash": codecache.SYSTEM_CACHE_KEY_STRATEGY.key_from_json({})}

    codecache.CacheBase.get_system = staticmethod(get_system)


def _create_backend() -> None:
    """Without triton a scheduler refuses every GPU but `mps`."""
    from torch._inductor import scheduler
    from torch._inductor.virtualized import V

    upstream = scheduler.Scheduler.create_backend

    @functools.wraps(upstream)
    def create_backend(self: Any, device: torch.device) -> Any:
        if device.type != "ocl":
            return upstream(self, device)
        from torch_ocl.inductor.scheduling import OclScheduling

        V.graph.add_device_info(device)
        return OclScheduling(self)

    scheduler.Scheduler.create_backend = create_backend


def _current_backend() -> None:
    """An unknown device's backend would be CUDA's, triton."""
    from torch._inductor import utils

    upstream = utils.get_current_backend

    @functools.wraps(upstream)
    def get_current_backend(device_type: str | None = None) -> str:
        from torch._inductor.virtualized import V

        if not device_type:
            device_type = V.graph.get_current_device_or_throw().type
        return "ocl" if device_type == "ocl" else upstream(device_type)

    replace("get_current_backend", upstream, get_current_backend)


def _aligned_inputs() -> None:
    """Inputs of a GPU that are not aligned are copied. Generated kernels take elements as they
    lie."""
    from torch._inductor import utils

    upstream = utils.should_assume_input_aligned

    @functools.wraps(upstream)
    def should_assume_input_aligned(example_input: torch.Tensor) -> bool:
        return example_input.device.type != "ocl" and upstream(example_input)

    replace("should_assume_input_aligned", upstream, should_assume_input_aligned)


def _big_gpu() -> None:
    """Whether a GPU is one for triton's products, with a warning where it is not."""
    from torch._inductor import utils

    upstream = utils.is_big_gpu

    @functools.wraps(upstream)
    def is_big_gpu(index_or_device: int | torch.device = 0) -> bool:
        if isinstance(index_or_device, torch.device):
            kind = index_or_device.type
        else:
            kind = utils.get_gpu_type()
        return kind != "ocl" and upstream(index_or_device)

    replace("is_big_gpu", upstream, is_big_gpu)
