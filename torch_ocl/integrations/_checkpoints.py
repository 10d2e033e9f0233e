"""transformers' checkpoints of integers, in the formats of GPTQ, AWQ and compressed-tensors, for
`ocl`. Weights of 4 bits stay packed. Neither gptqmodel nor optimum is needed.

Each format is a function that reads a layer's tensors. The rest is the same for all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizers_utils import get_module_from_name

from torch_ocl.utils.int4 import UNIT, pack


class Integers(NamedTuple):
    """A matrix [n, k] of integers whose groups of columns have a scale and a point for each row. A
    number is (values - point) * scale."""

    values: torch.Tensor  # uint8 [n, k]
    scales: torch.Tensor  # [groups, n]
    points: torch.Tensor  # [groups, n]
    group_of: torch.Tensor | None  # [k]; None: groups follow each other


def _split(words: torch.Tensor, bits: int, dim: int, places: Any = None) -> torch.Tensor:
    """The integers of int32 words along a dimension, the lowest first; or those at these places of
    a word, one after the other."""
    places = range(32 // bits) if places is None else places
    parts = [(words >> place * bits & (1 << bits) - 1).to(torch.uint8) for place in places]
    return torch.stack(parts, dim + 1).flatten(dim, dim + 1)


def _gptq(read: dict[str, torch.Tensor], bits: int, config: Any) -> Integers:
    """qweight [k / 8, n], qzeros [groups, n / 8], scales [groups, n], g_idx [k]. The first version
    of the format has points that are one less."""
    zeros = read["qzeros"]
    if config.format == "gptq":
        # Whole words, as they were made: a point of 0 has borrowed from the next one.
        zeros = zeros + sum(1 << place for place in range(0, 32, bits))
    values = _split(read["qweight"], bits, 0).t()
    return Integers(values, read["scales"], _split(zeros, bits, 1), read.get("g_idx"))


#: Where the integers of 8 columns lie in a word.
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


def _awq(read: dict[str, torch.Tensor], bits: int, config: Any) -> Integers:
    """qweight [k, n / 8], qzeros [groups, n / 8], scales [groups, n]."""
    values = _split(read["qweight"], bits, 1, _AWQ_PLACES).t()
    return Integers(values, read["scales"], _split(read["qzeros"], bits, 1, _AWQ_PLACES), None)


def _compressed(read: dict[str, torch.Tensor], bits: int, config: Any) -> Integers:
    """weight_packed [n, k / 8], weight_scale [n, groups], weight_zero_point [n / 8, groups],
    weight_g_idx [k]."""
    values = _split(read["weight_packed"], bits, 1)
    scales = read["weight_scale"].t()
    points = read.get("weight_zero_point")
    if points is None:
        points = torch.full_like(scales, 1 << bits - 1)
    else:
        points = _split(points, bits, 0)[: len(values)].t()
    group_of = read.get("weight_g_idx")
    is_used = group_of is not None and bool((group_of >= 0).all())
    return Integers(values, scales, points, group_of if is_used else None)


class _Format(NamedTuple):
    read: Callable[[dict[str, torch.Tensor], int, Any], Integers]
    names: tuple[str, ...]  # of a layer's tensors


_COMPRESSED = ("packed", "scale", "zero_point", "g_idx", "shape")
_FORMATS = {
    "gptq": _Format(_gptq, ("qweight", "qzeros", "scales", "g_idx")),
    "awq": _Format(_awq, ("qweight", "qzeros", "scales")),
    "compressed-tensors": _Format(_compressed, tuple(f"weight_{name}" for name in _COMPRESSED)),
}


def bits_of(config: Any) -> int | None:
    """The bits of a checkpoint's integers, by its quantization_config. None: it isn't read here."""
    method = getattr(config.quant_method, "value", config.quant_method)
    if method == "gptq" and config.format in ("gptq", "gptq_v2"):
        return config.bits if config.bits in (2, 4, 8) else None
    if method == "awq" and config.format == "gemm":
        return 4 if config.bits == 4 else None
    if method == "compressed-tensors" and not config.dequantize and config.is_quantized:
        schemes = config.quantization_config.config_groups.values()
        kinds = {
            (s.weights.type, s.weights.num_bits, s.weights.strategy)
            for s in schemes
            if s.weights is not None and s.input_activations is None
        }
        known = {("int", bits, strategy) for bits in (4, 8) for strategy in ("group", "channel")}
        is_packed = config.quantization_config.format == "pack-quantized"
        if is_packed and len(kinds) == len(schemes) == 1 and kinds <= known:
            return next(iter(kinds))[1]
    return None


def weight_of(found: Integers, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """A weight of this dtype: packed, or numbers where the integers are no 4 bits or their groups
    are such as no product takes."""
    k, groups = found.values.shape[1], len(found.scales)
    size = k // groups
    group_of, order = found.group_of, None
    if group_of is not None:
        in_turn = torch.arange(k, device=group_of.device) // size
        # A stable sort on any device.
        order = torch.sort(group_of, stable=True).indices
        if torch.equal(group_of, in_turn.to(group_of.dtype)):
            group_of = order = None
        elif not torch.equal(group_of[order], in_turn.to(group_of.dtype)):
            order = None
    is_packed = bits == 4 and size % UNIT == 0 and size * groups == k
    if is_packed and (group_of is None or order is not None):
        values = found.values if order is None else found.values[:, order]
        order = None if order is None else order.int()
        return pack(values.contiguous(), found.scales, found.points, order, dtype)
    if group_of is None:
        group_of = torch.arange(k, device=found.values.device) // -(-k // groups)
    scales, points = found.scales[group_of].t().float(), found.points[group_of].t()
    return ((found.values - points.float()) * scales).to(dtype)


class Deserialize(ConversionOps):
    """Makes a layer's weight from its tensors, on the device that they are for."""

    def __init__(self, hf_quantizer: Any) -> None:
        # transformers asks for this attribute: scales keep their dtype.
        self.hf_quantizer = hf_quantizer

    def convert(
        self, input_dict: dict[str, Any], *, model: Any, full_layer_name: str, **others: Any
    ) -> dict[str, Any]:
        """The weight, by its name."""
        module, name = get_module_from_name(model, full_layer_name)
        read = {key.strip("\\.$"): found[0] for key, found in input_dict.items()}
        quantizer = self.hf_quantizer
        place = next(iter(read.values())).device
        # Where other devices than `ocl` keep a part of a model, it is computed on `ocl`, too.
        on_device = {key: part.to("ocl") for key, part in read.items()}
        if not isinstance(module, (torch.nn.Linear, Conv1D)):
            raise ValueError(f"{full_layer_name}: no weight of a linear layer")
        found = quantizer.format.read(on_device, quantizer.bits, quantizer.quantization_config)
        weight = weight_of(found, quantizer.bits, getattr(module, name).dtype).to(place)
        if isinstance(module, Conv1D):
            weight = weight.t().contiguous()
        return {full_layer_name: torch.nn.Parameter(weight, requires_grad=False)}


class IntegersQuantizer(HfQuantizer):
    """transformers asks this of a format while it loads a checkpoint."""

    quantized_element_size = 0.5625  # bytes of a weight's number, with its scale in a group of 64

    def __init__(self, quantization_config: Any, **others: Any) -> None:
        super().__init__(quantization_config, **others)
        method = quantization_config.quant_method
        self.format = _FORMATS[getattr(method, "value", method)]
        self.bits = bits_of(quantization_config)

    def update_device_map(self, device_map: Any) -> Any:
        """The current device, if a program names none."""
        if isinstance(device_map, dict) and "disk" in map(str, device_map.values()):
            raise RuntimeError("weights that stay packed can't be mapped to the disk")
        return device_map or {"": f"ocl:{torch.ocl.current_device()}"}

    def param_needs_quantization(self, model: Any, param_name: str, **others: Any) -> bool:
        """Whether a weight may be one of a few bits, for plans of a model's memory."""
        module, name = get_module_from_name(model, param_name)
        is_head = module is model.get_output_embeddings()
        return name == "weight" and isinstance(module, torch.nn.Linear) and not is_head

    def get_weight_conversions(self) -> list[Any]:
        """A conversion of the tensors in a checkpoint to weights."""
        names = [rf"\.{name}$" for name in self.format.names]
        return [WeightConverter(names, ".weight", [Deserialize(self)])]

    def is_serializable(self) -> bool:
        """A packed model has another layout than its checkpoint."""
        return False

    @property
    def is_trainable(self) -> bool:
        """Adapters are, beside the weights."""
        return True

    @property
    def is_compileable(self) -> bool:
        """torch.compile reads the weights as they are."""
        return True
