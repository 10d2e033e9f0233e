"""transformers: pipelines, the Trainer, offloaded caches, where bitsandbytes quantises models, and
files of GGUF, GPTQ and AWQ that stay packed.
Loading with device_map goes by accelerate's."""

import contextvars
import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from torch_ocl.integrations import _choice
from torch_ocl.integrations._patches import Absent, attribute, wrap

_ADVICE = 'name it, as in pipeline(..., device="ocl")'
_ADVICE_MAP = 'name it, as in from_pretrained(..., device_map="ocl")'


def _import_utils(module: ModuleType) -> None:
    wrap(module, "is_torch_bf16_gpu_available", _also_on_ocl)


def _also_on_ocl(upstream: Callable[[], bool]) -> Callable[[], bool]:
    @functools.lru_cache
    def is_torch_bf16_gpu_available() -> bool:
        return upstream() or torch.ocl.is_available()

    return is_torch_bf16_gpu_available


def _training_args(module: ModuleType) -> None:
    """The Trainer takes accelerate's device. For a single process upstream has its own list."""
    kind = attribute(module, "TrainingArguments")
    upstream = attribute(kind, "_setup_devices")
    if not isinstance(upstream, functools.cached_property):
        raise Absent("TrainingArguments._setup_devices is no cached property")

    @functools.wraps(upstream.func)
    def _setup_devices(self: Any) -> torch.device:
        device = upstream.func(self)
        chosen = getattr(getattr(self, "distributed_state", None), "device", None)
        if device.type == "cpu" and getattr(chosen, "type", None) == "ocl":
            return chosen
        return device

    kind._setup_devices = functools.cached_property(_setup_devices)
    kind._setup_devices.__set_name__(kind, "_setup_devices")


def _pipelines(module: ModuleType) -> None:
    wrap(attribute(module, "Pipeline"), "__init__", _on_ocl)


def _on_ocl(upstream: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(upstream)
    if not {"model", "device"} <= set(signature.parameters):
        raise Absent("Pipeline has no parameter model or device")

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        device = _device(given.arguments.get("device"), given.arguments.get("model"))
        if device is not None:
            given.arguments["device"] = device
        upstream(*given.args, **given.kwargs)

    return __init__


def _device(asked: Any, model: Any) -> torch.device | None:
    """The device of a pipeline where upstream would take the CPU: for a positive index, and for
    none. Its models that are spread over devices stay where they are."""
    is_index = isinstance(asked, int) and not isinstance(asked, bool) and asked >= 0
    if asked is not None and not is_index:
        return None
    if getattr(model, "hf_device_map", None) is not None or _choice.has_other_accelerator():
        return None
    if is_index:
        return torch.device("ocl", asked) if torch.ocl.is_available() else None
    if _choice.chooses_ocl("transformers' pipeline", _ADVICE):
        return torch.device("ocl", torch.ocl.current_device())
    return None


def _cache_utils(module: ModuleType) -> None:
    """An offloaded cache waits for torch.cuda's default stream, whatever device its tensors are on.
    The rest of it is done by streams of any device. torch.cuda is asked as ever for its own.
    """
    if not hasattr(attribute(module, "Cache"), "offload"):
        raise Absent("Cache has no offload")
    if not getattr(torch.cuda.default_stream, "_knows_ocl", False):
        wrap(torch.cuda, "default_stream", _of_ocl)


def _of_ocl(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def default_stream(device: Any = None) -> Any:
        if getattr(device, "type", None) == "ocl":
            return torch.ocl.default_stream(device)
        return upstream(device)

    default_stream._knows_ocl = True  # type: ignore[attr-defined]
    return default_stream


def _quantizer(module: ModuleType) -> None:
    """Where no device_map is given upstream looks for the devices that it knows."""
    kinds = [kind for name, kind in vars(module).items() if name.startswith("Bnb")]
    if len(kinds) != 1:
        raise Absent("expected one quantizer for bitsandbytes")
    wrap(kinds[0], "update_device_map", _quantised_on_ocl)


def _quantised_on_ocl(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def update_device_map(self: Any, device_map: Any) -> Any:
        found = upstream(self, device_map)
        if device_map is not None or found != {"": "cpu"}:
            return found
        if _choice.chooses_ocl("transformers' quantised model", _ADVICE_MAP):
            return {"": f"ocl:{torch.ocl.current_device()}"}
        return found

    return update_device_map


def _gguf_quantizer(module: ModuleType) -> None:
    """The weights of a GGUF file stay packed on `ocl`. Upstream unpacks them where no device of its
    own has kernels for them, and does not train beside them."""
    kind = attribute(module, "GgufHfQuantizer")
    trainable = attribute(kind, "is_trainable")
    if not isinstance(trainable, property):
        raise Absent("GgufHfQuantizer.is_trainable is no property")
    wrap(kind, "update_device_map", _remembers_its_device)
    wrap(kind, "get_state_dict", _keeps_packed)
    kind.is_trainable = property(lambda self: _is_packed(self) or trainable.fget(self))


def _remembers_its_device(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def update_device_map(self: Any, device_map: Any) -> Any:
        found = upstream(self, device_map)
        places = found.values() if isinstance(found, dict) else ()
        kinds = {torch.device(place).type for place in places}
        self._all_on_ocl = kinds == {"ocl"}
        return found

    return update_device_map


def _is_packed(quantizer: Any) -> bool:
    # An architecture that is "supported" has modules of upstream's own.
    unpacked = quantizer.quantization_config.dequantize or quantizer.supported
    return getattr(quantizer, "_all_on_ocl", False) and not unpacked


def _keeps_packed(upstream: Callable[..., Any]) -> Callable[..., Any]:
    def get_state_dict(self: Any, checkpoint_file: str, model: Any) -> Any:
        if not _is_packed(self):
            return upstream(self, checkpoint_file, model)
        from torch_ocl.integrations import _gguf

        return _gguf.state_of(checkpoint_file, model, self.dtype)

    return get_state_dict


#: The device_map of the model that is being loaded.
_asked: contextvars.ContextVar[Any] = contextvars.ContextVar("device_map")


def _quantizers(module: ModuleType) -> None:
    """Checkpoints of GPTQ, AWQ and compressed-tensors that go to `ocl` are read here. Upstream asks
    for packages with kernels for its own devices."""
    wrap(module, "get_hf_quantizer", _knows_its_device)
    kind = attribute(module, "AutoHfQuantizer")
    upstream = attribute(kind, "from_config")
    if not isinstance(upstream, classmethod):
        raise Absent("AutoHfQuantizer.from_config is no class method")
    kind.from_config = classmethod(functools.wraps(upstream.__func__)(_from_config(upstream)))


def _knows_its_device(upstream: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(upstream)
    if "device_map" not in signature.parameters:
        raise Absent("get_hf_quantizer has no parameter device_map")

    def get_hf_quantizer(*args: Any, **kwargs: Any) -> Any:
        token = _asked.set(signature.bind(*args, **kwargs).arguments["device_map"])
        try:
            return upstream(*args, **kwargs)
        finally:
            _asked.reset(token)

    return get_hf_quantizer


def _from_config(upstream: Any) -> Callable[..., Any]:
    def from_config(cls: Any, quantization_config: Any, **kwargs: Any) -> Any:
        method = getattr(quantization_config, "quant_method", None)
        is_known = getattr(method, "value", method) in ("awq", "compressed-tensors", "gptq")
        if is_known and kwargs.get("pre_quantized") and _goes_to_ocl(_asked.get("cpu")):
            from torch_ocl.integrations import _checkpoints

            if _checkpoints.bits_of(quantization_config):
                return _checkpoints.IntegersQuantizer(quantization_config, **kwargs)
        return upstream.__func__(cls, quantization_config, **kwargs)

    return from_config


def _goes_to_ocl(device_map: Any) -> bool:
    """Whether a device_map names `ocl`, or has accelerate choose it."""
    if isinstance(device_map, dict):
        return "ocl" in {_type_of(place) for place in device_map.values()}
    if _choice.has_other_accelerator():
        return False
    return _choice.chooses_ocl("transformers' quantised model", _ADVICE_MAP)


def _type_of(place: Any) -> str:
    return "disk" if place == "disk" else torch.device(place).type


PATCHES = {
    "transformers.cache_utils": _cache_utils,
    "transformers.pipelines.base": _pipelines,
    "transformers.quantizers.auto": _quantizers,
    "transformers.quantizers.quantizer_bnb_4bit": _quantizer,
    "transformers.quantizers.quantizer_bnb_8bit": _quantizer,
    "transformers.quantizers.quantizer_gguf": _gguf_quantizer,
    "transformers.training_args": _training_args,
    "transformers.utils.import_utils": _import_utils,
}
