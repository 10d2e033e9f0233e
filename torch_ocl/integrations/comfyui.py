"""ComfyUI: its device, where it would look for CUDA, and what it asks of one: memory, dtypes,
attention, streams. It is a program, not a package; `comfy.model_management` decides for all of it.

That module chooses the device while it is loaded, so its functions are changed as it defines them.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import wrap

_ADVICE = "start it without --cpu"

Function = Callable[..., Any]
Names = dict[str, Any]  # of comfy.model_management


def _get_torch_device(upstream: Function, names: Names) -> Function:
    """Upstream ends at CUDA's device, and fails without. It takes the CPU with `--cpu` alone, so
    `ocl` is chosen of whatever kind it is."""

    @functools.cache
    def ours() -> torch.device | None:
        try:
            found = upstream()
        except (AssertionError, RuntimeError):  # there is no CUDA
            if _choice.mode() in ("off", "explicit") or not torch.ocl.is_available():
                raise
            return torch.device("ocl", _index(names["args"]))
        by_itself = found.type == "cpu" and not names["args"].cpu
        if by_itself and _choice.chooses_ocl("ComfyUI", _ADVICE):
            return torch.device("ocl", _index(names["args"]))
        return None

    def get_torch_device() -> torch.device:
        return ours() or upstream()

    return get_torch_device


def _index(args: Any) -> int:
    """The device that `--cuda-device` names, or `--default-device`; otherwise the current one."""
    for name in ("cuda_device", "default_device"):
        index = getattr(args, name, None)
        if index is not None:
            return int(str(index).split(",")[0])
    return torch.ocl.current_device()


def _is_ocl(names: Names, device: Any = None) -> bool:
    device = names["get_torch_device"]() if device is None else device
    return getattr(device, "type", None) == "ocl"


def _on_ocl(ours: Function) -> Callable[[Function, Names], Function]:
    """A definition that calls `ours(names, device, ...)` for the device `ocl`, and upstream for
    others. Without a device it is the one that ComfyUI chose."""

    def definition(upstream: Function, names: Names) -> Function:
        def function(*args: Any, **kwargs: Any) -> Any:
            device = args[0] if args else kwargs.get("device", kwargs.get("dev"))
            device = names["get_torch_device"]() if device is None else device
            if not _is_ocl(names, device):
                return upstream(*args, **kwargs)
            others = {k: v for k, v in kwargs.items() if k not in ("device", "dev")}
            return ours(names, device, *args[1:], **others)

        return function

    return definition


def _whatever(ours: Function) -> Callable[[Function, Names], Function]:
    """As _on_ocl, for functions that have no parameter for a device."""

    def definition(upstream: Function, names: Names) -> Function:
        def function(*args: Any, **kwargs: Any) -> Any:
            return ours(names) if _is_ocl(names) else upstream(*args, **kwargs)

        return function

    return definition


# ---- Memory ----


def _total_memory(names: Names, device: torch.device, torch_total_too: bool = False) -> Any:
    total = torch.ocl.mem_get_info(device)[1]
    return (total, torch.ocl.memory_reserved(device)) if torch_total_too else total


def _free_memory(names: Names, device: torch.device, torch_free_too: bool = False) -> Any:
    """Bytes that the device has, and those that torch keeps for later tensors."""
    free = torch.ocl.mem_get_info(device)[0]
    kept = torch.ocl.memory_reserved(device) - torch.ocl.memory_allocated(device)
    return (free + kept, kept) if torch_free_too else free + kept


def _empty_cache(names: Names) -> None:
    torch.ocl.synchronize(names["get_torch_device"]())
    torch.ocl.empty_cache()


def _name(names: Names, device: torch.device) -> str:
    return f"{device} {torch.ocl.get_device_name(device)}"


# ---- Dtypes ----


def _has_fast(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether products in a half type are faster than in float32. OpenCL has no arithmetic in
    bfloat16: units for matrices do it. CPUs convert both types to float32."""
    properties = torch.ocl.get_device_properties(device)
    if properties.type == "cpu":
        return False
    units = properties.has_tensor_cores or properties.subgroup_matrix_size > 0
    return units or dtype == torch.float16 and properties.has_fp16


def _should_use(dtype: torch.dtype) -> Function:
    """Where a half type isn't faster, weights are kept in it if they are too many for float32.
    ComfyUI asks for that with `manual_cast`, and then computes in float32."""

    def should_use(
        names: Names,
        device: torch.device,
        model_params: int = 0,
        prioritize_performance: bool = True,
        manual_cast: bool = False,
    ) -> bool:
        if dtype == torch.float16 and names["args"].force_fp16:
            return True
        if names["FORCE_FP32"]:
            return False
        if _has_fast(dtype, device):
            return True
        return manual_cast and model_params * 4 > names["maximum_vram_for_weights"](device)

    return should_use


def _text_encoder_device(names: Names) -> torch.device:
    """Upstream leaves text encoders on the CPU if the device isn't fast in float16."""
    states = names["VRAMState"]
    stays = names["vram_state"] in (states.HIGH_VRAM, states.NORMAL_VRAM)
    return names["get_torch_device"]() if names["args"].gpu_only or stays else torch.device("cpu")


# ---- Streams ----

_streams: dict[torch.device, list["torch.ocl.Stream"]] = {}


def _offload_stream(names: Names, device: torch.device) -> "torch.ocl.Stream | None":
    """The next of the streams that copy weights while others are computed with, with
    `--async-offload`. It comes after what the current stream has so far."""
    wanted = names["args"].async_offload
    count = 2 if wanted is True else int(wanted or 0)
    if not count or torch.compiler.is_compiling():
        return None
    if device not in _streams:
        _streams[device] = [torch.ocl.Stream(device) for _ in range(count)]
        for stream in _streams[device]:
            stream.as_context = torch.ocl.stream  # as upstream has it of CUDA's
    ring = _streams[device]
    ring.append(ring.pop(0))
    ring[0].wait_stream(torch.ocl.current_stream(device))
    return ring[0]


def _sync_stream(names: Names, device: torch.device, stream: "torch.ocl.Stream | None") -> None:
    if stream is not None:
        torch.ocl.current_stream(device).wait_stream(stream)


# ---- What is known once it is loaded ----


def _model_management(module: ModuleType) -> None:
    if not _is_ocl(vars(module)):
        return
    args = module.args
    others = ("use_split_cross_attention", "use_quad_cross_attention")
    # Upstream has it by default on devices that it knows. The modules that compute attention
    # choose when they are imported, which is later.
    if not any(getattr(args, name, False) for name in others):
        module.ENABLE_PYTORCH_ATTENTION = True
    # Later versions have one of these, or both.
    if hasattr(module, "synchronize"):
        wrap(module, "synchronize", _all_streams)
    if hasattr(module, "current_stream"):
        wrap(module, "current_stream", _stream_of_ours)


def _all_streams(upstream: Function) -> Function:
    return lambda: torch.ocl.synchronize()


def _stream_of_ours(upstream: Function) -> Function:
    def current_stream(device: Any) -> Any:
        ours = getattr(device, "type", None) == "ocl"
        return torch.ocl.current_stream(device) if ours else upstream(device)

    return current_stream


PATCHES = {"comfy.model_management": _model_management}

DEFINITIONS = {
    "comfy.model_management": {
        "get_torch_device": _get_torch_device,
        "get_torch_device_name": _on_ocl(_name),
        "get_total_memory": _on_ocl(_total_memory),
        "get_free_memory": _on_ocl(_free_memory),
        "soft_empty_cache": _whatever(_empty_cache),
        "should_use_fp16": _on_ocl(_should_use(torch.float16)),
        "should_use_bf16": _on_ocl(_should_use(torch.bfloat16)),
        "text_encoder_device": _whatever(_text_encoder_device),
        "pytorch_attention_flash_attention": _whatever(
            lambda names: names["ENABLE_PYTORCH_ATTENTION"]
        ),
        "xformers_enabled": _whatever(lambda names: False),
        "get_offload_stream": _on_ocl(_offload_stream),
        "sync_stream": _on_ocl(_sync_stream),
    }
}
